import dataclasses
import json
from pathlib import Path

import pytest

from dismix.errors import DisMixError
from dismix.generator.config import GeneratorConfig, read_config, write_config


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    config = GeneratorConfig(num_ranks=4, arch="light", ordinal_dim=8, temperature=0.5)
    write_config(tmp_path / "generator.json", config)
    assert read_config(tmp_path / "generator.json") == config


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GeneratorConfig(num_ranks=5).num_ranks = 3  # type: ignore[misc]


def test_derived_values() -> None:
    assert GeneratorConfig(num_ranks=5).ordinal_width == 4
    assert GeneratorConfig(num_ranks=5, ordinal_dim=7).ordinal_width == 7
    assert GeneratorConfig(num_ranks=5).attention_temperature == 0.1
    assert GeneratorConfig(num_ranks=5, cosine=False).attention_temperature == 1.0
    assert GeneratorConfig(num_ranks=5, temperature=0.3).attention_temperature == 0.3
    assert GeneratorConfig(num_ranks=5, codebooks="single").single_latent


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nonordinal_code": 5}, "unknown field 'nonordinal_code'; did you mean"),
        ({"attention": "hrad"}, "setting 'attention': 'hrad' is not a choice; did you mean 'hard'"),
        ({"codebooks": "triple"}, "setting 'codebooks'"),
        ({"cosine": "yes"}, "setting 'cosine'"),
        ({"num_ranks": 1}, "setting 'num_ranks'.*at least 2"),
        ({"num_ranks": 5.5}, "setting 'num_ranks'"),
        ({"code_dim": None}, "setting 'code_dim'"),
        ({"image_size": 0}, "setting 'image_size'"),
        ({"p_uncond": 1.5}, "setting 'p_uncond'"),
        ({"p_uncond": "often"}, "setting 'p_uncond'"),
        ({"nonordinal_dropout": -0.1}, "setting 'nonordinal_dropout'"),
        ({"nonordinal_noise": -1}, "setting 'nonordinal_noise'"),
        ({"nonordinal_noise": float("nan")}, "setting 'nonordinal_noise'"),
        ({"temperature": 0}, "setting 'temperature'"),
        ({"temperature": float("inf")}, "setting 'temperature'"),
        ({"ordinal_dim": 8, "projections": "shared"}, "setting 'ordinal_dim'"),
        ({"ordinal_dim": 8, "codebooks": "single"}, "setting 'ordinal_dim'"),
    ],
)
def test_mistakes_name_the_field_and_the_cure(values: dict[str, object], message: str) -> None:
    with pytest.raises(DisMixError, match=message):
        GeneratorConfig.from_dict({"num_ranks": 5, **values})


def test_number_of_ranks_is_required() -> None:
    with pytest.raises(DisMixError, match="num_ranks"):
        GeneratorConfig.from_dict({})


@pytest.mark.parametrize(
    "text", [None, "{", "[]", "{}", json.dumps({"format": 1, "num_ranks": 5, "archs": "tiny"})]
)
def test_a_bad_file_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "generator.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DisMixError, match=r"generator\.json: .*; ") as caught:
        read_config(path)
    assert caught.value.cure
