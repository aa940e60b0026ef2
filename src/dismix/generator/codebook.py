"""What both quantizers share: the table, usage counts and the revival of dead codes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CodebookUsage(nn.Module):
    """Counts how often each code was chosen since the last reset.

    The counts are a buffer (it follows the module's device, and sums over processes are
    whole numbers) that is not saved: it describes an epoch, not the model.

    Args:
        num_codes: Codebook size K.

    Example:
        >>> usage = CodebookUsage(4)
        >>> usage.update(torch.tensor([0, 0, 1, 1]))
        >>> usage.fraction(), usage.perplexity()
        (0.5, 2.0)
    """

    counts: Tensor

    def __init__(self, num_codes: int) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(num_codes, dtype=torch.long), persistent=False)

    @torch.no_grad()
    def update(self, indices: Tensor) -> None:
        """Add chosen codes, of any shape."""
        flat = indices.reshape(-1)
        # bincount's output shape depends on the data, which would break a compiled graph.
        self.counts.index_add_(0, flat, torch.ones_like(flat))

    def reset(self) -> None:
        """Start a new epoch."""
        self.counts.zero_()

    def all_reduce(self) -> None:
        """Sum the counts over processes; nothing happens outside distributed training."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.counts)

    def fraction(self) -> float:
        """Return the share of codes chosen at least once."""
        return float((self.counts > 0).double().mean())

    def perplexity(self) -> float:
        """Return exp(entropy) of the choices: 1 when one code serves all, K when all serve alike.

        Nothing counted gives 0.
        """
        total = self.counts.sum()
        if total == 0:
            return 0.0
        share = self.counts[self.counts > 0].double() / total
        return float(torch.exp(-(share * share.log()).sum()))


@dataclass(frozen=True)
class Revival:
    """Codes to replace and their new vectors.

    Attributes:
        indices: (n,) codes to replace.
        vectors: (n, D) new entries.
    """

    indices: Tensor
    vectors: Tensor

    def __len__(self) -> int:
        return len(self.indices)


def draw_revival(counts: Tensor, samples: Tensor, generator: torch.Generator) -> Revival:
    """Draw an encoder output for each code that nothing chose.

    Samples are drawn without replacement, since twins would leave one of them dead; with
    fewer samples than dead codes the lowest-numbered dead codes are served.

    Args:
        counts: (K,) choices over an epoch.
        samples: (n, D) or (B, D, h, w) encoder outputs; non-finite ones are passed over.
        generator: Source of the draw; processes that share a model need the same samples
            and the same seed.

    Example:
        >>> counts, samples = torch.tensor([5, 0, 2]), torch.full((4, 2), 7.0)
        >>> draw_revival(counts, samples, torch.Generator().manual_seed(0)).indices
        tensor([1])
    """
    flat = positions(samples.detach()).float()
    flat = flat[torch.isfinite(flat).all(dim=1)]
    dead = torch.nonzero(counts == 0).squeeze(1)
    count = min(len(dead), len(flat))
    order = torch.randperm(len(flat), generator=generator, device=generator.device)
    return Revival(dead[:count], flat[order[:count].to(flat.device)])


def positions(z: Tensor) -> Tensor:
    """Return (B, D, h, w) as (B*h*w, D); (n, D) stays as it is.

    Example:
        >>> positions(torch.zeros(2, 4, 3, 3)).shape
        torch.Size([18, 4])
    """
    if z.dim() == 2:
        return z
    return z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])


def grid(flat: Tensor, like: Tensor) -> Tensor:
    """Return (B*h*w, D) as (B, D, h, w), with B, h and w of ``like`` (B, ?, h, w).

    Example:
        >>> grid(torch.zeros(18, 4), torch.zeros(2, 1, 3, 3)).shape
        torch.Size([2, 4, 3, 3])
    """
    batch, _, height, width = like.shape
    return flat.reshape(batch, height, width, -1).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Quantized:
    """What a quantizer returns.

    Attributes:
        codes: (B, D, h, w) float32; gradients reach the features by the straight-through rule.
        indices: (B, h, w) chosen codes (with soft attention, the most attended).
        codebook_loss: ||sg z1 - z2||^2, which moves the codebook; 0-d.
        commitment_loss: ||z1 - sg z2||^2, which moves the features; 0-d.
        query: (B, D, h, w) what was compared with the codebook: z~ or z, float32.
    """

    codes: Tensor
    indices: Tensor
    codebook_loss: Tensor
    commitment_loss: Tensor
    query: Tensor

    @property
    def loss(self) -> Tensor:
        """l_Q: both parts with weight 1."""
        # paper: both weights 1, not latent-diffusion's 0.25 on one of them; the norm is read
        # as a mean over elements, so that it does not grow with the image.
        return self.codebook_loss + self.commitment_loss


class Codebook(nn.Module):
    """A table of K vectors with usage counts; the base of both quantizers.

    Args:
        num_codes: K.
        dim: D.
    """

    def __init__(self, num_codes: int, dim: int) -> None:
        super().__init__()
        self.num_codes, self.dim = num_codes, dim
        self.embedding = nn.Embedding(num_codes, dim)
        self.usage = CodebookUsage(num_codes)

    def lookup(self, indices: Tensor) -> Tensor:
        """Return the codes (B, D, h, w), float32, of whole-number indices (B, h, w)."""
        return F.embedding(indices.long(), self.embedding.weight).float().permute(0, 3, 1, 2)

    def draw_revival(self, samples: Tensor, generator: torch.Generator) -> Revival:
        """Draw replacements for the codes that the usage counts say are dead.

        Args:
            samples: (n, D) or (B, D, h, w) recent queries (``Quantized.query``).
            generator: Source of the draw.
        """
        return draw_revival(self.usage.counts, samples, generator)

    @torch.no_grad()
    def apply_revival(self, revival: Revival) -> None:
        """Overwrite the codes named by ``revival``."""
        weight = self.embedding.weight
        weight[revival.indices.to(weight.device)] = revival.vectors.to(weight)

    def revive(self, samples: Tensor, generator: torch.Generator) -> int:
        """Replace codes unused since the last reset by random queries; return how many.

        Right after a reset every code counts as dead, so this also starts a codebook from
        data. Call ``usage.all_reduce()`` first in distributed training.

        Args:
            samples: (n, D) or (B, D, h, w) recent queries.
            generator: Source of the draw.
        """
        revival = self.draw_revival(samples, generator)
        self.apply_revival(revival)
        return len(revival)

    def _result(self, query: Tensor, hard: Tensor, codes: Tensor, indices: Tensor) -> Quantized:
        if self.training:
            self.usage.update(indices)
        return Quantized(
            codes=codes,
            indices=indices,
            codebook_loss=F.mse_loss(query.detach(), hard),
            commitment_loss=F.mse_loss(query, hard.detach()),
            query=query,
        )
