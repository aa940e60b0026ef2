"""The two optimisation steps of a training: the generator's, and the critics'."""

import math
from collections import deque
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from dismix.generator.recipe import Recipe
from dismix.generator.reversal import reversal_ramp
from dismix.generator.step_draws import draw_step, step_rng, with_gains

if TYPE_CHECKING:
    from dismix.generator.training import Training


class Steps:
    """Both steps on one batch, wrapped for the devices at hand.

    Args:
        training: What learns.
        accelerator: Where it learns.
    """

    def __init__(self, training: "Training", accelerator: Accelerator) -> None:
        self.training, self.accelerator = training, accelerator
        self.objective: nn.Module = training.objective
        self.critics: nn.Module = training.critics
        self.memory: deque[tuple[Tensor, Tensor]] = deque(maxlen=16)
        if accelerator.num_processes > 1:
            self.objective = accelerator.prepare_model(training.objective)
            self.critics = accelerator.prepare_model(training.critics)

    def __call__(
        self, images: Tensor, levels: Tensor, epoch: int, step: int, share: float
    ) -> dict[str, Tensor]:
        """Take a step and return the parts of both losses, on the device.

        Args:
            images: (B, channels, H, W) in [-1, 1], this process's share of the batch.
            levels: (B, C-1).
            epoch: Epochs done before this one.
            step: Number of the step within the epoch.
            share: Share of the training that is done.
        """
        training, accelerator = self.training, self.accelerator
        recipe, world = training.recipe, accelerator.num_processes
        if images.device.type == "cuda":
            images = images.contiguous(memory_format=torch.channels_last)
        rng = step_rng(training.seed, epoch + 1, step)
        draws = draw_step(training.model, len(images) * world, rng)
        draws = draws.shard(accelerator.process_index, world).to(images.device)
        images = with_gains(images, draws.gains, recipe.jitter)
        for optimizer in training.optimizers.values():
            set_lr(optimizer, recipe, share)
        since, over = max(0.0, share - recipe.reversal_start), recipe.reversal_ramp
        ramp = recipe.reversal * reversal_ramp(round(1e4 * since), max(1, round(1e4 * over)))
        realism = float(share >= recipe.discriminator_start)
        training.critics.requires_grad_(False)
        with accelerator.autocast():
            parts, seen = self.objective(images, levels, draws, ramp, realism)
        norm = self._descend("generator", parts["loss"], training.objective)
        training.average.update()
        training.critics.requires_grad_(True)
        with accelerator.autocast():
            critics = self.critics(images, levels, *seen)
        self._descend("critics", critics["loss"], training.critics)
        critics["critic_loss"] = critics.pop("loss")
        self._read_again(levels, seen[2], step, rng)
        found = {name: value.detach() for name, value in (parts | critics).items()}
        return {**found, "gradient_norm": norm}

    def _read_again(self, levels: Tensor, codes: Tensor, step: int, rng: torch.Generator) -> None:
        """Let the adversaries also read codes of earlier batches of this epoch."""
        extra = self.training.recipe.adversary_steps - 1
        if extra < 1 or not len(self.training.critics.adversaries):
            return
        if step == 0:
            # Nothing outlives an epoch, so that a resumed run remembers the same.
            self.memory.clear()
        self.memory.append((codes, levels))
        for _ in range(extra):
            old, its = self.memory[int(torch.randint(len(self.memory), (), generator=rng))]
            with self.accelerator.autocast():
                parts = self.critics(None, its, None, None, old)
            self._descend("critics", parts["loss"], self.training.critics)

    def _descend(self, name: str, loss: Tensor, module: nn.Module) -> Tensor:
        """Step an optimizer and return the norm of the gradient before clipping."""
        optimizer = self.training.optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        most = self.training.recipe.clip or math.inf
        norm = nn.utils.clip_grad_norm_(module.parameters(), most)
        optimizer.step()
        return norm.detach()


def set_lr(optimizer: torch.optim.Optimizer, recipe: Recipe, share: float) -> None:
    """Give an optimizer the learning rates of a moment.

    Args:
        optimizer: Its first rates are remembered as ``first_lr``; groups marked ``constant``
            keep theirs.
        recipe: Schedule and warm-up.
        share: Share of the training that is done.
    """
    scale = 1.0
    if recipe.warmup and share < recipe.warmup:
        scale = (share + 1e-4) / (recipe.warmup + 1e-4)
    elif recipe.schedule == "cosine":
        scale = 0.5 * (1 + math.cos(math.pi * (share - recipe.warmup) / (1 - recipe.warmup)))
    for group in optimizer.param_groups:
        group.setdefault("first_lr", group["lr"])
        group["lr"] = group["first_lr"] * (1.0 if group.get("constant") else scale)
