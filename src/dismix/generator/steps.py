"""The two optimisation steps of a training: the generator's, and the critics'.

A step is prepared (random choices, learning rates; all that the CPU has to say) and then taken
from tensors alone, without waiting for the device, so that one GPU can also replay it as a graph
(`dismix.generator.graphs`).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from dismix.generator.graphs import StepGraph
from dismix.generator.recipe import Recipe
from dismix.generator.step_draws import StepDraws, draw_step, step_rng, with_gains
from dismix.generator.terms import PHASE_TERMS, Phase
from dismix.layout import laid_out
from dismix.transfer import onto

if TYPE_CHECKING:
    from dismix.generator.training import Training

# Batches whose codes the adversaries may read again.
REMEMBERED = 16


@dataclass(frozen=True)
class StepInput:
    """All that a step depends on beside the weights.

    Attributes:
        images: (B, channels, H, W) in [-1, 1].
        levels: (B, C-1).
        draws: Random choices.
        ramp: 0-d strength of the push against rank in z_n.
        realism: 0-d scale of the realism terms.
        slot: (1,) where this batch's codes are remembered.
        picks: (n,) which remembered ones are read again.
        phase: What the epoch is for, see `Recipe.phase`.
    """

    images: Tensor
    levels: Tensor
    draws: StepDraws
    ramp: Tensor
    realism: Tensor
    slot: Tensor
    picks: Tensor
    phase: Phase

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        own = [self.images, self.levels, self.ramp, self.realism, self.slot, self.picks]
        return [*own, *self.draws.tensors]


@dataclass
class Memory:
    """Codes of earlier batches of an epoch, for adversaries that take more steps.

    Attributes:
        codes: (REMEMBERED, B, D, h, w).
        levels: (REMEMBERED, B, C-1).
        written: Batches of this epoch so far.
    """

    codes: Tensor
    levels: Tensor
    written: int = 0


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
        # By batch size: an epoch's last batch may have another one.
        self.memory: dict[int, Memory] = {}
        several = accelerator.num_processes > 1
        if several:
            self.objective = accelerator.prepare_model(training.objective)
            self.critics = accelerator.prepare_model(training.critics)
        replay = training.recipe.graphs and accelerator.device.type == "cuda" and not several
        #: By phase: steps of other terms are another graph.
        self.graphs = {
            phase: StepGraph(self.take, training.recipe.batch_size)
            for phase in PHASE_TERMS
            if replay
        }

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
        given = self.prepare(images, levels, epoch, step, share)
        for optimizer in self.training.optimizers.values():
            set_lr(optimizer, self.training.recipe, share)
        parts = self.graphs.get(given.phase, self.take)(given)
        self.training.average.update()
        return parts

    def prepare(
        self, images: Tensor, levels: Tensor, epoch: int, step: int, share: float
    ) -> StepInput:
        """Draw all choices of a step and bring them to the device; arguments as for the call."""
        training, accelerator, recipe = self.training, self.accelerator, self.training.recipe
        world, device = accelerator.num_processes, images.device
        images = laid_out(images)
        rng = step_rng(training.seed, epoch + 1, step)
        draws = draw_step(training.model, len(images) * world, rng)
        draws = draws.shard(accelerator.process_index, world).to(device)
        draws = draws.with_noise(images.shape, device)
        # This start, too, is counted from the end of the plain epochs.
        apart = share - recipe.plain_epochs / recipe.epochs
        slot, picks = self._remembered(len(images), step, rng)
        return StepInput(
            with_gains(images, draws.gains, recipe.jitter),
            levels,
            draws,
            torch.full((), recipe.push(share), device=device),
            torch.full((), float(apart >= recipe.discriminator_start), device=device),
            onto(slot, device),
            onto(picks, device),
            recipe.phase(epoch),
        )

    def _remembered(self, batch: int, step: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return where to remember this batch's codes, and which are read again."""
        if step == 0:
            # Nothing outlives an epoch, so that a resumed run remembers the same.
            for memory in self.memory.values():
                memory.written = 0
        written = self.memory[batch].written if batch in self.memory else 0
        if batch in self.memory:
            self.memory[batch].written += 1
        extra = max(0, self.training.recipe.adversary_steps - 1)
        picks = torch.randint(min(written + 1, REMEMBERED), (extra,), generator=rng)
        return torch.tensor([written % REMEMBERED]), picks

    def take(self, given: StepInput) -> dict[str, Tensor]:
        """Take both steps from tensors alone and return the parts of both losses."""
        training, accelerator = self.training, self.accelerator
        training.critics.requires_grad_(False)
        with accelerator.autocast():
            parts, seen = self.objective(
                given.images, given.levels, given.draws, given.ramp, given.realism, given.phase
            )
        norm = self._descend("generator", parts["loss"], training.objective)
        training.critics.requires_grad_(True)
        critics: dict[str, Tensor] = {}
        plain = given.phase == "plain"
        if not plain or len(training.critics.adversaries):
            with accelerator.autocast():
                # Adversaries learn to read the codes before these have to hide anything.
                real = None if plain else given.images
                critics = self.critics(real, given.levels, *seen)
            self._descend("critics", critics["loss"], training.critics)
            critics["critic_loss"] = critics.pop("loss")
            self._read_again(given, seen[2])
        found = {name: value.detach() for name, value in (parts | critics).items()}
        return {**found, "gradient_norm": norm}

    def _read_again(self, given: StepInput, codes: Tensor) -> None:
        """Let the adversaries also read codes of earlier batches of this epoch."""
        if not len(given.picks) or not len(self.training.critics.adversaries):
            return
        batch = len(codes)
        if batch not in self.memory:
            room = [x.new_zeros(REMEMBERED, *x.shape) for x in (codes, given.levels)]
            self.memory[batch] = Memory(room[0], room[1], written=1)
        memory = self.memory[batch]
        memory.codes.index_copy_(0, given.slot, codes.unsqueeze(0))
        memory.levels.index_copy_(0, given.slot, given.levels.unsqueeze(0))
        for pick in given.picks.unsqueeze(1):
            old, its = (x.index_select(0, pick)[0] for x in (memory.codes, memory.levels))
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
    scale, end = 1.0, 1 - recipe.polish_epochs / recipe.epochs
    if recipe.warmup and share < recipe.warmup:
        scale = (share + 1e-4) / (recipe.warmup + 1e-4)
    elif recipe.polish_epochs and share >= end:
        scale = 0.5 * _fallen(share - end, 1 - end)
    elif recipe.schedule == "cosine":
        scale = _fallen(share - recipe.warmup, end - recipe.warmup)
    for group in optimizer.param_groups:
        rate = group["lr"]
        if "first_lr" not in group:
            # Once: reading a number off the GPU waits for it.
            group["first_lr"] = float(rate)
        wanted = group["first_lr"] * (1.0 if group.get("constant") else scale)
        if isinstance(rate, Tensor):
            # A graph reads it where it lies.
            rate.fill_(wanted)
        else:
            group["lr"] = wanted


def _fallen(done: float, whole: float) -> float:
    """Return half a cosine's way from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done / whole))
