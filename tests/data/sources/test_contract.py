"""Every registered source passes the same tests on a miniature of its layout."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dismix.data.manifest import make_manifest, read_manifest, write_manifest
from dismix.data.sources import SOURCES, guess_source, read_source
from dismix.errors import DisMixError

Build = Callable[[str], Path]
NAMES = ["chaoyang", "crowdgleason", "folders", "idrid", "koa", "table"]


def test_every_registered_source_is_under_contract() -> None:
    assert list(SOURCES) == NAMES
    assert all(SOURCES[name].name == name for name in NAMES)
    assert all(SOURCES[name].about and SOURCES[name].obtain for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
class TestSource:
    def test_reads_a_valid_manifest(self, name: str, build: Build) -> None:
        manifest = SOURCES[name].read(build(name))
        again = make_manifest(manifest.table, manifest.meta, manifest.root)
        assert len(again) == len(manifest) > 2
        assert manifest.meta.source == name
        assert manifest.num_ranks >= 3
        assert {"train", "test"} <= set(manifest.table["split"])

    def test_all_images_exist_and_paths_are_relative(self, name: str, build: Build) -> None:
        manifest = SOURCES[name].read(build(name))
        assert all(path.is_file() for path in manifest.image_paths)
        assert not any(Path(image).is_absolute() for image in manifest.table["image"])

    def test_is_deterministic_and_leaves_the_folder_alone(self, name: str, build: Build) -> None:
        path = build(name)
        folder = path if path.is_dir() else path.parent
        before = sorted(folder.rglob("*"))
        first, second = SOURCES[name].read(path), SOURCES[name].read(path)
        assert first.table.equals(second.table)
        assert sorted(folder.rglob("*")) == before

    def test_survives_writing_and_reading(self, name: str, build: Build, tmp_path: Path) -> None:
        manifest = SOURCES[name].read(build(name))
        write_manifest(manifest, tmp_path / "out" / "manifest.csv")
        read = read_manifest(tmp_path / "out")
        assert read.meta == manifest.meta
        np.testing.assert_array_equal(read.grades, manifest.grades)
        np.testing.assert_array_equal(read.votes, manifest.votes)
        assert [p.resolve() for p in read.image_paths] == [
            p.resolve() for p in manifest.image_paths
        ]

    def test_recognises_its_own_and_no_other(self, name: str, build: Build) -> None:
        for other in NAMES:
            assert SOURCES[name].recognises(build(other)) is (name == other), other

    def test_is_guessed(self, name: str, build: Build) -> None:
        path = build(name)
        guessed = guess_source(path)
        assert guessed is not None
        assert guessed.name == name
        assert read_source(path).meta.source == name

    @pytest.mark.parametrize("place", ["empty", "absent"])
    def test_refuses_an_empty_folder_in_one_line(
        self, name: str, place: str, tmp_path: Path
    ) -> None:
        folder = tmp_path / place
        if place == "empty":
            folder.mkdir()
        assert SOURCES[name].recognises(folder) is False
        with pytest.raises(DisMixError) as caught:
            SOURCES[name].read(folder)
        assert str(folder) in str(caught.value)
        assert caught.value.cure
        assert "\n" not in str(caught.value)

    def test_refuses_an_unknown_option(self, name: str, build: Build) -> None:
        with pytest.raises(DisMixError, match=f"source '{name}' has no option 'colour'"):
            read_source(build(name), name, colour="red")


@pytest.mark.parametrize("name", ["chaoyang", "crowdgleason", "idrid", "table"])
def test_import_refuses_missing_images_and_the_source_keeps_their_rows(
    name: str, build: Build
) -> None:
    path = build(name)
    rows = len(SOURCES[name].read(path))
    lost = SOURCES[name].read(path).image_paths[1]
    lost.unlink()
    assert len(SOURCES[name].read(path)) == rows
    with pytest.raises(DisMixError, match=f"no such image .*{lost.stem}") as caught:
        read_source(path)
    assert caught.value.row == (3 if name == "table" else None)
    assert "--skip-missing" in (caught.value.cure or "")
    assert len(read_source(path, allow_missing=True)) == rows
    lines: list[str] = []
    kept = read_source(path, on_missing=lines.append)
    assert len(kept) == rows - 1
    assert lost not in kept.image_paths
    assert len(lines) == 1
    assert lines[0].startswith("row 3: ") == (name == "table")
    assert lost.stem in lines[0]
    assert lines[0].endswith(": no such image")
    assert "left out 1 image whose file is missing: " in kept.meta.notes


def test_unknown_layout_and_unknown_source(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match="none of the known layouts"):
        read_source(tmp_path)
    with pytest.raises(DisMixError, match="did you mean 'idrid'"):
        read_source(tmp_path, "idird")
    with pytest.raises(DisMixError, match="no such file or folder"):
        read_source(tmp_path / "absent")
