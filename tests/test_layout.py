"""Networks are laid out for the device they run on, and their files for nobody."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dismix.generator import processes
from dismix.graders.evaluation import grade_batch
from dismix.graders.registry import create_grader
from dismix.graders.saving import MODEL, load_grader, save_grader
from dismix.layout import laid_out, lay_out


def is_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def test_other_devices_get_the_usual_layout_back() -> None:
    layer = nn.Conv2d(3, 8, 3)
    lay_out(layer, torch.device("cpu"))
    assert is_last(layer.weight)
    lay_out(layer, torch.device("mps"))
    assert layer.weight.is_contiguous()
    images = torch.rand(2, 3, 8, 8)
    assert is_last(laid_out(images))
    assert torch.equal(laid_out(images), images)


def test_a_grader_is_laid_out_when_it_grades_and_its_file_is_not(tmp_path) -> None:
    grader = create_grader("ce", backbone="tiny", num_ranks=4).eval()
    weight = grader.state_dict()["backbone.trunk.3.weight"]
    images = torch.rand(3, 1, 32, 32) * 2 - 1
    plain = grader.predict(images).probabilities
    assert weight.is_contiguous()
    graded = grade_batch(grader, images).probabilities
    assert is_last(grader.state_dict()["backbone.trunk.3.weight"])
    assert torch.allclose(graded, plain, atol=1e-6)
    grader.about = {"ranks": list("abcd"), "size": 32}
    save_grader(grader, tmp_path)
    assert load_file(tmp_path / MODEL)["backbone.trunk.3.weight"].is_contiguous()
    assert torch.equal(grade_batch(load_grader(tmp_path), images).probabilities, graded)


def test_what_processes_share_does_not_hang_on_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    first = torch.arange(24.0).view(1, 2, 3, 4)

    def broadcast(tensor: torch.Tensor, source: int) -> None:
        # What arrives is memory: it means the same only if both lie in the same way.
        assert tensor.is_contiguous()
        assert source == 0
        tensor.copy_(first)

    monkeypatch.setattr(processes, "in_company", lambda: True)
    monkeypatch.setattr("torch.distributed.broadcast", broadcast)
    own = laid_out(torch.zeros(1, 2, 3, 4))
    processes.share(own)
    assert torch.equal(own, first)
    assert is_last(own)
