"""Noticing that a training has gone wrong, before anything broken is written.

Terms are looked at every few steps and weights before every checkpoint, because each look
waits for the device. Processes that train together always come to the same verdict.
"""

import resource
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.codebook import Codebook
from dismix.generator.images import SplitImages
from dismix.generator.processes import agree, share
from dismix.generator.step_draws import step_rng
from dismix.generator.terms import TERMS

if TYPE_CHECKING:
    from dismix.generator.training import Training

#: Steps between looks at the terms.
LOOK_EVERY = 10
#: Below this perplexity a codebook says next to nothing.
COLLAPSED = 1.5


def stop_if_broken(sums: Mapping[str, Tensor], place: str) -> None:
    """Raise when a term has not been finite since the sums began.

    Args:
        sums: Running sums of named 0-d terms; what is not finite stays so in a sum.
        place: Where in the training this is, for the message.

    Raises:
        DisMixError: With the name of the term and the cure.
    """
    bad = agree(torch.stack([~torch.isfinite(total) for total in sums.values()]).int())
    flags = dict(zip(sums, bad.tolist(), strict=True))
    # The loss is the sum of its terms: one of those says more.
    order = [*(n for n in flags if n in TERMS), *(n for n in flags if n not in (*TERMS, "loss"))]
    broken = next((name for name in [*order, "loss"] if flags.get(name)), None)
    if broken is not None:
        weight = f" or weight (--set {broken}=...)" if broken in TERMS else ""
        raise DisMixError(
            f"the term '{broken}' is not finite {place}",
            cure=f"start anew with a smaller step (--set lr=...){weight}",
        )


def stop_if_weights_broken(modules: Mapping[str, nn.Module], place: str) -> None:
    """Raise when a parameter is not finite; the last step's harm shows in no loss.

    Args:
        modules: Modules by name.
        place: Where in the training this is, for the message.
    """
    named = {
        f"{name}.{key}": parameter.detach()
        for name, module in modules.items()
        for key, parameter in module.named_parameters()
        if parameter.numel()
    }
    norms = torch.stack([norm.float() for norm in torch._foreach_norm([*named.values()])])
    flags = torch.isfinite(norms).tolist()
    broken = next((name for name, fine in zip(named, flags, strict=True) if not fine), None)
    if broken is not None:
        raise DisMixError(
            f"the weight '{broken}' is not finite {place}",
            cure="start anew with a smaller step (--set lr=...)",
        )


def tend_codebooks(
    training: "Training", train: SplitImages, epoch: int, device: torch.device
) -> dict[str, float]:
    """Log usage and perplexity of the epoch, revive dead codes, and start a new count.

    Args:
        training: What learns.
        train: Training split, whose features revive codes.
        epoch: Epochs done before this one.
        device: Where to compute.

    Raises:
        DisMixError: The non-ordinal codebook has collapsed and nothing revives it.
    """
    model, metrics = training.model, {}
    books: dict[str, Codebook | None] = {
        "ordinal": model.quantize_ordinal,
        "nonordinal": model.quantize,
    }
    rng = step_rng(training.seed, epoch + 1, 2**20)
    # Codes born near the end would have no time to find their place.
    learning = training.recipe.epochs - training.recipe.polish_epochs
    revive = training.recipe.revive and epoch + 1 < 0.8 * learning
    queries = _queries(training, train, rng, device) if revive else {}
    for name, book in books.items():
        if book is None:
            continue
        book.usage.all_reduce()
        metrics[f"usage_{name}"] = book.usage.fraction()
        metrics[f"perplexity_{name}"] = book.usage.perplexity()
        if revive:
            metrics[f"revived_{name}"] = float(book.revive(queries[name], rng))
            share(book.embedding.weight)
        book.usage.reset()
    # The ordinal codebook may rightly use few codes: as many as there are ranks.
    if epoch and not training.recipe.revive and metrics["perplexity_nonordinal"] < COLLAPSED:
        raise DisMixError(
            f"the non-ordinal codebook has collapsed to one code in epoch {epoch + 1} "
            f"(perplexity {metrics['perplexity_nonordinal']:.2f})",
            cure="start anew with --set revive=true, or a larger --set quantize_nonordinal=...",
        )
    return metrics


@torch.no_grad()
def _queries(
    training: "Training", train: SplitImages, rng: torch.Generator, device: torch.device
) -> dict[str, Tensor]:
    model = training.model
    rows = torch.randperm(len(train), generator=rng)[:32]
    model.eval()
    levels = train.target.levels[rows.to(train.target.probs.device)]
    latents = model.latents(train.images(rows, device))
    ordinal, nonordinal = model.quantized(latents, levels)
    return {"ordinal": ordinal.query, "nonordinal": nonordinal.query}


def peak_memory_mib(device: torch.device) -> float:
    """Return the most memory this process has held on a device, in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
