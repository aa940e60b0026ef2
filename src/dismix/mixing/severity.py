"""Which severity stored images show in mixes: that of their labels, or their own.

A generator is taught to show what it is asked for, fully. Images are not like that: of those that
annotators call severe many look moderate, so that what is read in the images of a rank lies nearer
to the middle than the rank does (`results/generator`). Decoded at its own label an image of a high
rank then shows more than it did, and one of rank 0 less.

With ``severity="image"`` ordinal codes are conditioned on what the generator reads in an image when
it is told no label. Mixes of two images show what lies between the two, whatever they are called;
their label is made of the labels as before. A rank that is asked for (``generate_and_mix``) is
reached from there, by as many ranks as it is away from the label.

# paper: codes are conditioned on the votes ("label"), which is the default.
"""

from dataclasses import replace
from typing import Literal

from torch import Tensor

from dismix.generator.codes import Codes
from dismix.generator.model import Generator
from dismix.mixing.records import Sources
from dismix.transfer import onto

#: What decides about the severity that stored images show.
Severity = Literal["label", "image"]


def conditioned(sources: Sources, model: Generator, levels: Tensor) -> Sources:
    """Return B sources whose ordinal codes are conditioned on given levels (B, C-1)."""
    z = sources.codes.ordinal if sources.z is None else sources.z
    ordinal = model.quantized_ordinal(z, onto(levels, z.device)).codes
    return replace(sources, codes=Codes(ordinal, sources.codes.nonordinal))


def as_read(sources: Sources, model: Generator) -> Sources:
    """Return B sources whose ordinal codes show what the generator reads in the images.

    Those of a generator that cannot be asked for a rank show it already.
    """
    return sources if sources.read is None else conditioned(sources, model, sources.read)


def asked_from_read(read: Tensor, ranks: Tensor, asked: Tensor, num_ranks: int) -> Tensor:
    """Return what to show (B,) for an asked rank: as far from the reading as from the label.

    Args:
        read: (B, C-1) levels read in the anchors.
        ranks: (B,) their ranks by label.
        asked: (B,) ranks asked for.
        num_ranks: C.

    Example:
        >>> import torch
        >>> read = torch.tensor([[1.0, 1.0, 0.5, 0.0], [0.25, 0.0, 0.0, 0.0]])
        >>> asked_from_read(read, torch.tensor([4, 1]), torch.tensor([3, 0]), 5)
        tensor([1.5000, 0.0000])
    """
    there = onto(asked - ranks, read.device)
    return (read.sum(1) + there).clamp(0, num_ranks - 1)
