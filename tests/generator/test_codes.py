import numpy as np
import pytest
import torch

from dismix.generator.codes import Codes


def make(batch: int = 4, indices: bool = True) -> Codes:
    ordinal = torch.arange(batch * 4.0).reshape(batch, 2, 2, 1)
    rows = torch.arange(batch * 2).reshape(batch, 2, 1)
    return Codes(ordinal, -ordinal, rows if indices else None, rows + 1 if indices else None)


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (2, [2]),
        (-1, [3]),
        (np.int64(2), [2]),
        (torch.tensor(2), [2]),
        (slice(1, 3), [1, 2]),
        ([3, 0], [3, 0]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (torch.tensor([1, 1]), [1, 1]),
    ],
)
def test_indexing_keeps_the_batch_dimension_and_all_parts(index: object, rows: list[int]) -> None:
    codes = make()
    picked = codes[index]  # type: ignore[index]
    assert len(picked) == len(rows)
    for name in ("ordinal", "nonordinal", "ordinal_indices", "nonordinal_indices"):
        assert torch.equal(getattr(picked, name), getattr(codes, name)[rows])


def test_iteration_ends_and_out_of_range_fails() -> None:
    assert len(list(make())) == 4
    with pytest.raises(IndexError):
        make()[4]


def test_to_changes_the_type_of_vectors_only() -> None:
    codes = make().to("cpu", torch.float16)
    assert codes.ordinal.dtype == codes.nonordinal.dtype == torch.float16
    assert codes.ordinal_indices.dtype == torch.long
    assert make(indices=False).to("cpu").ordinal_indices is None


def test_detach_and_cat() -> None:
    ordinal = torch.ones(1, 2, 2, 1, requires_grad=True)
    assert not Codes(ordinal * 2, ordinal * 3).detach().ordinal.requires_grad
    joined = Codes.cat([make(2), make(3)])
    assert torch.equal(joined[2:].nonordinal_indices, make(3).nonordinal_indices)
    mixed = Codes.cat([make(2), make(3, indices=False)])
    assert len(mixed) == 5
    assert mixed.ordinal_indices is None
