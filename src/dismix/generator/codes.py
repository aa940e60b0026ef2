"""What the generator's encoder yields and its decoder takes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Latents:
    """Projections of the encoder's output, before quantization.

    Attributes:
        ordinal: (B, D_o, h, w), z of the ordinal branch.
        nonordinal: (B, D, h, w), z' of the non-ordinal branch.
    """

    ordinal: Tensor
    nonordinal: Tensor


@dataclass(frozen=True)
class Codes:
    """Ordinal and non-ordinal codes of a batch of images.

    Indices are there only when they say all about the codes: mixed codes and soft-attention
    codes have none.

    Attributes:
        ordinal: (B, D_o, h, w).
        nonordinal: (B, D, h, w).
        ordinal_indices: (B, h, w) rows of the ordinal codebook, or None.
        nonordinal_indices: (B, h, w) rows of the non-ordinal codebook, or None.

    Example:
        >>> codes = Codes(torch.zeros(3, 4, 8, 8), torch.zeros(3, 4, 8, 8))
        >>> len(codes), codes[1:].ordinal.shape
        (3, torch.Size([2, 4, 8, 8]))
    """

    ordinal: Tensor
    nonordinal: Tensor
    ordinal_indices: Tensor | None = None
    nonordinal_indices: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ordinal)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> "Codes":
        """Pick images; the batch dimension stays, also for a single whole number."""
        if isinstance(index, int):
            # Out of range must fail, else iterating over codes would never end.
            index = [range(len(self))[index]]
        rows = index if isinstance(index, slice | Tensor) else torch.as_tensor(index)
        if isinstance(rows, Tensor) and rows.dim() == 0:
            # A number of numpy's or torch's.
            rows = rows[None]
        return Codes(
            self.ordinal[rows],
            self.nonordinal[rows],
            None if self.ordinal_indices is None else self.ordinal_indices[rows],
            None if self.nonordinal_indices is None else self.nonordinal_indices[rows],
        )

    def to(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> "Codes":
        """Move the codes; ``dtype`` is for the vectors, indices stay whole numbers."""

        def move(indices: Tensor | None) -> Tensor | None:
            return None if indices is None else indices.to(device, non_blocking=non_blocking)

        return Codes(
            self.ordinal.to(device, dtype, non_blocking=non_blocking),
            self.nonordinal.to(device, dtype, non_blocking=non_blocking),
            move(self.ordinal_indices),
            move(self.nonordinal_indices),
        )

    def detach(self) -> "Codes":
        """Cut the codes from the graph."""
        return Codes(
            self.ordinal.detach(),
            self.nonordinal.detach(),
            self.ordinal_indices,
            self.nonordinal_indices,
        )

    @staticmethod
    def cat(parts: Sequence["Codes"]) -> "Codes":
        """Join batches; indices survive when every part has them.

        Example:
            >>> part = Codes(torch.zeros(3, 4, 8, 8), torch.zeros(3, 4, 8, 8))
            >>> len(Codes.cat([part, part]))
            6
        """

        def join(indices: list[Tensor | None]) -> Tensor | None:
            known = [part for part in indices if part is not None]
            return torch.cat(known) if len(known) == len(indices) else None

        return Codes(
            torch.cat([part.ordinal for part in parts]),
            torch.cat([part.nonordinal for part in parts]),
            join([part.ordinal_indices for part in parts]),
            join([part.nonordinal_indices for part in parts]),
        )
