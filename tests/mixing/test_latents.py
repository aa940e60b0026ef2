"""The latent store: exact codes in the smallest form, keyed by content, safe against kills."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.mixing.toy_run import make_run, toy_generator

from dismix.data.digest import file_digest
from dismix.data.manifest import read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.generator.model import Generator
from dismix.generator.saving import save_tensors
from dismix.labels import OrdinalTarget
from dismix.mixing import encoding, filling
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split, generator_digest, run_manifest
from dismix.mixing.engine import MixEngine
from dismix.mixing.latents import LatentStore, find_store

ROOT = Path(__file__).parents[2]


def test_a_split_is_encoded_with_its_own_labels(toy_run: Path) -> None:
    model = Generator.load(toy_run)
    store = find_store(toy_run, generator_digest(model))
    manifest = read_manifest(toy_run.parent / "data")
    train = load_split(
        manifest, "train", 32, device=torch.device("cpu"), cache=toy_run.parent / "cache"
    )
    assert len(store) == len(train) == 30
    rows = torch.tensor([29, 3, 3, 11])
    with torch.no_grad():
        codes = model.encode(train.images(rows, "cpu"), train.target.levels[rows])
    found = store.sources(rows, model)
    assert torch.equal(found.codes.ordinal, codes.ordinal)
    assert torch.equal(found.codes.nonordinal, codes.nonordinal)
    assert torch.equal(store.target.probs, train.target.probs)
    assert len({tuple(row) for row in store.records.array.tolist()}) > 20, "images must differ"


def test_a_finished_store_is_found_again(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("encoded twice")

    monkeypatch.setattr(encoding, "make_records", never)
    store = encode_split(toy_run, cache=toy_run.parent / "cache")
    twin = pickle.loads(pickle.dumps(store))
    assert torch.equal(twin.target.probs, store.target.probs)
    assert np.array_equal(twin.records.array, store.records.array)


def test_the_key_follows_generator_images_and_labels(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    names = {encode_split(run, cache=cache).folder.name}
    manifest = read_manifest(tmp_path / "data")
    table = manifest.table.copy()
    table.loc[0, "annotator_1"] = (int(table.loc[0, "annotator_1"]) + 1) % 5
    write_manifest(manifest.with_table(table), tmp_path / "data" / "other.csv")
    names.add(encode_split(run, tmp_path / "data" / "other.csv", cache=cache).folder.name)
    with pytest.raises(DisMixError, match="several data sets"):
        find_store(run, generator_digest(Generator.load(run)))
    toy_generator(5).save(run)
    with pytest.raises(DisMixError, match="another generator only; run `dismix mix encode"):
        find_store(run, generator_digest(Generator.load(run)))
    names.add(encode_split(run, cache=cache).folder.name)
    assert len(names) == 3


def test_missing_and_damaged_stores_are_named(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    with pytest.raises(DisMixError, match="has no latent store; run `dismix mix encode"):
        find_store(run, "x")
    store = encode_split(run, cache=cache)
    path = store.folder / "codes.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.raises(DisMixError, match=rf"codes.bin: has {len(whole) - 7} bytes instead of"):
        LatentStore(store.folder)
    assert encode_split(run, cache=cache).folder == store.folder
    assert path.read_bytes() == whole
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    encode_split(run, cache=cache)
    assert path.read_bytes() == whole
    (store.folder / "index.json").write_text("{")
    with pytest.raises(DisMixError, match="is damaged"):
        LatentStore(store.folder)
    with pytest.raises(DisMixError, match="row 10 is not in the latent store of 10 images"):
        encode_split(run, cache=cache).sources(torch.tensor([10]), Generator.load(run))


def test_a_kill_before_the_last_rename_does_not_keep_damaged_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    path = encode_split(run, cache=cache).folder / "codes.bin"
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(filling.os, "replace", killed)
        patch.setattr(filling.atomic, "write_json", _written_without_renaming)
        encode_split(run, cache=cache)
    encode_split(run, cache=cache)
    assert path.read_bytes() == whole
    # Neither does a count that a kill after the index left behind.
    (path.parent / "part.json").write_text(
        json.dumps({"done": 10, "record_bytes": len(whole) // 10})
    )
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    encode_split(run, cache=cache)
    assert path.read_bytes() == whole


def _written_without_renaming(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def test_votes_of_other_annotators_change_the_consensus(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=20), tmp_path / "cache"
    store = encode_split(run, cache=cache)
    manifest = read_manifest(tmp_path / "data")
    table = manifest.table.copy()
    votes = [c for c in table if c.startswith("annotator")]
    # The same shares in every image, by other people: annotators are as good as their grades.
    table[votes] = np.sort(manifest.votes, axis=1)
    write_manifest(manifest.with_table(table), tmp_path / "data" / "sorted.csv")
    again = encode_split(run, tmp_path / "data" / "sorted.csv", cache=cache)
    assert again.folder == store.folder
    rows = read_manifest(tmp_path / "data" / "sorted.csv").split("train")
    wanted = encoding.consensus_ranks(rows)
    assert again.consensus.tolist() == wanted.tolist()
    assert again.consensus.tolist() != store.consensus.tolist()
    assert encode_split(run, cache=cache).consensus.tolist() == store.consensus.tolist()


def test_labels_that_were_corrected_since_are_told(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=20), tmp_path / "cache"
    store = encode_split(run, cache=cache)
    assert DisMix.load(run).engine.store.folder == store.folder
    manifest = read_manifest(tmp_path / "data")
    table = manifest.table.copy()
    votes = [c for c in table if c.startswith("annotator")]
    table[votes] = 4 - manifest.votes
    write_manifest(manifest.with_table(table), tmp_path / "data" / "manifest.csv")
    with pytest.raises(DisMixError, match=r"holds codes of other images or labels than .* has now"):
        DisMix.load(run)
    # By name they can still be had; encoding again cures it.
    assert len(DisMix.load(run, store=store.folder).engine.store) == 20
    again = encode_split(run, cache=cache)
    assert DisMix.load(run).engine.store.folder == again.folder
    # Without its data a run can be used all the same.
    (tmp_path / "data" / "manifest.csv").unlink()
    assert DisMix.load(run, store=again.folder).engine.store.origin == again.origin


def test_a_consensus_that_cannot_be_written_costs_no_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    store = encode_split(run, cache=cache)
    manifest = read_manifest(tmp_path / "data")
    table = manifest.table.copy()
    table[[c for c in table if c.startswith("annotator")]] = np.sort(manifest.votes, axis=1)
    write_manifest(manifest.with_table(table), tmp_path / "data" / "sorted.csv")

    def full(path: Path, *_: object) -> None:
        raise DisMixError("cannot write here (No space left on device)", file=path)

    monkeypatch.setattr(encoding, "save_tensors", full)
    with pytest.raises(DisMixError, match=r"targets.safetensors: cannot write here"):
        encode_split(run, tmp_path / "data" / "sorted.csv", cache=cache)
    kept = LatentStore(store.folder)
    assert np.array_equal(kept.records.array, store.records.array)
    assert encode_split(run, cache=cache).sha256 == store.sha256


def test_a_picture_that_is_there_twice_is_found_by_its_label(tmp_path: Path) -> None:
    store = encode_split(make_run(tmp_path, train=10), cache=tmp_path / "cache")
    assert store.images is not None
    store.images[4] = store.images[1]
    digests = [bytes(row).hex() for row in store.images.numpy()]
    assert store.rows_of(digests).tolist() == [0, 4, 2, 3, 4, 5, 6, 7, 8, 9]
    assert store.holds(digests, store.target)
    other = store.target.probs.clone()
    other[4] = other[4].roll(1)
    store.target = OrdinalTarget.from_probs(other)
    assert store.rows_of(digests, store.target).tolist() == [*range(10)]
    assert store.holds(digests, store.target)
    assert not store.holds(digests[:-1], store.target[:9])
    assert not store.holds([*digests[1:], digests[0]], store.target)
    changed = OrdinalTarget.from_probs(other.roll(1, 1))
    assert store.rows_of(digests, changed).tolist() == [-1] * 10
    assert not store.holds(digests, changed)
    more = OrdinalTarget.from_labels([0] * 10, num_ranks=7)
    assert store.rows_of(digests, more).tolist() == [-1] * 10


def test_rows_are_found_by_digests_alone(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=4), tmp_path / "cache"
    store = encode_split(run, cache=cache)
    paths = read_manifest(run_manifest(run)).split("train").image_paths
    digests = [file_digest(path) for path in reversed(paths)]
    # "" stands for a file that could not be read.
    assert store.rows_of([*digests, ""]).tolist() == [3, 2, 1, 0, -1]
    for wrong in ("x", "img00.png", digests[0][:-2], paths[0]):
        with pytest.raises(DisMixError, match=r"' is no digest of an image file; give .*file_dig"):
            store.rows_of([wrong])


def test_targets_that_do_not_fit_are_named(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    store = encode_split(run, cache=cache)
    path = store.folder / "targets.safetensors"
    whole = path.read_bytes()
    for content, words in ((whole[:-9], "not a whole safetensors file"), (b"", "not a whole")):
        path.write_bytes(content)
        with pytest.raises(DisMixError, match=rf"targets.safetensors: {words}.*mix encode RUN"):
            LatentStore(store.folder)
    save_tensors(path, {"probs": store.target.probs[:4], "consensus": store.consensus[:4]})
    with pytest.raises(DisMixError, match="is not for 10 images"):
        LatentStore(store.folder)
    save_tensors(path, {"probs": store.target.probs})
    with pytest.raises(DisMixError, match="has no 'consensus'"):
        LatentStore(store.folder)
    assert len(encode_split(run, cache=cache)) == 10
    # Stores from before digests were kept say nothing about images, and are brought up to date.
    save_tensors(path, {"probs": store.target.probs, "consensus": store.consensus})
    old = LatentStore(store.folder)
    assert old.rows_of(["00" * 32]).tolist() == [-1]
    assert encode_split(run, cache=cache).images is not None


def test_of_several_stores_the_one_of_the_runs_own_data_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))
    run = make_run(tmp_path, train=10)
    first = encode_split(run).folder
    path = tmp_path / "data" / "manifest.csv"
    manifest = read_manifest(path)
    table = manifest.table.copy()
    table.loc[0, "annotator_1"] = (int(table.loc[0, "annotator_1"]) + 1) % 5
    write_manifest(manifest.with_table(table), path)
    second = encode_split(run).folder
    assert second != first
    assert MixEngine.load(run).store.folder == second
    write_manifest(manifest, path)
    assert MixEngine.load(run).store.folder == first
    path.unlink()
    with pytest.raises(DisMixError, match=r"several data sets.*name one of these folders"):
        MixEngine.load(run)


def test_a_damaged_store_beside_a_whole_one_is_no_obstacle(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    store = encode_split(run, cache=cache)
    other = run / "latents" / "other"
    other.mkdir()
    (other / "index.json").write_text("{")
    assert find_store(run, store.generator).folder == store.folder
    with pytest.raises(DisMixError, match="is damaged"):
        find_store(run, "x")


def test_other_ranks_and_a_single_rank_are_refused(tmp_path: Path) -> None:
    run, cache = make_run(tmp_path, train=10), tmp_path / "cache"
    manifest = read_manifest(tmp_path / "data")
    table = manifest.table.drop(columns=[c for c in manifest.table if c.startswith("annotator")])
    table["grade"] = 2
    write_manifest(manifest.with_table(table), tmp_path / "data" / "same.csv")
    with pytest.raises(DisMixError, match=r"same.csv: all images have rank 2 in the training"):
        encode_split(run, tmp_path / "data" / "same.csv", cache=cache)
    toy = toy_generator()
    config = toy.config.__class__(**{**toy.config.to_dict(), "num_ranks": 4})
    Generator.seeded(config, 0).save(run)
    with pytest.raises(DisMixError, match="has 5 ranks, the generator 4"):
        encode_split(run, cache=cache)
    (run / "run.json").unlink()
    with pytest.raises(DisMixError, match="does not name the run's manifest"):
        encode_split(run, cache=cache)


SLOW = """
import sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from dismix.mixing import encoding, filling
filling._COMMIT_SECONDS = 0.0
original = encoding.make_records
def slow(*arguments):
    time.sleep(0.05)
    return original(*arguments)
