"""Probes: how much of the rank can be read from a code.

A linear probe is the paper's measure. It can miss what a network would find, so a small
convolutional probe stands beside it: a weak probe proves nothing about z_n. Images are
always encoded without their label.
"""

import warnings
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from dismix.generator.images import SplitImages
from dismix.generator.model import Codes, Generator
from dismix.generator.seeding import seeded
from dismix.progress import Progress

Array = NDArray[np.int64]
#: Codes of so many images fit into memory at 256 px (128 MiB a branch).
MOST_IMAGES = 8192


@dataclass(frozen=True)
class ProbeResult:
    """How well ranks were read.

    Attributes:
        accuracy: Share of right ranks.
        balanced: Mean over ranks of the share of right ones; chance is 1/C.
        mae: Mean absolute error in ranks.
    """

    accuracy: float
    balanced: float
    mae: float

    def to_dict(self) -> dict[str, float]:
        """Return plain values."""
        return asdict(self)


def score(predicted: Array, truth: Array) -> ProbeResult:
    """Compare ranks (N,).

    Example:
        >>> score(np.array([0, 1, 1]), np.array([0, 1, 2]))
        ProbeResult(accuracy=0.6666666666666666, balanced=0.6666666666666666, mae=0.333...)
    """
    right = predicted == truth
    present = np.unique(truth)
    balanced = np.mean([right[truth == rank].mean() for rank in present])
    return ProbeResult(
        float(right.mean()), float(balanced), float(np.abs(predicted - truth).mean())
    )


@torch.no_grad()
def encode_split(
    model: Generator,
    split: SplitImages,
    rows: Tensor | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Codes:
    """Return the codes of images of a split, encoded without labels, on the CPU.

    Args:
        model: Generator in evaluation mode.
        split: Where the images are.
        rows: (n,) which of them; None takes all.
        batch_size: Images encoded at once.
        progress: Called after each batch.
    """
    device = next(model.parameters()).device
    parts: list[Codes] = []
    rows = torch.arange(len(split)) if rows is None else rows
    for part in torch.split(rows, batch_size):
        codes = model.encode(split.images(part, device))
        parts.append(Codes(codes.ordinal.float().cpu(), codes.nonordinal.float().cpu()))
        if progress is not None:
            progress("encoding for the probes", sum(map(len, parts)), len(rows))
    return Codes.cat(parts)


def linear_probe(
    fit: Tensor, fit_ranks: Array, held_out: Tensor, held_out_ranks: Array, *, strength: float = 1.0
) -> ProbeResult:
    """Fit a logistic regression on flattened codes and score it on other images.

    Args:
        fit: (N, D, h, w) codes to fit on.
        fit_ranks: (N,).
        held_out: (M, D, h, w) codes to score on.
        held_out_ranks: (M,).
        strength: Inverse of the L2 penalty, for features scaled to unit norm.
    """
    from sklearn.linear_model import LogisticRegression

    mean, deviation = fit.flatten(1).mean(0), fit.flatten(1).std(0).clamp_min(1e-6)
    scale = fit[0].numel() ** -0.5
    train, test = ((((x.flatten(1) - mean) / deviation) * scale).numpy() for x in (fit, held_out))
    probe = LogisticRegression(C=strength, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe.fit(train, fit_ranks)
    return score(probe.predict(test), held_out_ranks)


def conv_probe(
    fit: Tensor,
    fit_ranks: Array,
    held_out: Tensor,
    held_out_ranks: Array,
    *,
    num_ranks: int,
    epochs: int = 40,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> ProbeResult:
    """Train a small convolutional network on codes and score it on other images.

    Args:
        fit: (N, D, h, w) codes to fit on.
        fit_ranks: (N,).
        held_out: (M, D, h, w) codes to score on.
        held_out_ranks: (M,).
        num_ranks: C.
        epochs: Passes over the N codes.
        seed: Seed of the first weights and the order.
        device: Where to train.
    """
    spread = fit.std().clamp_min(1e-6)
    # Dropout draws from torch's own state.
    with seeded(seed, device):
        probe = _conv_net(fit.shape[1], num_ranks).to(device)
        _train_probe(probe, (fit / spread).to(device), fit_ranks, num_ranks, epochs, seed)
    probe.eval()
    with torch.no_grad():
        parts = [
            probe(part.to(device)).argmax(1).cpu() for part in torch.split(held_out / spread, 256)
        ]
    return score(torch.cat(parts).numpy(), held_out_ranks)


def _train_probe(
    probe: nn.Module, x: Tensor, ranks: Array, num_ranks: int, epochs: int, seed: int
) -> None:
    y = torch.from_numpy(ranks).to(x.device)
    weight = 1.0 / torch.bincount(y, minlength=num_ranks).clamp_min(1).float()
    optimizer = torch.optim.AdamW(probe.parameters(), 1e-3, weight_decay=1e-2)
    rng = torch.Generator().manual_seed(seed)
    batch = min(64, len(x))
    total = epochs * (len(x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=total)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=rng)
        for start in range(0, len(x) - batch + 1, batch):
            rows = order[start : start + batch].to(x.device)
            loss = F.cross_entropy(probe(x[rows]), y[rows], weight)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


def _conv_net(channels: int, num_ranks: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(512, num_ranks),
    )  # fmt: skip


def some_rows(count: int, most: int, seed: int = 0) -> Tensor:
    """Return ``most`` of ``count`` rows drawn by a seed, in order; all when there are fewer.

    Example:
        >>> some_rows(3, 8), len(some_rows(10, 4))
        (tensor([0, 1, 2]), 4)
    """
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most]
    return drawn.sort().values


def probe_generator(
    model: Generator,
    fit: SplitImages,
    held_out: SplitImages,
    *,
    conv: bool = True,
    most: int = MOST_IMAGES,
    progress: Progress | None = None,
) -> dict[str, ProbeResult]:
    """Probe both codes: fitted on one split's label-free codes, scored on another's.

    Args:
        model: Generator in evaluation mode.
        fit: Split to fit the probes on.
        held_out: Split to score them on.
        conv: Also run the convolutional probe.
        most: Images of either split whose codes are kept at once; of more a draw is taken.
        progress: Called while images are encoded.

    Returns:
        Results by "ordinal_linear", "nonordinal_linear", "ordinal_conv", "nonordinal_conv".
    """
    rows = [some_rows(len(split), most) for split in (fit, held_out)]
    codes = [
        encode_split(model, split, chosen, progress=progress)
        for split, chosen in zip((fit, held_out), rows, strict=True)
    ]
    ranks = [
        split.target.hard.cpu()[r].numpy() for split, r in zip((fit, held_out), rows, strict=True)
    ]
    device = next(model.parameters()).device
    results: dict[str, ProbeResult] = {}
    for branch in ("ordinal", "nonordinal"):
        a, b = (getattr(c, branch) for c in codes)
        results[f"{branch}_linear"] = linear_probe(a, ranks[0], b, ranks[1])
        if conv:
            # One code for the whole image has nothing to convolve, but the network still fits.
            results[f"{branch}_conv"] = conv_probe(
                a, ranks[0], b, ranks[1], num_ranks=model.config.num_ranks, device=device
            )
    return results
