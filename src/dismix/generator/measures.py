"""What is measured on a generator's held-out images, each measure a function of its own.

Images come in small batches, so memory does not depend on the size of the split.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.data.phantom import measured_severity
from dismix.data.phantom.spec import Subject
from dismix.data.transforms import from_unit
from dismix.generator.codebook import CodebookUsage
from dismix.generator.fidelity import psnr, ssim
from dismix.generator.images import SplitImages
from dismix.generator.judge import Judge
from dismix.generator.mixing_accuracy import draw_pairs, mixing_accuracy, mixing_chance
from dismix.generator.model import Generator
from dismix.generator.perceptual import LPIPS
from dismix.generator.probes import score
from dismix.generator.saving import digest
from dismix.generator.step_draws import step_rng
from dismix.generator.traverse import nonordinal_traverse, ordinal_traverse
from dismix.progress import Progress

BATCH = 32
PAIRS = 256
#: Shares of a partner's appearance along a non-ordinal traverse.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)

Array = NDArray[np.float64]


def _batches(split: SplitImages, device: torch.device, rows: Tensor | None) -> Iterator[Tensor]:
    rows = torch.arange(len(split)) if rows is None else rows
    for part in torch.split(rows, BATCH):
        yield split.images(part, device)


@torch.no_grad()
def reconstruction(
    model: Generator,
    split: SplitImages,
    perceptual: LPIPS | None,
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Encode and decode a split without labels; measure pictures and codebooks.

    Args:
        model: Generator in evaluation mode.
        split: Held-out images.
        perceptual: LPIPS on the generator's device, or None to leave that out.
        progress: Called after each batch.

    Returns:
        "reconstruction": mean and worst tenth of ``psnr`` (dB), ``ssim`` and ``lpips``;
        "codebooks": share of codes in use and perplexity of each codebook on these images.
    """
    device = next(model.parameters()).device
    found: dict[str, list[Tensor]] = {"psnr": [], "ssim": [], "lpips": []}
    books = {
        "ordinal": CodebookUsage(model.config.ordinal_codes).to(device),
        "nonordinal": CodebookUsage(model.config.nonordinal_codes).to(device),
    }
    if model.quantize_ordinal is None:
        del books["ordinal"]
    for images in _batches(split, device, None):
        codes = model.encode(images)
        made = model.decode(codes).float().clamp(-1, 1)
        found["psnr"].append(psnr(made, images))
        found["ssim"].append(ssim(made, images))
        if perceptual is not None:
            found["lpips"].append(perceptual(made, images).flatten())
        for name, usage in books.items():
            chosen = getattr(codes, f"{name}_indices")
            if chosen is not None:
                usage.update(chosen)
        if progress is not None:
            progress("rebuilding images", sum(map(len, found["psnr"])), len(split))
    pictures: dict[str, float] = {}
    for name, parts in found.items():
        if parts:
            values = torch.cat(parts).cpu().double()
            worst = values.quantile(0.9 if name == "lpips" else 0.1)
            pictures |= {name: float(values.mean()), f"{name}_worst_tenth": float(worst)}
    codebooks = {
        name: {
            "codes": len(usage.counts), "usage": usage.fraction(), "perplexity": usage.perplexity()
        }
        for name, usage in books.items()
        if usage.counts.sum() > 0
    }  # fmt: skip
    return {"reconstruction": pictures, "codebooks": codebooks}


def judge_readings(judge: Judge, split: SplitImages, device: torch.device) -> dict[str, Any]:
    """Measure the judge itself on real images.

    Returns:
        ``accuracy``, ``balanced``, ``mae``, and the mean expected rank of the images of each
        true rank (None where there are none).
    """
    chances = torch.cat([judge.probabilities(x).cpu() for x in _batches(split, device, None)])
    truth = split.target.hard.cpu()
    expected = (chances * torch.arange(chances.shape[1])).sum(1)
    by_rank = [
        float(expected[truth == rank].mean()) if bool((truth == rank).any()) else None
        for rank in range(chances.shape[1])
    ]
    found = score(chances.argmax(1).numpy(), truth.numpy())
    named = {"kind": judge.kind, "fingerprint": digest(judge.state_dict())[:12]}
    return {**named, **judge.notes, **found.to_dict(), "by_true_rank": by_rank}


def along_ranks(readings: Array) -> dict[str, Any]:
    """Summarise readings (C, N) of N images decoded at ranks 0..C-1.

    Example:
        >>> found = along_ranks(np.array([[0.0, 1.0], [1.0, 1.5], [2.0, 1.2]]))
        >>> found["at_ranks"], found["monotone"], found["images_monotone"]
        ([0.5, 1.25, 1.6], True, 0.5)
        >>> round(found["slope"], 2), found["steps_up"]
        (0.55, 0.75)
    """
    steps = np.diff(readings, axis=0)
    means = readings.mean(1)
    return {
        "at_ranks": means.tolist(),
        "slope": float(np.polyfit(np.arange(len(means)), means, 1)[0]),
        "monotone": bool((np.diff(means) > 0).all()),
        "steps_up": float((steps > 0).mean()),
        "images_monotone": float((steps > 0).all(0).mean()),
    }


