"""Do labels and stored images belong together? Asked of the first few batches alone."""

import warnings

from torch import Tensor

#: Batches that are looked at, and images that must have been known by then.
CALLS, LEAST = 4, 8


class StoredRanks:
    """Warns once when most images have another rank in the store than their labels say.

    Rows count the images of the encoded split. A loader of another order, or of a part of it, has
    other numbers for them, and mixes would be made of other images than the caller's.

    Example:
        >>> import torch
        >>> rows = torch.arange(8)
        >>> with warnings.catch_warnings(record=True) as told:
        ...     StoredRanks().compare(rows, torch.zeros(8), stored=rows % 4)
        >>> str(told[0].message)[:46]
        '6 of the first 8 images have other labels than'
    """

    def __init__(self) -> None:
        self.calls, self.known, self.other = CALLS, 0, 0

    def compare(self, rows: Tensor, ranks: Tensor, stored: Tensor) -> None:
        """Compare the labels of a batch with those in store.

        Args:
            rows: (B,) where its images are in store, -1 where they are not.
            ranks: (B,) by their labels.
            stored: (N,) of the images in store.
        """
        if self.calls == 0:
            return
        self.calls -= 1
        known = rows >= 0
        self.known += int(known.sum())
        self.other += int((ranks[known] != stored[rows[known]]).sum())
        if self.known >= LEAST and 2 * self.other > self.known:
            self.calls = 0
            warnings.warn(
                f"{self.other} of the first {self.known} images have other labels than their rows"
                " in the latent store: the loader's order may differ from the store's; give rows"
                " of the encoded training split, or those that rows_of() finds",
                stacklevel=2,
            )
