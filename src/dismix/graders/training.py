"""Training a grader: one loop for all methods, for a CPU, one GPU and many.

The loop knows no method by name. A step's random choices depend on (seed, epoch, step)
alone, so a killed run that is resumed ends with the weights of one that was not. Images are
augmented and then mixed, as the mixers' authors do; where a stage asks for several views of an
image, they are mixed first, so that all views of a mix show the same mix.
"""

import math
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from dismix.data.batches import Batch, Batches
from dismix.data.transforms import augment, draw_augment
from dismix.errors import DisMixError
from dismix.generator.checkpoint import SavingTime
from dismix.generator.health import stop_if_weights_broken
from dismix.generator.images import SplitImages
from dismix.generator.processes import agree, gathered_states
from dismix.generator.run_log import RunLog
from dismix.graders.averaging import AveragedState
from dismix.graders.base import Grader, Stage, combine_weights
from dismix.graders.mixed import loss_of, with_clean_loss
from dismix.graders.plan import begin_stage, learning_rate, set_learning_rate, set_stage_mode
from dismix.graders.sampling import balanced_rank_weights, balanced_rows
from dismix.graders.state import Training, epochs_done, restore_state, save_state
from dismix.graders.validation import validate
from dismix.labels import OrdinalTarget
from dismix.layout import lay_out
from dismix.progress import Progress
from dismix.seeds import seed_of

__all__ = ["Training", "run_training"]


def run_training(
    training: Training,
    train: SplitImages,
    val: SplitImages,
    run: Path,
    accelerator: Accelerator,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    save_seconds: float = 60.0,
) -> None:
    """Train to the last epoch; leave the chosen model, metrics and a checkpoint in ``run``.

    Args:
        training: What to train.
        train: Training split.
        val: Validation split: chooses checkpoints and, with `fit_reference`, settings.
        run: Folder to fill.
        accelerator: From `make_accelerator`.
        resume: Continue from the checkpoint in ``run`` when there is one.
        progress: Called after each step or so.
        save_seconds: Least time between checkpoints; a small network's epoch is over sooner
            than its checkpoint is written.
    """
    loop = _Loop(training, train, accelerator)
    main = accelerator.is_main_process
    if resume and epochs_done(run):
        # The optimizer's state belongs to the stage of the last epoch done.
        loop.enter(training.stage_at(epochs_done(run) - 1))
        process = accelerator.process_index
        if not restore_state(training, run, loop.optimizer, loop.average, process):
            # Nobody drew as this process before: it must not draw what the first one draws.
            reseed_mixer(training, process, training.epoch)
    log = RunLog(run, training.epoch, active=main)
    saving = SavingTime(save_seconds)
    settings, epochs = training.settings, training.settings.epochs
    with torch.random.fork_rng(devices=_cuda(accelerator.device)):
        for epoch in range(training.epoch, epochs):
            metrics = loop.run_epoch(epoch, progress)
            loop.average.share_statistics()
            _stop_if_broken(metrics, epoch, accelerator.device)
            training.epoch = epoch + 1
            last = training.epoch == epochs
            # Earlier stages have no say: their head may not even be trained.
            final = loop.number == len(training.ends) - 1
            if final and (last or training.epoch % settings.validate_every == 0):
                metrics |= validate(training, loop.average, train, val)
                _stop_if_broken(metrics, epoch, accelerator.device)
            # The last step may have broken what the losses before it did not show.
            stop_if_weights_broken({"grader": training.grader}, f"after epoch {training.epoch}")
            log.write({"epoch": training.epoch, **metrics})
            training.other_mixers = gathered_states(training.mixer)[1:]
            if main and (last or saving.due):
                with saving:
                    save_state(training, run, loop.optimizer, loop.average)
            accelerator.wait_for_everyone()


def reseed_mixer(training: Training, *numbers: int) -> None:
    """Start the mixer's random stream anew from the seed and some numbers, if it has one."""
    reseed = getattr(training.mixer, "reseed", None)
    if reseed is not None:
        reseed(training.seed, *numbers)


