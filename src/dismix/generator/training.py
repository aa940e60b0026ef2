"""Training a generator: one loop for a CPU, one GPU and many (through accelerate).

A step's random choices depend on (seed, epoch, step) alone and the state is saved between
epochs, so a killed run that is resumed ends with the weights of one that was not.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from dismix.data.batches import Batches
from dismix.errors import DisMixError
from dismix.generator.checkpoint import FILE, SavingTime, load_training, save_training
from dismix.generator.config import GeneratorConfig
from dismix.generator.critics import Critics
from dismix.generator.ema import AveragedWeights
from dismix.generator.guide import Guide
from dismix.generator.health import (
    LOOK_EVERY,
    peak_memory_mib,
    stop_if_broken,
    stop_if_weights_broken,
    tend_codebooks,
)
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.generator.objective import GeneratorObjective
from dismix.generator.perceptual import LPIPS
from dismix.generator.recipe import Recipe
from dismix.generator.run_log import RunLog
from dismix.generator.starting import (
    start_from_data,
    start_pretrained,
    start_trunk,
)
from dismix.generator.step_draws import step_rng
from dismix.generator.steps import Steps
from dismix.generator.terms import ONE_CODEBOOK, TERMS
from dismix.generator.validation import Reader, chosen_by, validate
from dismix.layout import lay_out
from dismix.progress import Progress


@dataclass
class Training:
    """The parts of a training, built once and then changed by the loop.

    Attributes:
        model: The generator.
        critics: Discriminator and adversaries.
        objective: The generator's terms.
        average: Averaged weights of the generator.
        optimizers: Of "generator" and "critics".
        recipe: Settings.
        seed: Seed of all choices.
        epoch: Epochs done.
        best: Best score and its epoch so far.
        perceptual: LPIPS, for validation.
    """

    model: Generator
    critics: Critics
    objective: GeneratorObjective
    average: AveragedWeights
    optimizers: dict[str, torch.optim.Optimizer]
    recipe: Recipe
    seed: int
    epoch: int = 0
    best: dict[str, float] = field(default_factory=lambda: {"score": -math.inf, "epoch": -1})
    perceptual: LPIPS | None = None

    @property
    def reader(self) -> Reader:
        """Who reads ranks from made pictures: the guide, or else the discriminator's head."""
        guide, discriminator = self.objective.guide, self.critics.discriminator.eval()
        return guide or (lambda images: discriminator(images).rank_logits)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """What a checkpoint holds."""
        return {"objective": self.objective, "critics": self.critics}


def build_training(
    config: GeneratorConfig,
    recipe: Recipe,
    train: SplitImages,
    *,
    seed: int,
    device: torch.device,
    perceptual: LPIPS | None,
    weights: str | Path | None = None,
    guide: Guide | None = None,
    reader: Guide | None = None,
) -> Training:
    """Build model, critics and optimizers at their first state.

    Args:
        config: Structure.
        recipe: Settings.
        train: Training split, from which codebooks start and the prior is taken.
        seed: Seed of the first weights.
        device: Where training runs.
        perceptual: LPIPS, or None.
        weights: Pretrained autoencoder; None starts it from nothing.
        guide: Grader from `dismix.generator.guide.train_guide`, or None.
        reader: The same, from which the ordinal trunk starts; None is the guide.
    """
    model = Generator.seeded(config, seed)
    published = False
    if weights is not None:
        published = start_pretrained(model, weights, freeze=recipe.freeze)
    start_trunk(model, reader or guide)
    if recipe.freeze_trunk and model.ordinal_trunk is not None:
        model.ordinal_trunk.requires_grad_(False)
        # Its normalisation stays as it is, too.
        model.train()
    model.to(device)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed + 1)
        critics = Critics(model, recipe).to(device)
    rows = torch.from_numpy(np.random.default_rng(seed).permutation(len(train))[:64])
    start = train.images(rows, device)
    # A split too large for the device stays outside with its labels.
    levels = train.target.levels.to(device)
    rng = step_rng(seed, 0, 0)
    start_from_data(model, start, levels[rows.to(device)], rng, nonordinal=not published)
    objective = GeneratorObjective(model, critics, recipe, perceptual, levels.mean(0), guide).to(
        device
    )
    _make_fast(model, critics, perceptual, guide, compiled=recipe.compile)
    fused = device.type == "cuda"
    graphs = fused and recipe.graphs
    betas = (recipe.beta1, 0.99 if recipe.beta1 < 0.9 else 0.999)
    trunk = () if model.ordinal_trunk is None else tuple(model.ordinal_trunk.parameters())
    own = {id(p) for p in trunk}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in own]
    groups: list[dict[str, Any]] = [{"params": rest, "lr": recipe.lr}]
    if trunk and not recipe.freeze_trunk:
        groups.append({"params": [*trunk], "lr": recipe.lr_trunk or recipe.lr})
    if objective.weigh is not None:
        groups.append({"params": [objective.weigh.theta], "lr": recipe.lr_weights})
    optimizers: dict[str, torch.optim.Optimizer] = {
        "generator": torch.optim.Adam(groups, betas=betas, fused=fused, capturable=graphs),
        "critics": torch.optim.Adam(
            [
                {"params": [*critics.discriminator.parameters()], "lr": recipe.lr_critic},
                # Constant: while the codes settle, their readers must catch up.
                {
                    "params": [*critics.adversaries.parameters()],
                    "lr": recipe.lr_adversary,
                    "constant": True,
                },
            ],
            betas=betas,
            fused=fused,
            capturable=graphs,
        ),
    }
    if graphs:
        for group in (g for o in optimizers.values() for g in o.param_groups):
            group["lr"] = torch.full((), float(group["lr"]), device=device)
    average = AveragedWeights(model, recipe.ema)
    # What is compiled for one shape would be compiled again for validation's.
    read_by = None if recipe.compile else perceptual
    return Training(
        model, critics, objective, average, optimizers, recipe, seed, perceptual=read_by
    )


