"""Rank classifiers on codes, and what training does to the codes the decoder sees."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dismix.transfer import onto

Reader = Literal["flatten", "pool", "conv", "deep"]


class RankClassifier(nn.Module):
    """Reads rank logits from codes.

    Args:
        num_ranks: C.
        dim: Channels of the codes.
        size: Positions a side; only "flatten" depends on it.
        kind: "flatten" is linear on all positions, "pool" linear on their mean, "conv" a
            small convolutional network, "deep" one as strong as the probe that judges z_n.

    Example:
        >>> RankClassifier(5, dim=4, size=8)(torch.zeros(2, 4, 8, 8)).shape
        torch.Size([2, 4])
    """

    def __init__(self, num_ranks: int, dim: int, size: int, kind: Reader = "flatten") -> None:
        super().__init__()
        # paper: "a linear classifier", without saying of what; all positions keep the most.
        pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        layers: dict[str, list[nn.Module]] = {
            "flatten": [nn.Flatten(), nn.Linear(dim * size * size, num_ranks - 1)],
            "pool": [*pool, nn.Linear(dim, num_ranks - 1)],
            "conv": [
                nn.Conv2d(dim, 32, 3, padding=1),
                nn.SiLU(),
                nn.Conv2d(32, 64, 3, stride=2, padding=1),
                nn.SiLU(),
                *pool,
                nn.Linear(64, num_ranks - 1),
            ],
            "deep": [
                *_stage(dim, 32),
                *_stage(32, 64),
                nn.AvgPool2d(2, ceil_mode=True),
                *_stage(64, 128),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
                nn.Linear(512, num_ranks - 1),
            ],
        }
        self.layers = nn.Sequential(*layers[kind])

    def forward(self, codes: Tensor) -> Tensor:
        """Return logits (B, C-1) of codes (B, D, h, w)."""
        weight = next(self.layers.parameters())
        logits: Tensor = self.layers(codes.to(weight.dtype))
        return logits


def _stage(before: int, after: int) -> list[nn.Module]:
    # Batch normalisation learns faster than group normalisation here, and an adversary must
    # keep up; it lies in an adversary only, never in what is saved.
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]


@dataclass(frozen=True)
class Perturbation:
    """What training hides from the decoder: a limit on what the non-ordinal codes can carry.

    Attributes:
        hidden: (B, 1, h, w) bool, positions set to zero, or None.
        noise: (B, D, h, w) standard normal, or None.
        scale: Noise in units of the codes' standard deviation.
    """

    hidden: Tensor | None = None
    noise: Tensor | None = None
    scale: float = 0.0

    def to(self, device: torch.device) -> "Perturbation":
        """Move to a device."""
        hidden, noise = (None if x is None else onto(x, device) for x in (self.hidden, self.noise))
        return Perturbation(hidden, noise, self.scale)

    def __call__(self, codes: Tensor) -> Tensor:
        """Return the perturbed codes (B, D, h, w)."""
        if self.noise is not None:
            codes = codes + self.scale * codes.detach().std() * self.noise.to(codes)
        if self.hidden is not None:
            codes = codes.masked_fill(self.hidden.to(codes.device), 0.0)
        return codes


def draw_perturbation(
    shape: tuple[int, int, int, int],
    generator: torch.Generator,
    *,
    dropout: float = 0.0,
    noise: float = 0.0,
) -> Perturbation:
    """Draw a perturbation for codes of ``shape`` (B, D, h, w).

    Args:
        shape: Shape of the non-ordinal codes.
        generator: Source of the draw.
        dropout: Share of positions to hide.
        noise: Noise in units of the codes' standard deviation.

    Example:
        >>> drawn = draw_perturbation((2, 4, 8, 8), torch.Generator(), dropout=1.0)
        >>> drawn(torch.ones(2, 4, 8, 8)).sum()
        tensor(0.)
    """
    batch, _, height, width = shape
    device = generator.device
    hidden = torch.rand((batch, 1, height, width), generator=generator, device=device) < dropout
    normal = torch.randn(shape, generator=generator, device=device)
    return Perturbation(hidden if dropout else None, normal if noise else None, noise)