class _Loss(nn.Module):
    """A grader's loss as a module, for DDP to wrap."""

    def __init__(self, grader: Grader) -> None:
        super().__init__()
        self.grader = grader

    def forward(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None
    ) -> dict[str, Tensor]:
        return self.grader.training_loss(images, target, stage, weights)


class _Loop:
    """Optimizer and averaged weights of the present stage, and the step."""

    def __init__(self, training: Training, train: SplitImages, accelerator: Accelerator) -> None:
        self.training, self.train, self.accelerator = training, train, accelerator
        settings, world = training.settings, accelerator.num_processes
        if settings.batch_size % world:
            raise DisMixError(
                f"a batch of {settings.batch_size} cannot be shared by {world} processes",
                cure="set batch_size to a multiple",
            )
        share, least = settings.batch_size // world, max(2, training.grader.min_batch)
        if world > 1 and share < least:
            raise DisMixError(
                f"{share} images for each of {world} processes are too few",
                cure=f"set batch_size to {least * world} or more",
            )
        if world > 1 and getattr(training.mixer, "clean_lam", 0) > 0:
            raise DisMixError(
                "the loss of clean images is not shared between processes",
                column="clean_lam",
                cure="leave it at 0, or train in one process",
            )
        self.device = accelerator.device
        self.batches = self._batches(None)
        self.rank_weights = self._rank_weights()
        weights = training.sample_weights
        self.sample_weights = None if weights is None else weights.to(self.device)
        # Once, not every epoch: a pool of mixes is thrown away by it. From here on the mixer's
        # own state goes into the checkpoint.
        reseed_mixer(training, accelerator.process_index)
        self.number = -1
        self.optimizer: torch.optim.Optimizer
        self.average: AveragedState
        lay_out(training.grader.backbone, self.device)

    def _batches(self, rows: Tensor | None) -> Batches:
        return Batches(
            self.train.source, self.train.target,
            self.training.settings.batch_size // self.accelerator.num_processes,
            seed=self.training.seed, rows=rows, augment=False, equalize=self.train.equalize,
            device=self.device, rank=self.accelerator.process_index,
            world_size=self.accelerator.num_processes,
        )  # fmt: skip

    def _rank_weights(self) -> Tensor | None:
        weights, target = self.training.settings.rank_weights, self.train.target
        if weights == "balanced":
            return balanced_rank_weights(target).to(self.device)
        if weights and len(weights) != target.num_ranks:
            raise DisMixError(
                f"{len(weights)} rank weights were given for {target.num_ranks} ranks",
                cure="give one for each rank, or 'balanced'",
            )
        return torch.tensor(weights, device=self.device) if weights else None

    def enter(self, number: int) -> None:
        """Begin a stage: its parameters, optimizer, and averaged weights from here on."""
        self.number = number
        training = self.training
        stage = training.grader.stages[number]
        start = training.ends[number - 1] if number else 0
        steps = (training.ends[number] - start) * len(self.batches)
        self.optimizer = begin_stage(training.grader, stage, training.settings, steps)
        self.average = AveragedState(
            training.grader, 1 - 1 / max(1.0, training.settings.average * steps)
        )
        self.loss: nn.Module = _Loss(training.grader)
        if self.accelerator.num_processes > 1:
            self.loss = self.accelerator.prepare_model(self.loss)

    def run_epoch(self, epoch: int, progress: Progress | None) -> dict[str, float]:
        """Train for one epoch and return the means of the loss and its parts."""
        training, process = self.training, self.accelerator.process_index
        if training.stage_at(epoch) != self.number:
            self.enter(training.stage_at(epoch))
        stage = training.grader.stages[self.number]
        if training.settings.balanced:
            self.batches = self._batches(balanced_rows(self.train.target, training.seed, epoch))
        self.batches.set_epoch(epoch)
        # Dropout draws from torch's own generator, which is forked around the whole run.
        torch.manual_seed(seed_of(training.seed, epoch, process))
        training.grader.start_epoch(seed_of(training.seed, epoch, process, 1))
        set_stage_mode(training.grader, stage)
        count, seen, begun = len(self.batches), 0, time.perf_counter()
        sums: dict[str, Tensor] = {}
        for step, batch in enumerate(self.batches):
            parts = self._step(batch, stage, epoch, step, count)
            sums = {name: sums.get(name, 0.0) + value for name, value in parts.items()}
            seen += len(batch) * self.accelerator.num_processes
            if progress is not None and (step + 1 == count or step % 10 == 0):
                rate = seen / (time.perf_counter() - begun)
                text = f"training | {stage.name}  loss {float(parts['loss']):.3f}  {rate:.0f}/s"
                progress(text, epoch * count + step + 1, training.settings.epochs * count)
        metrics = {name: float(total) / count for name, total in sums.items()}
        if epoch == 0 and metrics["loss"] == 0:
            # Later a loss may be over and done with; at the start it means that nothing counts.
            raise DisMixError(
                "the loss is 0 in every step: there is nothing to learn from",
                cure="mix fewer images (--mix-set p=0.5), check weights, or choose another method: "
                "some compare with images that are neither mixed nor labelled by a law only",
            )
        metrics["images_per_second"] = seen / (time.perf_counter() - begun)
        return metrics

    def _step(
        self, batch: Batch, stage: Stage, epoch: int, step: int, count: int
    ) -> dict[str, Tensor]:
        training, settings = self.training, self.training.settings
        assert batch.target is not None
        start = training.ends[self.number - 1] if self.number else 0
        share = (epoch - start + step / count) / (training.ends[self.number] - start)
        set_learning_rate(self.optimizer, learning_rate(settings, stage, share))
        seed = seed_of(training.seed, epoch, step, self.accelerator.process_index, 2)
        images, target = batch.images, batch.target
        if settings.augment and stage.views == 1:
            images = _views(images, 1, seed)
        mixed = training.mixer is not None and stage.mixing and settings.mixes(epoch)
        if mixed:
            images, target = self._mix(images, target, stage, batch.index)
        if stage.views > 1:
            images = _views(images, stage.views, seed)
        own = None if self.sample_weights is None else self.sample_weights[batch.index]
        weights = combine_weights(target, self.rank_weights, own)
        with self.accelerator.autocast():
            parts: dict[str, Tensor] = self.loss(images, target, stage, weights)
        if mixed:
            parts = with_clean_loss(parts, training.mixer)
        self.optimizer.zero_grad(set_to_none=True)
        parts["loss"].backward()  # type: ignore[no-untyped-call]
        if settings.clip:
            nn.utils.clip_grad_norm_(training.grader.parameters(), settings.clip)
        self.optimizer.step()
        self.average.update()
        return {name: value.detach() for name, value in parts.items()}

    def _mix(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, index: Tensor
    ) -> tuple[Tensor, OrdinalTarget]:
        mixer, known = self.training.mixer, self.training.mixer_rows
        assert mixer is not None
        options: dict[str, Any] = {}
        if getattr(mixer, "needs_saliency", False):
            options = {"model": self.training.grader, "loss_fn": loss_of(stage)}
        if getattr(mixer, "takes_rows", False):
            options["rows"] = None if known is None else known[index.to(known.device)]
            # Several views are flipped and turned after mixing.
            options["augmented"] = self.training.settings.augment and stage.views == 1
        return mixer(images, target, **options)


def _views(images: Tensor, views: int, seed: int) -> Tensor:
    """Return augmented images (B, channels, H, W), or (B, V, channels, H, W) for V > 1."""
    rng = torch.Generator().manual_seed(seed)
    if views == 1:
        return augment(images, draw_augment(len(images), rng))
    many = images.repeat_interleave(views, 0)
    seen = augment(many, draw_augment(len(many), rng))
    return seen.view(len(images), views, *images.shape[1:])


def _stop_if_broken(metrics: dict[str, float], epoch: int, device: torch.device) -> None:
    finite = torch.tensor([math.isfinite(value) for value in metrics.values()])
    # All processes stop together, and none saves what another has broken.
    broken = agree((~finite).int().to(device)).tolist()
    bad = next((name for name, flag in zip(metrics, broken, strict=True) if flag), None)
    if bad is not None:
        raise DisMixError(
            f"'{bad}' is not finite in epoch {epoch + 1}",
            cure="start anew with a smaller learning rate (--set lr=...)",
        )


def _cuda(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []
