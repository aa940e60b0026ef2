"""Weights are downloaded when asked, by a package, into the weight folder, and never else."""

from pathlib import Path

import pytest
import torch

from dismix._compat import import_torchvision
from dismix.cli import main
from dismix.errors import DisMixError
from dismix.generator import fetching
from dismix.generator.start_run import train_generator
from dismix.generator.trunk import LITE0, LITE0_WEIGHTS, download, start_lite0
from dismix.generator.weights import FETCHED_BY, KNOWN_WEIGHTS, find_weights

import_torchvision()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without weights, and without a connection."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path / "weights"))
    return tmp_path / "weights"


@pytest.fixture
def timm_asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls that would download; what they give is a network from nothing."""
    import timm

    asked: list[str] = []
    build = timm.create_model

    def create_model(name: str, *, pretrained: bool = False, **options: object) -> object:
        if pretrained:
            asked.append(name)
            torch.manual_seed(3)
        return build(name, **options)

    monkeypatch.setattr("timm.create_model", create_model)
    return asked


def test_all_that_can_be_fetched_is_known() -> None:
    assert set(FETCHED_BY) <= set(KNOWN_WEIGHTS)
    with pytest.raises(DisMixError, match="no package can fetch 'vq-f8'; choose one of vgg16"):
        fetching.fetch("vq-f8")


def test_a_start_without_weights_says_how_to_get_them(bare: Path, timm_asked: list[str]) -> None:
    import timm

    network = timm.create_model(LITE0, num_classes=0)
    with pytest.raises(DisMixError, match=r"lite0_imagenet' not found.*`dismix doctor --fetch`"):
        start_lite0(network)
    assert not timm_asked
    assert fetching.fetch(LITE0_WEIGHTS) == bare / f"{LITE0_WEIGHTS}.safetensors"
    assert timm_asked == [LITE0]
    start_lite0(network)
    torch.manual_seed(3)
    expected = timm.create_model(LITE0).state_dict()
    assert all(torch.equal(tensor, expected[k]) for k, tensor in network.state_dict().items())
    assert LITE0_WEIGHTS not in fetching.missing()


@pytest.mark.usefixtures("bare")
def test_training_asks_for_them_before_it_claims_a_folder(tmp_path: Path) -> None:
    rows = "".join(
        f"{i}.png,{split},{i % 2}\n" for i, split in enumerate(["train"] * 4 + ["val"] * 4)
    )
    (tmp_path / "m.csv").write_text("image,split,grade\n" + rows)
    with pytest.raises(DisMixError, match="lite0_imagenet' not found"):
        train_generator(tmp_path / "m.csv", tmp_path / "run", settings={"perceptual": 0}, cpu=True)
    assert not (tmp_path / "run").exists()


def test_without_a_connection_nothing_is_written(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network\nand more")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(DisMixError, match=r"cannot be had \(no network\); put tf_efficientnet"):
        download()
    assert find_weights(LITE0_WEIGHTS) is None
    assert not bare.exists() or not any(bare.iterdir())


@pytest.mark.usefixtures("bare", "timm_asked")
def test_the_doctor_fetches_when_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetching, "FETCHED_BY", {LITE0_WEIGHTS: FETCHED_BY[LITE0_WEIGHTS]})
    monkeypatch.setattr("sys.argv", ["dismix", "doctor"])
    with pytest.raises(SystemExit):
        main()
    assert "doctor --fetch" in capsys.readouterr().out.replace("\n", " ")
    assert find_weights(LITE0_WEIGHTS) is None
    monkeypatch.setattr("sys.argv", ["dismix", "doctor", "--fetch", "--json"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert f"downloading {LITE0_WEIGHTS}" in said.err
    assert said.out.startswith("[")
    assert find_weights(LITE0_WEIGHTS) is not None
