"""Where in an image the evidence lies: by the grader's gradient, or by its spectrum alone.

The gradient form is the same in PuzzleMix, Co-Mixup and GuidedMixup: the root mean square
over the channels of d loss / d pixel. Ours asks autograd for the pixels' gradient only, with
the parameters' switched off, so that ``param.grad``, gradient scalers, batch statistics, mode
and hooks of distributed training see nothing of it. On a GPU it runs in bfloat16 and channels
last: only the place of the evidence is asked for, not its third digit.

Spectral residual (Hou and Zhang, CVPR 2007) needs no model: what is left of the log-spectrum
when its smooth part is taken away.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, LossFn, ModelAccess
from dismix.modes import evaluating
from dismix.transfer import onto

Precision = Literal["auto", "float32"]
# Keeps images whose gradient is zero everywhere from becoming 0/0.
_EPS = 1e-12


@dataclass(frozen=True)
class Saliency:
    """Saliency of some rows of a batch.

    Attributes:
        maps: (M, H, W) float32, non-negative.
        clean_loss: Loss of these images with its graph alive, when it was asked for.
    """

    maps: Tensor
    clean_loss: Tensor | None = None


def soft_cross_entropy(model: nn.Module, images: Tensor, targets: Tensor | OrdinalTarget) -> Tensor:
    """Return the mean cross-entropy with soft targets; the loss used when none is given."""
    probs = targets.probs if isinstance(targets, OrdinalTarget) else targets
    cure = "give the mixer the loss of this head as loss_fn=, or a saliency_fn="
    scores = class_scores(model(images), probs.shape, cure)
    return -(probs * F.log_softmax(scores, 1)).sum(1).mean()


def class_scores(scores: Any, expected: Sequence[int], cure: str) -> Tensor:
    """Return what a model gave in float32, or say that it is not one score for each rank.

    Args:
        scores: Output of a model. An ordinal head gives C-1 numbers, or 1, which would be broadcast
            silently to a loss whose gradient is zero.
        expected: (B, C).
        cure: What to give where the head is another.
    """
    if isinstance(scores, Tensor) and tuple(scores.shape) == tuple(expected):
        return scores.float()
    kind = f"something of type {type(scores).__name__}"
    found = tuple(scores.shape) if isinstance(scores, Tensor) else kind
    raise DisMixError(f"the model gives {found}, not class scores {tuple(expected)}", cure=cure)


def default_loss(model: nn.Module, images: Tensor, targets: Tensor | OrdinalTarget) -> Tensor:
    """Return a grader's own training loss; for any other model the soft cross-entropy."""
    own = getattr(model, "training_loss", None)
    if own is None:
        return soft_cross_entropy(model, images, targets)
    if not isinstance(targets, OrdinalTarget):
        targets = OrdinalTarget.from_probs(targets)
    # The first stage trains the features; a later one may only fit a head to them.
    stage: Any = model.stages[0]  # type: ignore[index]
    if getattr(stage, "views", 1) > 1:
        images = images.unsqueeze(1).expand(-1, stage.views, -1, -1, -1)
    loss: Tensor = own(images, targets, stage)["loss"]
    return loss


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluate a model and put back its modes, buffers and ``requires_grad`` afterwards."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    learning = [p for p in model.parameters() if p.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        with evaluating(model):
            yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def gradient_saliency(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | OrdinalTarget,
    loss_fn: LossFn | None = None,
    *,
    keep_loss: bool = False,
    precision: Precision = "auto",
    scale: float = 1.0,
) -> Saliency:
    """Return the root mean square over channels of the loss's gradient, (B, H, W).

    Args:
        model: Any grader; its gradients, buffers and mode stay as they are.
        images: (B, channels, H, W).
        targets: In the form that ``loss_fn`` takes.
        loss_fn: ``loss_fn(model, images, targets)`` -> scalar.
        keep_loss: Also return the loss of a pass in training mode, with its graph alive;
            batch statistics then move as in any training step.
        precision: "auto" computes in bfloat16 on a GPU.
        scale: Find it on copies of this share of the size; maps come back at full size. The
            loss that ``keep_loss`` asks for is that of the whole images, so it needs 1.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[1., 0, 0, 0], [0, 0, 0, 3.]]))
        >>> maps = gradient_saliency(model, torch.zeros(1, 1, 2, 2), torch.tensor([[1., 0.]])).maps
        >>> maps / maps.max()
        tensor([[[0.3333, 0.0000],
                 [0.0000, 1.0000]]])
    """
    inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    loss_fn = loss_fn or default_loss
    on_gpu = images.device.type == "cuda" and precision == "auto"
    guard: AbstractContextManager[None] = nullcontext() if keep_loss else undisturbed(inner)
    low = torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext()
    size = images.shape[-2:]
    if scale < 1 and not keep_loss:
        # A CPU cannot shrink half precision.
        small = [max(1, round(scale * n)) for n in size]
        shrunk = F.interpolate(images.float(), small, mode="bilinear", antialias=True)
        images = shrunk.to(images.dtype)
    with torch.inference_mode(False), torch.enable_grad(), guard, low:
        layout = torch.channels_last if on_gpu else torch.preserve_format
        leaf = images.detach().clone(memory_format=layout).requires_grad_()
        loss = loss_fn(model if keep_loss else inner, leaf, _ordinary(targets))
        if loss.ndim:
            raise DisMixError(
                f"the loss for the saliency must be one number, got {tuple(loss.shape)}",
                cure="check loss_fn(model, images, targets)",
            )
        slope = None
        if loss.requires_grad:
            (slope,) = torch.autograd.grad(loss, leaf, retain_graph=keep_loss, allow_unused=True)
    if slope is None:
        # A head fitted to frozen features, for example: training must go on.
        warnings.warn(
            "the loss does not depend on the images, so their spectral saliency is used instead",
            stacklevel=2,
        )
        return Saliency(_sized(spectral_saliency(images), size), loss if keep_loss else None)
    slope = slope.detach().float()
    # Relative to the largest slope: the square of a confident grader's would underflow.
    top = slope.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-30)
    maps = (slope / top).square().mean(1).sqrt() * top.squeeze(1)
    return Saliency(_sized(maps, size), loss if keep_loss else None)


