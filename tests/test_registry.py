"""Registries: listable, refuse duplicates, offer near names."""

import pytest

from dismix.errors import DisMixError
from dismix.registry import Registry, near_names


@pytest.fixture
def colours() -> Registry[int]:
    registry: Registry[int] = Registry("colour")
    registry.register("red")(1)
    registry.register("green")(2)
    return registry


def test_entries_are_listed_in_order(colours):
    assert list(colours) == ["green", "red"]
    assert "red" in colours
    assert len(colours) == 2


def test_unknown_name_offers_near_ones_or_all(colours):
    with pytest.raises(DisMixError, match=r"unknown colour 'gren'; did you mean 'green'\?"):
        colours["gren"]
    with pytest.raises(DisMixError, match="choose one of green, red"):
        colours["zzzzzz"]


def test_duplicate_is_an_error(colours):
    with pytest.raises(ValueError, match="twice"):
        colours.register("red")(3)


def test_a_thousand_names_are_no_hint():
    names = [f"network{i}" for i in range(1000)]
    assert near_names("network7", names).startswith("did you mean 'network7'")
    assert near_names("zzz", names) == "none of the 1000 known names is close"
    assert near_names("zzz", names[:3]) == "choose one of network0, network1, network2"


def test_capitals_are_no_difference():
    assert near_names("filename", ["FILE_NAME", "KL"]) == "did you mean 'FILE_NAME'?"
    assert near_names("kl grad", ["Image", "KL grade"]) == "did you mean 'KL grade'?"
