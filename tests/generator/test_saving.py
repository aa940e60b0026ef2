from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dismix.errors import DisMixError
from dismix.generator.saving import fill, load_tensors, save_tensors

TENSORS = {
    "a.weight": torch.randn(3, 4),
    "scalar": torch.tensor(2.5),
    "half": torch.randn(5).bfloat16(),
    "whole": torch.arange(4),
    "empty": torch.zeros(0, 3),
}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", TENSORS)
    loaded = load_tensors(tmp_path / "x.safetensors")
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[k], v) and loaded[k].dtype == v.dtype for k, v in TENSORS.items())
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_shared_and_transposed_memory_is_saved(tmp_path: Path) -> None:
    base = torch.randn(3, 4)
    save_tensors(tmp_path / "x.safetensors", {"a": base, "b": base, "c": base.T})
    assert torch.equal(load_tensors(tmp_path / "x.safetensors")["c"], base.T)


def test_dtype_touches_floating_point_only(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", TENSORS, torch.float16)
    loaded = load_tensors(tmp_path / "x.safetensors")
    assert loaded["a.weight"].dtype == torch.float16
    assert loaded["whole"].dtype == torch.long


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "text", "absent"])
def test_damage_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS)
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-9] ^= 1
    changed = {"cut": content[:-7], "empty": b"", "text": b"hello world, no tensors here"}
    path.write_bytes(changed.get(damage, content))
    if damage == "absent":
        path.unlink()
    with pytest.raises(DisMixError, match=r"x\.safetensors: .*; ") as caught:
        load_tensors(path)
    assert caught.value.cure


def test_a_file_of_another_tool_is_read(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    assert torch.equal(load_tensors(tmp_path / "x.safetensors")["a"], torch.ones(2))


@pytest.mark.parametrize(
    "tensors",
    [
        {"weight": torch.zeros(2, 3)},
        {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)},
        {"weight": torch.zeros(2, 3), "bias": torch.zeros(2), "more": torch.zeros(1)},
    ],
)
def test_fill_wants_every_tensor_and_no_other(tensors: dict[str, torch.Tensor]) -> None:
    with pytest.raises(DisMixError, match=r"f\.bin: 1 tensors .*; train again"):
        fill(torch.nn.Linear(3, 2), tensors, "f.bin", cure="train again")