def _sized(maps: Tensor, size: torch.Size) -> Tensor:
    """Return maps (B, h, w) at a size; their means over blocks stay."""
    if maps.shape[-2:] == size:
        return maps
    return F.interpolate(maps.unsqueeze(1), tuple(size), mode="nearest").squeeze(1)


def _ordinary(targets: Tensor | OrdinalTarget) -> Tensor | OrdinalTarget:
    """Return targets that autograd takes, also when they come from inference mode."""
    if isinstance(targets, OrdinalTarget):
        if targets.probs.is_inference():
            return OrdinalTarget(targets.probs.clone(), targets.clean.clone())
        return targets
    return targets.clone() if targets.is_inference() else targets


def find_saliency(
    access: ModelAccess,
    images: Tensor,
    target: OrdinalTarget,
    *,
    method: str,
    keep_loss: bool = False,
    precision: Precision = "auto",
) -> Saliency:
    """Return saliency maps from whatever the caller gave: a function or a model.

    Args:
        access: What was given.
        images: (M, channels, H, W), only those that are mixed.
        target: Their targets.
        method: Name of the mixer, for messages.
        keep_loss: See :func:`gradient_saliency`.
        precision: Likewise.
    """
    shown = access.shown(target)
    if access.saliency_fn is not None:
        maps = torch.as_tensor(access.saliency_fn(images, shown), device=images.device)
        expected = (len(images), *images.shape[-2:])
        if tuple(maps.shape) != expected:
            raise DisMixError(
                f"saliency_fn returned {tuple(maps.shape)}, expected {expected}",
                cure="return one map (H, W) for each image",
            )
        return Saliency(maps.detach().float().abs())
    model = access.needed_model(
        method, "to find what matters in the images",
        ", or give saliency_fn, for example dismix.mixing.spectral_saliency",
    )  # fmt: skip
    return gradient_saliency(
        model, images, shown, access.loss_fn, keep_loss=keep_loss, precision=precision,
        scale=access.saliency_scale,
    )  # fmt: skip


