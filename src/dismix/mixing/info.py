"""What a mixer tells about the batch it made: ratios, partners, masks, hard labels."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class MixInfo:
    """How each row of a mixed batch was made. Rows that were left alone have lam 1.

    Attributes:
        method: Name of the mixer.
        lam: (B,) float32, the weight of image i itself in row i.
        index: (B,) long, its partner in the batch: i itself for rows left alone, -1 for a
            partner from outside the batch.
        mixed: (B,) bool, the rows that were made anew.
        sources: The targets the mixer was given.
        target: The mixed targets, before they were put into the asked form.
        mask: (B, 1, H, W) weight of image i at each pixel, None where it has no meaning.
        weights: (B, B) share of every source in every row, for mixers of more than two
            images; None when `lam` and `index` say it all.
        fell_back: (B,) bool, rows whose partner rule could not be met in this batch.
        clean_loss: The loss of the clean images with its graph alive, for mixers whose
            authors add ``clean_lam`` times it to the loss; None by default.

    Example:
        >>> sources = OrdinalTarget.from_labels([0, 3], num_ranks=4)
        >>> lam = torch.tensor([0.7, 1.0])
        >>> target = sources.mix(sources[[1, 0]], lam)
        >>> info = MixInfo("mixup", lam, torch.tensor([1, 1]), lam < 1, sources, target)
        >>> info.hard_labels(), info.source_weights()
        (tensor([0, 3]), tensor([[0.7000, 0.3000],
                [0.0000, 1.0000]]))
    """

    method: str
    lam: Tensor
    index: Tensor
    mixed: Tensor
    sources: OrdinalTarget
    target: OrdinalTarget
    mask: Tensor | None = None
    weights: Tensor | None = None
    fell_back: Tensor | None = None
    clean_loss: Tensor | None = None

    @classmethod
    def unchanged(cls, method: str, target: OrdinalTarget) -> "MixInfo":
        """Describe a batch that was left alone."""
        batch, device = len(target), target.probs.device
        return cls(
            method,
            torch.ones(batch, dtype=torch.float32, device=device),
            torch.arange(batch, device=device),
            torch.zeros(batch, dtype=torch.bool, device=device),
            target,
            target,
        )

    def source_weights(self) -> Tensor:
        """Return the share (B, B) of source j in row i; a partner from outside has none."""
        if self.weights is not None:
            return self.weights
        weights = torch.diag(self.lam)
        rows = (self.index >= 0).nonzero().squeeze(1)
        return weights.index_put_((rows, self.index[rows]), 1 - self.lam[rows], accumulate=True)

    def hard_labels(
        self,
        rule: Literal["dominant", "sample", "rounded"] = "dominant",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return whole-number labels (B,) for graders that cannot take soft ones.

        Every rule loses something. "dominant" keeps the majority rank of the strongest
        source, so the weaker source is never asked for (biased for lam near 1/2). "sample"
        draws a rank from the mixed law: right in the mean, noisy in each row. "rounded" is
        the rank nearest the mixed expected rank, which neither source may have.

        Args:
            rule: One of the three.
            generator: For "sample".
        """
        if rule == "rounded":
            # Half a rank goes up, everywhere; rounding to even would go up and down.
            return (self.target.rank + 0.5).floor().long().clamp_max(self.target.num_ranks - 1)
        if rule == "sample":
            probs = self.target.probs.cpu()
            drawn = torch.multinomial(probs, 1, generator=generator).squeeze(1)
            return drawn.to(self.target.probs.device)
        if rule != "dominant":
            raise DisMixError(f"unknown rule '{rule}'", cure="dominant, sample or rounded")
        if bool((self.index < 0).any()):
            return self.target.hard
        return self.sources.hard[self.source_weights().argmax(1)]


@dataclass(frozen=True)
class Mixed:
    """A mixed batch as a mixer's ``replay`` returns it: images (B, ...), targets, info."""

    images: Tensor
    target: OrdinalTarget
    info: MixInfo
