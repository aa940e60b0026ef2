"""A generator and the data it is used on must read files in the same way."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.mixing.toy_run import make_run

from dismix.data.manifest import Manifest, read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.generator.reading import reading_of, run_reading
from dismix.graders.start_run import mixer_rows
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.mixing.latents import LatentStore


def other(folder: Path, **changes: Any) -> Manifest:
    """Return the data of a run, read in another way."""
    data = read_manifest(folder / "data")
    write_manifest(replace(data, meta=replace(data.meta, **changes)), folder / "data" / "other.csv")
    return read_manifest(folder / "data" / "other.csv")


def oblong(folder: Path, mode: str = "RGB") -> None:
    """Give the images of a run other proportions, and colour or more bits."""
    for path in read_manifest(folder / "data").image_paths:
        with Image.open(path) as image:
            wide = image.convert("RGB" if mode == "RGB" else "I;16").resize((40, 32))
        wide.save(path)


@pytest.mark.parametrize(
    ("mode", "changes", "said"),
    [
        ("RGB", {"fit": "pad"}, "read with fit pad, the generator's images were read with fit str"),
        ("RGB", {"equalize": True}, "equalize true, .* equalize false; .* --set equalize=false,"),
        ("I;16", {"bits": 12}, "bits 12, .* bits 16; import these data with --set bits=16"),
        ("RGB", {"fit": "crop", "equalize": True}, "fit crop, equalize true, .* --set fit=stretch"),
    ],
)
@pytest.mark.parametrize("noted", [True, False])
def test_files_read_in_another_way_are_refused(tmp_path, mode, changes, said, noted):
    run, cache = make_run(tmp_path, train=12), tmp_path / "cache"
    oblong(tmp_path, mode)
    store = encode_split(run, cache=cache)
    data = read_manifest(tmp_path / "data")
    if noted:
        described = json.loads((run / "run.json").read_text())
        reading = reading_of(data.meta)
        (run / "run.json").write_text(json.dumps({**described, "reading": reading}))
    else:
        # As stores and runs of before were: their manifest tells.
        index = json.loads((store.folder / "index.json").read_text())
        del index["reading"]
        (store.folder / "index.json").write_text(json.dumps(index))
    mix = DisMix.load(run)
    assert mixer_rows(mix, data, cache).tolist() == [*range(12)]
    changed = other(tmp_path, **changes)
    with pytest.raises(DisMixError, match=said):
        mixer_rows(mix, changed, cache)
    with pytest.raises(DisMixError, match=said):
        encode_split(run, changed.path, cache=cache)


def test_colour_beside_the_mixes_of_a_grey_generator_is_refused(tmp_path):
    run, cache = make_run(tmp_path, train=12), tmp_path / "cache"
    oblong(tmp_path)
    store = encode_split(run, cache=cache)
    changed = other(tmp_path, grey=False)
    with pytest.raises(DisMixError, match=r"read with grey false, .* read with grey true"):
        mixer_rows(DisMix.load(run), changed, cache)
    # Nothing but the generator itself is left to tell.
    for path in (run / "run.json", store.folder / "index.json"):
        kept = json.loads(path.read_text())
        for name in ("manifest", "reading", "data"):
            kept.pop(name, None)
        path.write_text(json.dumps(kept))
    assert run_reading(run) == LatentStore(store.folder).reading == {}
    with pytest.raises(DisMixError, match=r"read with grey false, .* read with grey true"):
        mixer_rows(DisMix.load(run), changed, cache)


def test_what_makes_no_difference_to_the_files_may_differ(tmp_path):
    run, cache = make_run(tmp_path, train=12), tmp_path / "cache"
    encode_split(run, cache=cache)
    mix = DisMix.load(run)
    # Square pictures of 8 bits and one channel.
    changed = other(tmp_path, fit="pad", bits=12, grey=False)
    assert mixer_rows(mix, changed, cache).tolist() == [*range(12)]
    changed = other(tmp_path, fit="pad", bits=12)
    assert len(encode_split(run, changed.path, cache=cache)) == 12