def pair_saliency(
    access: ModelAccess,
    images: Tensor,
    target: OrdinalTarget,
    draws: Draws,
    *,
    method: str,
    keep_loss: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return saliency (M, H, W) of the drawn rows and of their partners, each found once."""
    needed, place = torch.unique(torch.cat([draws.rows, draws.partner]), return_inverse=True)
    needed = onto(needed, images.device)
    found = find_saliency(
        access, images[needed], target[needed], method=method, keep_loss=keep_loss
    )
    first, second = onto(place, images.device).chunk(2)
    return found.maps[first], found.maps[second], found.clean_loss


def unit_sum(maps: Tensor) -> Tensor:
    """Scale maps (..., H, W) to sum to one; a map of zeros becomes uniform.

    Example:
        >>> unit_sum(torch.tensor([[[0.0, 0.0]], [[1.0, 3.0]]]))
        tensor([[[0.5000, 0.5000]],
        <BLANKLINE>
                [[0.2500, 0.7500]]])
    """
    top = maps.amax((-2, -1), keepdim=True)
    maps = torch.where(top > 0, maps / top.clamp_min(1e-38), torch.ones_like(maps)) + _EPS
    return maps / maps.sum((-2, -1), keepdim=True)


def gaussian_blur(maps: Tensor, size: int = 7, sigma: float = 3.0) -> Tensor:
    """Blur maps (B, H, W) with a Gaussian window; edges are replicated."""
    offsets = torch.arange(size, device=maps.device, dtype=maps.dtype) - (size - 1) / 2
    window = torch.exp(-(offsets**2) / (2 * sigma**2))
    window = window / window.sum()
    half = size // 2
    padded = F.pad(maps.unsqueeze(1), (half, half, half, half), mode="replicate")
    rows = F.conv2d(padded, window.view(1, 1, -1, 1))
    return F.conv2d(rows, window.view(1, 1, 1, -1)).squeeze(1)


@torch.no_grad()
def spectral_saliency(images: Tensor, targets: object = None) -> Tensor:
    """Return the spectral residual (B, H, W) of images (B, channels, H, W), any channels.

    Args:
        images: Any value range.
        targets: Ignored; there so that this can serve as a ``saliency_fn``.

    Example:
        A dot on an empty field is what stands out.

        >>> image = torch.zeros(1, 1, 32, 32); image[0, 0, 8, 20] = 1.0
        >>> divmod(int(spectral_saliency(image).argmax()), 32)
        (8, 20)
    """
    with torch.autocast(images.device.type, enabled=False):
        grey = images.float().mean(1)
        height, width = grey.shape[-2:]
        if max(height, width) > 128:
            grey = F.interpolate(
                grey.unsqueeze(1), (128, 128), mode="bilinear", antialias=True
            ).squeeze(1)
        spectrum = torch.fft.fft2(grey)
        size = (spectrum.real**2 + spectrum.imag**2 + 1e-10).sqrt()
        log = size.log()
        smooth = F.avg_pool2d(F.pad(log.unsqueeze(1), (1, 1, 1, 1), mode="replicate"), 3, 1)
        residual = torch.exp(log - smooth.squeeze(1))
        maps = gaussian_blur(torch.fft.ifft2(spectrum * residual / size).abs())
        if maps.shape[-2:] != (height, width):
            maps = F.interpolate(maps.unsqueeze(1), (height, width), mode="bilinear").squeeze(1)
    return maps