def _make_fast(
    model: Generator,
    critics: Critics,
    perceptual: LPIPS | None,
    guide: Guide | None,
    *,
    compiled: bool,
) -> None:
    """Lay convolutions out for their device and, if asked, compile the large networks on a GPU."""
    device = model.post_quant_conv.weight.device
    networks = [model.encoder, model.decoder, critics.discriminator]
    for network in (*networks, guide, model.ordinal_trunk):
        if network is not None:
            lay_out(network, device)
    if compiled and device.type == "cuda":
        # In place, so that parameter names stay.
        for network in networks if perceptual is None else [*networks, perceptual]:
            network.compile(dynamic=False)


def run_training(
    training: Training,
    train: SplitImages,
    val: SplitImages,
    run: Path,
    accelerator: Accelerator,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    progress: Progress | None = None,
) -> None:
    """Train to the end of the recipe, writing checkpoints, metrics and strips into ``run``.

    Args:
        training: From `build_training`.
        train: Training split.
        val: Validation split.
        run: Folder to fill.
        accelerator: From `make_accelerator`.
        resume: Continue from the last checkpoint in ``run`` when there is one.
        tensorboard: Also write curves and strips for TensorBoard.
        progress: Called after each step.
    """
    recipe, world = training.recipe, accelerator.num_processes
    if recipe.batch_size % world:
        raise DisMixError(
            f"a batch of {recipe.batch_size} cannot be shared by {world} processes",
            cure="set batch_size to a multiple",
        )
    if resume and (run / FILE).is_file():
        notes = load_training(run, training.modules, training.optimizers, training.average)
        training.epoch, training.best = int(notes["epoch"]), notes["best"]
    log = RunLog(run, training.epoch, active=accelerator.is_main_process, tensorboard=tensorboard)
    batches = Batches(
        train.source, train.target, recipe.batch_size // world, seed=training.seed,
        equalize=train.equalize, device=accelerator.device, augment=recipe.augment,
        rank=accelerator.process_index, world_size=world,
    )  # fmt: skip
    steps, saving = Steps(training, accelerator), SavingTime()
    for epoch in range(training.epoch, recipe.epochs):
        metrics = _train_epoch(training, steps, batches, epoch, progress)
        metrics |= tend_codebooks(training, train, epoch, accelerator.device)
        stop_if_weights_broken(training.modules, f"after epoch {epoch + 1}")
        last = epoch + 1 == recipe.epochs
        training.epoch = epoch + 1
        if last or training.epoch % recipe.evaluate_every == 0:
            with training.average.applied():
                metrics |= validate(
                    training.model, training.reader, train, val, training.seed,
                    accelerator.device, training.perceptual,
                )  # fmt: skip
                chosen = recipe.may_choose(training.epoch)
                if chosen and metrics["score"] > training.best["score"]:
                    training.best = chosen_by({"epoch": training.epoch, **metrics})
                    if accelerator.is_main_process:
                        training.model.save(run)
                if recipe.strip_every and (last or training.epoch % recipe.strip_every == 0):
                    log.strip(training.model, val, training.epoch)
        log.write({"epoch": training.epoch, **metrics})
        if accelerator.is_main_process and (last or saving.due):
            notes = {"epoch": training.epoch, "best": training.best}
            with saving:
                save_training(run, training.modules, training.optimizers, training.average, notes)
        accelerator.wait_for_everyone()
    log.close()


def _train_epoch(
    training: Training, steps: Steps, batches: Batches, epoch: int, progress: Progress | None
) -> dict[str, float]:
    batches.set_epoch(epoch)
    training.objective.train()
    training.critics.train()
    count, seen, start = len(batches), 0, time.perf_counter()
    sums: dict[str, Tensor] = {}
    for step, batch in enumerate(batches):
        assert batch.target is not None
        share = (epoch + step / count) / training.recipe.epochs
        parts = steps(batch.images, batch.target.levels, epoch, step, share)
        sums = {name: sums.get(name, 0.0) + value for name, value in parts.items()}
        seen += len(batch) * steps.accelerator.num_processes
        if step % LOOK_EVERY == 0 or step + 1 == count:
            stop_if_broken(sums, f"at step {step + 1} of {count} in epoch {epoch + 1}")
            if progress is not None:
                rate = seen / (time.perf_counter() - start)
                text = f"training | {_in_words(parts)}  {rate:.0f} images/s"
                progress(text, epoch * count + step + 1, training.recipe.epochs * count)
    metrics = {name: float(total) / count for name, total in sums.items()}
    metrics["images_per_second"] = seen / (time.perf_counter() - start)
    metrics["peak_memory_mib"] = peak_memory_mib(steps.accelerator.device)
    return metrics


def _in_words(parts: Mapping[str, Tensor], most: int = 2) -> str:
    """Return the loss and its largest terms as "weight x value"."""
    values = dict(zip(parts, torch.stack([*parts.values()]).tolist(), strict=True))
    terms = [name.removeprefix("w_") for name in values if name.startswith("w_")]
    own = [name for name in terms if name in (*TERMS, ONE_CODEBOOK)]
    own.sort(key=lambda name: -values[name] * values[f"w_{name}"])
    shown = " ".join(f"{name} {values['w_' + name]:.2g}x{values[name]:.3g}" for name in own[:most])
    return f"loss {values['loss']:.3g} ({shown})"
