"""What a training step knows of a batch before anything is decoded."""

from dataclasses import dataclass

from torch import Tensor

from dismix.generator.codes import Codes, Latents
from dismix.generator.losses import similarity, sor
from dismix.generator.quantizers import Quantized


@dataclass(frozen=True)
class Analysis:
    """What a training step needs to know of images, before anything is decoded.

    Attributes:
        ordinal: The ordinal branch; with one codebook the same object as ``nonordinal``.
        nonordinal: The non-ordinal branch.
        ordinal_logits: (B, C-1) rank logits read from z_o.
        nonordinal_logits: (B, C-1) rank logits read from z_n behind the gradient reversal.
        latents: What was quantized.
    """

    ordinal: Quantized
    nonordinal: Quantized
    ordinal_logits: Tensor
    nonordinal_logits: Tensor
    latents: Latents

    @property
    def codes(self) -> Codes:
        """The codes, to decode the images again."""
        return Codes(self.ordinal.codes, self.nonordinal.codes)

    def terms(self, levels: Tensor, *, signed: bool = False) -> dict[str, Tensor]:
        """Return the loss terms of codes and ranks (reconstruction and realism not included).

        Args:
            levels: (B, C-1).
            signed: See `dismix.generator.losses.similarity`.
        """
        ranks = {
            "rank_ordinal": sor(self.ordinal_logits, levels),
            "rank_nonordinal": sor(self.nonordinal_logits, levels),
        }
        if self.ordinal is self.nonordinal:
            return {"quantize": self.nonordinal.loss, **ranks}
        return {
            "quantize_ordinal": self.ordinal.loss,
            "quantize_nonordinal": self.nonordinal.loss,
            **ranks,
            "similarity": similarity(self.ordinal.codes, self.nonordinal.codes, signed=signed),
        }