def along_looks(readings: Array) -> dict[str, Any]:
    """Summarise readings (R, N) of N images given `SHARES` of another's appearance."""
    change = readings - readings[0]
    return {
        "shares": [*SHARES],
        "mean_change": change.mean(1).tolist(),
        "mean_absolute_change": np.abs(change).mean(1).tolist(),
    }


def control(
    model: Generator, split: SplitImages, rows: Tensor, judge: Judge | None, subject: Subject | None
) -> dict[str, Any]:
    """Read the rank of traverses, by a judge and, on phantoms, by measuring the pictures.

    Args:
        model: Generator in evaluation mode.
        split: Held-out images.
        rows: (n,) images to decode at every rank; each is the partner of the next.
        judge: Grader that took no part in training, or None.
        subject: "knee" or "fundus" on phantoms, else None.

    Returns:
        "rank_control" and "look_control" by the judge, "severity" by measuring.
    """
    ranks = model.config.num_ranks
    readers: dict[str, Any] = {}
    if judge is not None:
        readers["judge"] = lambda x: judge.expected_rank(x).cpu().double().numpy()
    if subject is not None:
        readers["picture"] = lambda x: measured_severity(from_unit(x.cpu()).numpy(), subject, ranks)
    if not readers:
        return {}
    found = _readings(model, split, rows, readers)
    result: dict[str, Any] = {}
    if "judge" in found:
        seen = found["judge"]
        result["rank_control"] = {
            "images": len(rows),
            "error_of_reconstructions": float(np.abs(seen["rebuilt"] - seen["real"]).mean()),
            **along_ranks(seen["ranks"]),
        }
        result["look_control"] = along_looks(found["judge"]["looks"])
    if "picture" in found:
        shown = found["picture"]
        result["severity"] = {
            "images": len(rows),
            "error_of_reconstructions": float(np.abs(shown["rebuilt"] - shown["real"]).mean()),
            "rank_control": along_ranks(shown["ranks"]),
            "look_control": along_looks(shown["looks"]),
        }
    return result


@torch.no_grad()
def _readings(
    model: Generator, split: SplitImages, rows: Tensor, readers: dict[str, Any]
) -> dict[str, dict[str, Array]]:
    device = next(model.parameters()).device
    ranks, shares = torch.arange(model.config.num_ranks).float(), torch.tensor(SHARES)
    kept: dict[str, dict[str, list[Array]]] = {name: {} for name in readers}
    partners = rows.roll(1)
    for part, givers in zip(torch.split(rows, BATCH), torch.split(partners, BATCH), strict=True):
        images, others = split.images(part, device), split.images(givers, device)
        looks = nonordinal_traverse(model, images, others, None, shares).clamp(-1, 1)
        shown = {
            "real": images[None],
            # Nothing of another's appearance is the reconstruction.
            "rebuilt": looks[:1],
            "looks": looks,
            "ranks": ordinal_traverse(model, images, ranks).clamp(-1, 1),
        }
        for name, reader in readers.items():
            for kind, pictures in shown.items():
                read = np.stack([reader(x) for x in pictures])
                kept[name].setdefault(kind, []).append(read)
    return {
        name: {kind: np.concatenate(parts, axis=1) for kind, parts in kinds.items()}
        for name, kinds in kept.items()
    }


def judged_mixes(
    model: Generator, judge: Judge, splits: Mapping[str, SplitImages], seed: int = 0
) -> dict[str, dict[str, float]]:
    """Measure mixing accuracy by split, read by the judge instead of the training's reader.

    Returns:
        "judged": accuracies; "chance": what mixes that are all read as one rank would reach.
    """
    device = next(model.parameters()).device
    found: dict[str, dict[str, float]] = {"judged": {}, "chance": {}}
    for number, (name, split) in enumerate(splits.items(), start=1):
        rng = step_rng(seed, 1, number)
        rows = torch.randperm(len(split), generator=rng)[:PAIRS].sort().values
        target = split.target[rows.to(split.target.probs.device)].to(device)
        draws = draw_pairs(len(rows), PAIRS, rng)
        images = split.images(rows, device)
        found["chance"][name] = mixing_chance(target, draws)
        found["judged"][name] = mixing_accuracy(
            model, judge.rank_logits, images, target, draws, BATCH
        )
    return found


def phantom_subject(source: str) -> Subject | None:
    """Return the subject of a phantom set by its manifest's source, or None.

    Example:
        >>> phantom_subject("dismix phantom (knee)"), phantom_subject("IDRiD")
        ('knee', None)
    """
    subjects: tuple[Subject, ...] = get_args(Subject)
    return next((s for s in subjects if source.startswith(f"dismix phantom ({s})")), None)
