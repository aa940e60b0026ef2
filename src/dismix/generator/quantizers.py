"""The two quantizers of the generator.

``OrdinalQuantizer`` conditions the features on the ordinal soft label and picks a code by
hard attention; ``NearestQuantizer`` picks the nearest code in L2, as in VQ-VAE. Both work
in float32 whatever autocast says, return codes that are bit for bit rows of the codebook
(so an index is enough to store a code), and count their choices while training.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.generator.codebook import Codebook, Quantized, grid, positions
from dismix.generator.precision import full_precision

Attention = Literal["hard", "soft"]
NullLabel = Literal["learned", "predicted", "none"]

__all__ = ["LabelGate", "NearestQuantizer", "OrdinalQuantizer", "Quantized"]

# 2**25 float32 distances are 128 MiB: 2048 positions (two images at 32 x 32) against 16384 codes.
MAX_DISTANCES = 2**25


class NearestQuantizer(Codebook):
    """The nearest code in L2, with the gradient copied straight through.

    Args:
        num_codes: K (the paper's non-ordinal codebook has 16384).
        dim: D.

    Example:
        >>> quantize = NearestQuantizer(2, 1)
        >>> _ = quantize.embedding.weight.data.copy_(torch.tensor([[0.0], [1.0]]))
        >>> quantize(torch.tensor([0.2, 0.9]).view(1, 1, 1, 2)).codes.flatten()
        tensor([0., 1.])
    """

    def __init__(self, num_codes: int = 16384, dim: int = 4) -> None:
        super().__init__(num_codes, dim)
        nn.init.uniform_(self.embedding.weight, -1.0 / num_codes, 1.0 / num_codes)

    def forward(self, z: Tensor) -> Quantized:
        """Quantize features.

        Args:
            z: (B, D, h, w).
        """
        with full_precision(z):
            z = z.float()
            indices = self.nearest(positions(z)).reshape(z.shape[0], *z.shape[2:])
            hard = self.lookup(indices)
            # z - sg z is exactly zero: the codes stay rows of the codebook to the last bit.
            codes = hard.detach() + (z - z.detach())
            return self._result(z, hard, codes, indices)

    @torch.no_grad()
    def nearest(self, flat: Tensor) -> Tensor:
        """Return the (n,) nearest codes of vectors (n, D), in chunks of bounded memory."""
        weight = self.embedding.weight.float()
        # ||z||^2 is the same for all codes, so it is left out of the comparison.
        squares = weight.square().sum(dim=1)
        rows = max(1, MAX_DISTANCES // self.num_codes)
        found = [
            torch.addmm(squares, chunk, weight.T, alpha=-2.0).argmin(dim=1)
            for chunk in torch.split(flat.float(), rows)
        ]
        return found[0] if len(found) == 1 else torch.cat(found)


class LabelGate(nn.Module):
    """Conditions features on levels: z~ = (z + h1(s)) * h2(h1(s)).

    Without a label something stands for h1(s), so that the gate keeps its scale: a learned
    vector, or h1 of the levels that a linear reader predicts from the mean of z.

    Args:
        num_ranks: C.
        dim: D.
        null_label: "learned", "predicted", or "none" for z~ = z without a label.
        rank_only: Leave z out: z~ = h1(s) * h2(h1(s)), with the predicted label where there is
            none. The code then says nothing but the rank.

    Example:
        >>> gate = LabelGate(num_ranks=5, dim=4)
        >>> gate(torch.ones(2, 4, 8, 8), torch.ones(2, 4)).shape
        torch.Size([2, 4, 8, 8])
    """

    def __init__(
        self,
        num_ranks: int,
        dim: int,
        null_label: NullLabel = "learned",
        *,
        rank_only: bool = False,
    ) -> None:
        super().__init__()
        self.rank_only = rank_only
        self.h1 = nn.Linear(num_ranks - 1, dim)
        self.h2 = nn.Linear(dim, dim)
        # paper: it always conditions, which leaks the label into every evaluation on z_o.
        self.null = nn.Parameter(torch.zeros(dim)) if null_label == "learned" else None
        self.predict = nn.Linear(dim, num_ranks - 1) if null_label == "predicted" else None

    def forward(
        self, z: Tensor, levels: Tensor | None = None, uncond_mask: Tensor | None = None
    ) -> Tensor:
        """Return the conditioned features (B, D, h, w).

        Args:
            z: (B, D, h, w).
            levels: (B, C-1), or None for no label at all.
            uncond_mask: (B,) bool, true where the label is to be ignored.
        """
        if levels is None:
            null = self._null(z)
            return z if null is None else self._gate(z, null)
        shift = self.h1(levels.to(self.h1.weight.dtype))
        if uncond_mask is None:
            return self._gate(z, shift)
        null = self._null(z)
        if null is not None:
            return self._gate(z, torch.where(uncond_mask[:, None], null, shift))
        return torch.where(uncond_mask[:, None, None, None], z, self._gate(z, shift))

    def predicted_logits(self, z: Tensor) -> Tensor | None:
        """Return the logits (B, C-1) read from z (B, D, h, w), or None without a reader."""
        if self.predict is None:
            return None
        logits: Tensor = self.predict(z.mean(dim=(2, 3)).to(self.predict.weight.dtype))
        return logits

    def _null(self, z: Tensor) -> Tensor | None:
        """Return what stands for h1(s) of images without a label (B, D), or None."""
        logits = self.predicted_logits(z)
        if logits is not None:
            shift: Tensor = self.h1(torch.sigmoid(logits))
            return shift
        return None if self.null is None else self.null.expand(len(z), -1)

    def _gate(self, z: Tensor, shift: Tensor) -> Tensor:
        gate = torch.sigmoid(self.h2(shift))
        z = torch.zeros_like(z) if self.rank_only else z
        return (z + shift[:, :, None, None]) * gate[:, :, None, None]


class OrdinalQuantizer(Codebook):
    """Hard attention of label-conditioned features over a codebook.

    Args:
        num_ranks: C.
        num_codes: K.
        dim: D.
        attention: "hard" (one code forward, soft weights backward) or "soft" (the ablation).
        cosine: Compare directions only. A plain dot product can choose nothing but codes on
            the convex hull of the codebook.
        temperature: Divides the attention logits.
        learn_temperature: Let training move the temperature.
        conditioned: False never looks at labels (an ablation).
        null_label: See `LabelGate`.
        rank_only: See `LabelGate`.

    Example:
        >>> quantize = OrdinalQuantizer(num_ranks=5)
        >>> quantize(torch.randn(2, 4, 8, 8), torch.ones(2, 4)).indices.shape
        torch.Size([2, 8, 8])
    """

    log_temperature: Tensor

    def __init__(
        self,
        num_ranks: int,
        num_codes: int = 512,
        dim: int = 4,
        *,
        attention: Attention = "hard",
        cosine: bool = False,
        temperature: float = 1.0,
        learn_temperature: bool = False,
        conditioned: bool = True,
        null_label: NullLabel = "learned",
        rank_only: bool = False,
    ) -> None:
        super().__init__(num_codes, dim)
        # About the scale of gated features: far smaller codes would all attract the same queries.
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.attention: Attention = attention
        self.cosine = cosine
        gate = LabelGate(num_ranks, dim, null_label, rank_only=rank_only)
        self.condition = gate if conditioned else None
        log_temperature = torch.tensor(float(temperature)).log()
        if learn_temperature:
            self.log_temperature = nn.Parameter(log_temperature)
        else:
            self.register_buffer("log_temperature", log_temperature)

    def forward(
        self, z: Tensor, levels: Tensor | None = None, uncond_mask: Tensor | None = None
    ) -> Quantized:
        """Quantize features.

        Args:
            z: (B, D, h, w).
            levels: (B, C-1), or None to encode without a label.
            uncond_mask: (B,) bool, true where the label is to be ignored.
        """
        with full_precision(z):
            z = z.float()
            query = z if self.condition is None else self.condition(z, levels, uncond_mask).float()
            logits = self._logits(positions(query))
            indices = logits.detach().argmax(dim=1).reshape(z.shape[0], *z.shape[2:])
            soft = torch.softmax(logits, dim=1)
            values = self.embedding.weight.float()
            if self.attention == "soft":
                codes = hard = grid(soft @ values, z)
            else:
                hard = self.lookup(indices)
                # Equal to (onehot - sg soft + soft) @ M in value and in every gradient, but
                # exact: the added difference is zero, and M gets the one-hot's gradient.
                attended = grid(soft @ values.detach(), z)
                codes = hard + (attended - attended.detach())
            return self._result(query, hard, codes, indices)

    def _logits(self, flat: Tensor) -> Tensor:
        keys = self.embedding.weight.float()
        if self.cosine:
            # paper: a plain dot product; codes inside the hull are then never chosen.
            flat, keys = F.normalize(flat, dim=1), F.normalize(keys, dim=1)
        return flat @ keys.T / self.log_temperature.float().exp()
