"""Stages laid out over epochs, and what each stage makes of a grader and its optimizer."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dismix.errors import DisMixError
from dismix.graders.base import Grader, Stage
from dismix.graders.settings import TrainSettings


def stage_ends(stages: tuple[Stage, ...], epochs: int) -> list[int]:
    """Return the epoch at which each stage ends; every stage gets at least one.

    Example:
        >>> stage_ends((Stage("encode", 0.75), Stage("head", 0.25)), 10)
        [8, 10]
    """
    if epochs < len(stages):
        raise DisMixError(
            f"{epochs} epochs cannot hold the {len(stages)} stages "
            + ", ".join(stage.name for stage in stages),
            cure=f"train for at least {len(stages)} epochs",
        )
    total, passed = sum(stage.share for stage in stages), 0.0
    ends: list[int] = []
    for number, stage in enumerate(stages, 1):
        passed += stage.share / total
        # Half an epoch goes up; later stages keep at least one each.
        end = math.floor(passed * epochs + 0.5)
        earlier = ends[-1] if ends else 0
        ends.append(min(max(end, earlier + 1), epochs - (len(stages) - number)))
    return ends


def has_prefix(name: str, prefixes: tuple[str, ...]) -> bool:
    """Tell whether a dotted name lies below one of the prefixes; "" is above everything.

    Example:
        >>> has_prefix("head.weight", ("head",)), has_prefix("header", ("head",))
        (True, False)
    """
    return any(p in ("", name) or name.startswith(p.rstrip(".") + ".") for p in prefixes)


def set_stage_mode(grader: Grader, stage: Stage) -> None:
    """Put trainable parts into training mode and all others into evaluation mode."""
    grader.train()
    for name, module in grader.named_modules():
        above = any(p == name or p.startswith(f"{name}.") for p in stage.trainable)
        if name and not above and not has_prefix(name, stage.trainable):
            module.eval()


def begin_stage(
    grader: Grader, stage: Stage, settings: TrainSettings, steps: int = 1000
) -> torch.optim.Optimizer:
    """Freeze what the stage does not train and return the optimizer of the rest.

    Args:
        grader: Any grader.
        stage: One of its stages.
        settings: Settings.
        steps: Of the whole stage.

    Raises:
        DisMixError: Nothing is left to train.
    """
    for name, parameter in grader.named_parameters():
        parameter.requires_grad_(has_prefix(name, stage.trainable))
        # Clipping would count what the stage before left behind.
        parameter.grad = None
    grader.on_stage_start(stage)
    groups = _groups(grader, stage, settings, steps)
    if not groups:
        raise DisMixError(f"stage '{stage.name}' has nothing to train")
    fused = grader.device.type == "cuda"
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, settings.lr, momentum=0.9, fused=fused)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, settings.lr, fused=fused)


def _groups(
    grader: Grader, stage: Stage, settings: TrainSettings, steps: int
) -> list[dict[str, Any]]:
    """Group parameters by their factor on the learning rate and by weight decay."""
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in grader.named_parameters():
        if parameter.requires_grad:
            found_scale = _longest(stage.lr_scale, name)
            scale = 1.0 if found_scale is None else found_scale
            most = _longest(stage.lr_most, name)
            # Rates of SGD are on another scale.
            if most is not None and settings.optimizer != "sgd":
                scale = min(scale, most / settings.lr)
            if travel := _longest(stage.travel, name):
                # A step of Adam is about as long as its learning rate.
                scale = travel / (steps * _mean_rate(settings, stage))
            # Decay would pull thresholds and margins towards zero for no reason.
            decay = settings.weight_decay if parameter.ndim > 1 else 0.0
            found.setdefault((scale, decay), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "scale": scale}
        for (scale, decay), parameters in found.items()
    ]


def _longest(values: Mapping[str, float], name: str) -> float | None:
    """Return the value of the longest prefix of a name, None without any."""
    near = [prefix for prefix in values if has_prefix(name, (prefix,))]
    return values[max(near, key=len)] if near else None


def _mean_rate(settings: TrainSettings, stage: Stage) -> float:
    """Return the learning rate's mean over a stage."""
    shares = [(i + 0.5) / 200 for i in range(200)]
    return sum(learning_rate(settings, stage, share) for share in shares) / len(shares)


def learning_rate(settings: TrainSettings, stage: Stage, share: float) -> float:
    """Return the learning rate at a share [0, 1) of a stage.

    Example:
        >>> settings = TrainSettings("ce", lr=1.0)
        >>> learning_rate(settings, Stage("fit", 1.0, warmup=0.1), 0.05)
        0.5
        >>> round(learning_rate(settings, Stage("fit", 1.0), 0.5), 6)
        0.5
    """
    if share < stage.warmup:
        return settings.lr * share / stage.warmup
    rest = (share - stage.warmup) / (1 - stage.warmup)
    if settings.schedule == "cosine":
        fall = 0.5 * (1 + math.cos(math.pi * rest))
        return settings.lr * (settings.final_lr + (1 - settings.final_lr) * fall)
    if settings.schedule == "step":
        return settings.lr * (0.1 if rest >= 0.6 else 1.0)
    return settings.lr


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of every group, times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
