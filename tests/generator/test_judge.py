"""The judge: it learns, it can be kept, and kept means the same readings."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from dismix.errors import DisMixError
from dismix.generator.images import SplitImages
from dismix.generator.judge import Judge, ready_judge, train_judge
from dismix.labels import OrdinalTarget


def bright_split(count: int = 60) -> SplitImages:
    """Pictures with a bright square that grows with the rank."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    pixels = torch.randint(40, (count, 1, 32, 32), generator=rng).to(torch.uint8)
    for i, label in enumerate(labels.tolist()):
        pixels[i, :, 8 : 12 + 6 * label, 8 : 12 + 6 * label] += 150
    return SplitImages(pixels, OrdinalTarget.from_labels(labels.tolist(), 3), False)


def trained(seed: int = 0, epochs: int = 12) -> Judge:
    return train_judge(
        bright_split(), torch.device("cpu"), epochs=epochs, kind="conv", seed=seed, batch_size=15
    )


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("dismix.generator.judge.save_file", full)
    with pytest.raises(DisMixError, match=r"judge\.safetensors: cannot write here .*; free some"):
        Judge(3, "conv").save(tmp_path / "judge.safetensors")


def test_it_learns_and_two_of_a_seed_agree() -> None:
    split = bright_split()
    images = split.images(torch.arange(len(split)), "cpu")
    # Nothing drawn elsewhere may change it.
    torch.rand(3)
    first = trained(epochs=1).expected_rank(images)
    torch.rand(5)
    assert torch.equal(trained(epochs=1).expected_rank(images), first)
    assert not torch.equal(trained(epochs=1, seed=1).expected_rank(images), first)
    read = trained().expected_rank(images)
    by_rank = [float(read[split.target.hard == rank].mean()) for rank in range(3)]
    assert by_rank == sorted(by_rank)
    assert by_rank[2] - by_rank[0] > 1


def test_a_kept_judge_reads_the_same(tmp_path: Path) -> None:
    judge, images = trained(epochs=1), torch.rand(4, 1, 32, 32)
    judge.save(tmp_path / "judge.safetensors")
    loaded = Judge.load(tmp_path / "judge.safetensors")
    assert torch.equal(loaded.expected_rank(images), judge.expected_rank(images))
    assert loaded.kind == "conv"
    labels = loaded.notes.pop("labels")
    assert loaded.notes == {"epochs": 1, "seed": 0, "images": 60}
    assert len(labels) == 16


def test_a_judge_of_other_data_is_told(tmp_path: Path) -> None:
    file, split = tmp_path / "judge.safetensors", bright_split()
    trained(epochs=1).save(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ready_judge(file, split, 32)
    shuffled = replace(split, target=split.target[torch.arange(len(split)).flip(0)])
    with pytest.warns(UserWarning, match=r"judge.safetensors: this judge was trained on other"):
        ready_judge(file, shuffled, 32)


def test_another_file_is_no_judge(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(DisMixError, match="is not a judge"):
        Judge.load(tmp_path / "other.safetensors")


def test_levels_and_expected_rank_say_the_same() -> None:
    judge, images = Judge(5, "conv").eval(), torch.rand(6, 3, 32, 32) * 2 - 1
    chances = judge.probabilities(images).double().numpy()
    levels = judge.rank_logits(images).sigmoid().numpy()
    for row in range(6):
        above = [chances[row, k + 1 :].sum() for k in range(4)]
        np.testing.assert_allclose(levels[row], above, atol=1e-5)
    expected = chances @ np.arange(5)
    np.testing.assert_allclose(judge.expected_rank(images).numpy(), expected, atol=1e-5)


def test_vgg16_starts_from_imagenet(shared_weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISMIX_WEIGHTS", str(shared_weights))
    judge = Judge(4)
    assert judge.features[0].weight.abs().mean() > 0.1
    assert judge(torch.zeros(1, 1, 32, 32)).shape == (1, 4)