encoding.make_records = slow
encoding.encode_split(sys.argv[1], cache=Path(sys.argv[2]), batch_size=2)
"""


def test_a_killed_encoding_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = make_run(tmp_path, train=20), tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([sys.executable, "-c", SLOW, run, cache], env=environment)

    def counted() -> int:
        found = list(run.glob("latents/*/part.json"))
        return json.loads(found[0].read_text())["done"] if found else 0

    limit = time.monotonic() + 120
    while counted() < 6 and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = counted()
    assert 6 <= kept < 20
    with pytest.raises(DisMixError, match="has no latent store"):
        find_store(run, "x")
    encoded: list[int] = []
    original = encoding.make_records

    def counting(model: Generator, images: torch.Tensor, levels: torch.Tensor) -> object:
        encoded.append(len(images))
        return original(model, images, levels)

    monkeypatch.setattr(encoding, "make_records", counting)
    store = encode_split(run, cache=cache, batch_size=2)
    assert sum(encoded) == 20 - kept
    monkeypatch.setattr(encoding, "make_records", original)
    fresh = make_run(tmp_path / "fresh", train=20)
    assert np.array_equal(
        encode_split(fresh, cache=cache, batch_size=2).records.array, store.records.array
    )


def test_colour_images_for_a_grey_generator_are_named(toy_run, tmp_path):
    grey = read_manifest(encoding.run_manifest(toy_run))
    colour = replace(grey, meta=replace(grey.meta, grey=not grey.meta.grey))
    write_manifest(colour, tmp_path / "other.csv")
    with pytest.raises(DisMixError, match=r"images, the generator was trained on .*--set grey="):
        encode_split(toy_run, tmp_path / "other.csv")


def test_ranks_in_another_order_are_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    from dismix.graders.start_run import make_mixer, mixer_rows

    run, cache = make_run(tmp_path, train=20), tmp_path / "cache"
    data = read_manifest(tmp_path / "data")
    described = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**described, "ranks": [*data.meta.ranks]}))
    encode_split(run, cache=cache)
    turned = replace(data.meta, ranks=data.meta.ranks[::-1])
    write_manifest(replace(data, meta=turned), tmp_path / "data" / "turned.csv")
    with pytest.raises(DisMixError, match="in the generator's order"):
        encode_split(run, tmp_path / "data" / "turned.csv", cache=cache)
    mixer = make_mixer("dismix", 5, run, {})
    assert mixer_rows(mixer, data, cache) is not None
    with pytest.raises(DisMixError, match="in the generator's order"):
        mixer_rows(mixer, read_manifest(tmp_path / "data" / "turned.csv"), cache)
    named = replace(data.meta, ranks=tuple("abcde"))
    write_manifest(replace(data, meta=named), tmp_path / "data" / "named.csv")
    with pytest.warns(UserWarning, match="taken for the same ones"):
        encode_split(run, tmp_path / "data" / "named.csv", cache=cache)
