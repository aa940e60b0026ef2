"""The image store: right bytes, right names, and safe against kills, races and bad files."""

import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dismix.data import building, digest, store
from dismix.data.decode import decode_image, resize
from dismix.data.store import ImageStore, StoreSettings, build_store, default_cache_dir
from dismix.errors import DisMixError

SMALL = StoreSettings(size=16)
fork = pytest.mark.skipif(sys.platform != "linux", reason="needs fork and /proc")


def make_files(folder: Path, count: int, seed: int = 0) -> list[Path]:
    folder.mkdir(exist_ok=True, parents=True)
    generator = np.random.default_rng(seed)
    files = []
    for i in range(count):
        pixels = generator.integers(0, 256, (20 + i % 3, 24, 3), dtype=np.uint8)
        path = folder / f"{i:03d}.{('png', 'jpg', 'webp', 'tif')[i % 4]}"
        Image.fromarray(pixels).save(path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        files.append(path)
    return files


def expected(files: list[Path], settings: StoreSettings = SMALL) -> torch.Tensor:
    rows = [
        resize(decode_image(path, channels=settings.channels), settings.size, settings.fit)
        for path in files
    ]
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2)


def count_loads(monkeypatch: pytest.MonkeyPatch, pause: float = 0) -> list[Path]:
    loaded: list[Path] = []
    real = store.load_image

    def load(path: Path, *rest: Any) -> Any:
        time.sleep(pause)
        result = real(path, *rest)
        loaded.append(path)
        return result

    monkeypatch.setattr(store, "load_image", load)
    return loaded


@pytest.mark.parametrize(
    "settings",
    [SMALL, StoreSettings(size=9, channels=1), StoreSettings(size=33, fit="pad"),
     StoreSettings(size=12, fit="crop", channels=1)],
)  # fmt: skip
def test_rows_are_the_decoded_files(settings: StoreSettings, tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 7)
    built = build_store(files, settings, tmp_path / "cache", workers=2)
    assert built.shape == (7, settings.channels, settings.size, settings.size)
    assert torch.equal(built[:], expected(files, settings))
    assert built.valid.tolist() == list(range(7))
    assert built.skipped == ()


def test_indexing(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 5)
    built, truth = build_store(files, SMALL, tmp_path / "cache"), expected(files)
    for rows in ([3, 1, 1], [-1], [], torch.tensor([4, 0]), np.array([2]), slice(1, 4)):
        assert torch.equal(built[rows], truth[rows]), rows
    assert torch.equal(built[2], truth[2])
    assert torch.equal(built[-1], truth[-1])
    assert built[[0]].is_contiguous()
    assert len(built) == 5
    for wrong in ([5], [-6], torch.tensor([0, 99])):
        with pytest.raises(IndexError, match="the store has 5 images"):
            built[wrong]
    with pytest.raises(TypeError, match="whole numbers"):
        built[torch.tensor([0.5])]
    fetched = built[[0, 1]]
    fetched.zero_()
    assert torch.equal(built[[0, 1]], truth[:2])


def test_a_second_use_decodes_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_files(tmp_path / "raw", 4)
    first = build_store(files, SMALL, tmp_path / "cache")

    def refuse(*_: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(store, "load_image", refuse)
    monkeypatch.setattr(digest, "file_digest", refuse)
    again = build_store(files, SMALL, tmp_path / "cache")
    assert again.folder == first.folder
    assert torch.equal(again[:], first[:])


def test_the_key_is_content_order_and_settings(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 4)
    cache = tmp_path / "cache"
    folder = build_store(files, SMALL, cache).folder
    moved = [path.rename(tmp_path / f"other name {i}") for i, path in enumerate(files)]
    assert build_store(moved, SMALL, cache).folder == folder
    others = [
        build_store(moved[::-1], SMALL, cache).folder,
        build_store(moved[:3], SMALL, cache).folder,
        build_store(moved, StoreSettings(size=17), cache).folder,
        build_store(moved, StoreSettings(size=16, channels=1), cache).folder,
        build_store(moved, StoreSettings(size=16, fit="pad"), cache).folder,
        build_store(moved, StoreSettings(size=16, bits=12), cache).folder,
    ]
    Image.new("RGB", (9, 9), (1, 2, 3)).save(moved[0], "PNG")
    others.append(build_store(moved, SMALL, cache).folder)
    assert len({folder, *others}) == 8


def test_a_changed_file_gives_its_new_pixels(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 2)
    build_store(files, SMALL, tmp_path / "cache")
    Image.new("RGB", (30, 30), (9, 8, 7)).save(files[1], "PNG")
    assert build_store(files, SMALL, tmp_path / "cache")[1].unique().tolist() == [7, 8, 9]


def test_a_change_that_keeps_size_and_time_is_noticed(tmp_path: Path) -> None:
    first, second = tmp_path / "a.bmp", tmp_path / "b.bmp"
    for path, value in ((first, 10), (second, 20)):
        Image.new("RGB", (8, 8), (value,) * 3).save(path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    cache = tmp_path / "cache"
    build_store([first], SMALL, cache)
    first.write_bytes(second.read_bytes())
    os.utime(first, (1_700_000_000, 1_700_000_000))
    with pytest.raises(DisMixError, match="changed while the image store was built; run again"):
        build_store([first], StoreSettings(size=8), cache)
    assert (build_store([first], StoreSettings(size=8), cache)[0] == 20).all()


def test_fresh_files_are_not_remembered(tmp_path: Path) -> None:
    path, now = tmp_path / "a.bmp", time.time_ns() + 10**9
    for value in (10, 20, 30):
        Image.new("RGB", (8, 8), (value,) * 3).save(path)
        os.utime(path, ns=(now, now))  # several changes within one tick of a coarse clock
        assert (build_store([path], SMALL, tmp_path / "cache")[0] == value).all()


def test_a_broken_digest_memory_is_ignored(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 2)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / digest.MEMORY_NAME).write_text("this is not a database, but long enough to be read")
    assert torch.equal(build_store(files, SMALL, cache)[:], expected(files))


def test_a_bad_file_stops_with_its_name_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_files(tmp_path / "raw", 6)
    files[4].write_bytes(files[4].read_bytes()[:50])
    with pytest.raises(DisMixError, match=f"^{files[4]}: .*--write-readable") as caught:
        build_store(files, SMALL, tmp_path / "cache", workers=2)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("index.json"))
    loaded = count_loads(monkeypatch)
    built = build_store(files, SMALL, tmp_path / "cache", on_error="skip")
    assert loaded == [files[5]]
    assert built.valid.tolist() == [0, 1, 2, 3, 5]
    assert torch.equal(built[built.valid], expected([files[i] for i in (0, 1, 2, 3, 5)]))


def test_skipped_files_are_listed_and_cannot_be_fetched(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 4)
    files[1].write_bytes(b"")
    files[3].unlink()
    built = build_store(files, SMALL, tmp_path / "cache", on_error="skip")
    assert [(item.row, item.path) for item in built.skipped] == [(1, files[1]), (3, files[3])]
    # They are left out already: no advice to leave them out.
    assert built.skipped[0].reason == "file is empty; copy it again"
    assert built.skipped[1].reason == "file not found; correct the path"
    with pytest.raises(DisMixError, match=f"{files[3]}: was skipped and has no image"):
        built[[0, 3]]
    assert (built.to_device("cpu")[[1, 3]] == 0).all()
    with pytest.raises(
        DisMixError, match=f"^{files[1]}: file is empty|^{files[3]}: file not found"
    ):
        build_store(files, SMALL, tmp_path / "cache")


def test_skipped_rows_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_files(tmp_path / "raw", 3)
    real = store.load_image

    def fail_one(path: Path, *rest: Any) -> Any:
        if path == files[1]:
            raise DisMixError("no decoder", file=path, cure="install it")
        return real(path, *rest)

    monkeypatch.setattr(store, "load_image", fail_one)
    assert len(build_store(files, SMALL, tmp_path / "cache", on_error="skip").skipped) == 1
    monkeypatch.setattr(store, "load_image", real)
    built = build_store(files, SMALL, tmp_path / "cache", on_error="stop")
    assert built.skipped == ()
    assert torch.equal(built[:], expected(files))


@pytest.mark.parametrize("same", ["nothing", "size", "size and time"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_file_that_was_replaced_is_no_longer_skipped(
    same: str, count: int, tmp_path: Path
) -> None:
    files, cache, then = (
        [tmp_path / f"{i}.bmp" for i in range(5)],
        tmp_path / "cache",
        1_700_000_000,
    )
    for i, path in enumerate(files):
        Image.new("RGB", (16, 16), (10 * i,) * 3).save(path)
        os.utime(path, (then, then))
    whole = {path: path.read_bytes() for path in files[:count]}
    for path, content in whole.items():
        path.write_bytes(b"x" * (9 if same == "nothing" else len(content)))
        os.utime(path, (then, then))
    bad = build_store(files, SMALL, cache, on_error="skip")
    assert [item.row for item in bad.skipped] == list(range(count))
    for path, content in whole.items():
        path.write_bytes(content)
        # As `cp -p` and `rsync -t` leave it.
        later = then if same == "size and time" else then + 60
        os.utime(path, (later, later))
    built = build_store(files, SMALL, cache, on_error="skip")
    assert built.skipped == ()
    assert torch.equal(built[:], expected(files))


def test_a_file_that_came_after_its_digest_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, cache = make_files(tmp_path / "raw", 2), tmp_path / "cache"
    away, real = files[1].rename(tmp_path / "away"), store.content_digests

    def asked(*rest: Any, **options: Any) -> list[str]:
        found = real(*rest, **options)
        if away.exists():
            away.rename(files[1])
        return found

    monkeypatch.setattr(store, "content_digests", asked)
    built = build_store(files, SMALL, cache, on_error="skip")
    # Under the name of "could not be read" any other file would have found its pixels.
    assert all(built.digests)
    assert torch.equal(built[:], expected(files))


def test_a_file_that_keeps_changing_stops_skipping_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, cache = make_files(tmp_path / "raw", 2), tmp_path / "cache"
    wrong = ["0" * 64, digest.file_digest(files[1])]
    monkeypatch.setattr(store, "content_digests", lambda *_, **__: wrong)
    with pytest.raises(DisMixError, match="changed while the image store was built; run again"):
        build_store(files, SMALL, cache, on_error="skip")
    assert not list(cache.rglob("index.json"))


def test_when_no_file_is_good_skipping_stops_too(tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("x")
    with pytest.raises(DisMixError, match="no image could be read; is not an image"):
        build_store([bad], SMALL, tmp_path / "cache", on_error="skip")
    with pytest.raises(DisMixError, match="no images to store"):
        build_store([], SMALL, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["truncate", "index", "no images", "marks", "format"])
def test_a_damaged_store_is_noticed_and_rebuilt(damage: str, tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 4)
    folder = build_store(files, SMALL, tmp_path / "cache").folder
    if damage == "truncate":
        os.truncate(folder / "images.u8", 1000)
    elif damage == "index":
        (folder / "index.json").write_text('{"format": 1, "shape"')
    elif damage == "no images":
        (folder / "images.u8").unlink()
    elif damage == "marks":
        (folder / building.DONE).unlink()
        (folder / "index.json").unlink()
    else:
        index = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps({**index, "format": 0}))
    with pytest.raises(DisMixError, match="not a complete image store of these files; build it"):
        ImageStore(folder, files)
    assert torch.equal(build_store(files, SMALL, tmp_path / "cache")[:], expected(files))


def slow_build(files: list[Path], cache: Path, report: Any = None) -> None:
    """Build in a forked process, one image at a time, committing each."""
    patch = pytest.MonkeyPatch()
    patch.setattr(building, "_COMMIT_SECONDS", 0.0)
    loaded = count_loads(patch, pause=0.02)
    build_store(files, SMALL, cache, workers=1)
    if report is not None:
        report.put(len(loaded))


@fork
@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_killed_build_goes_on_where_it_was(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, cache = make_files(tmp_path / "raw", 12), tmp_path / "cache"
    process = multiprocessing.get_context("fork").Process(target=slow_build, args=(files, cache))
    process.start()

    def marked() -> int:
        return sum(sum(path.read_bytes()) for path in cache.glob(f"*/{building.DONE}"))

    limit = time.monotonic() + 20
    while marked() < after and time.monotonic() < limit:
        time.sleep(0.002)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = marked()
    assert after <= kept < 12
    loaded = count_loads(monkeypatch)
    built = build_store(files, SMALL, cache)
    assert len(loaded) == 12 - kept
    assert torch.equal(built[:], expected(files))


@fork
def test_two_processes_share_the_work_of_one(tmp_path: Path) -> None:
    files, cache = make_files(tmp_path / "raw", 8), tmp_path / "cache"
    context = multiprocessing.get_context("fork")
    report = context.Queue()
    processes = [context.Process(target=slow_build, args=(files, cache, report)) for _ in range(3)]
    for process in processes:
        process.start()
    loads = [report.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(loads) == [0, 0, 8]
    assert torch.equal(build_store(files, SMALL, cache)[:], expected(files))


def test_two_threads_are_safe_too(tmp_path: Path) -> None:
    files, results = make_files(tmp_path / "raw", 8), []

    def work() -> None:
        results.append(build_store(files, SMALL, tmp_path / "cache")[:])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(result, expected(files)) for result in results)


def test_a_lock_left_behind_blocks_nobody(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 2)
    folder = build_store(files, SMALL, tmp_path / "cache").folder
    (folder / "index.json").unlink()
    assert (folder / "lock").exists()
    assert len(build_store(files, SMALL, tmp_path / "cache")) == 2


def test_interruption_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_files(tmp_path / "raw", 6)

    def interrupt(_stage: str, done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(files, SMALL, tmp_path / "cache", progress=interrupt)
    loaded = count_loads(monkeypatch)
    seen: list[tuple[int, int]] = []
    build_store(files, SMALL, tmp_path / "cache", progress=lambda _, *done: seen.append(done))
    assert len(loaded) == 3
    assert seen == [(4, 6), (5, 6), (6, 6)]


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_files(tmp_path / "raw", 2)
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(building.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DisMixError, match=r"needs 1\.5 kB but 0\.0 kB are free; free some space"):
        build_store(files, SMALL, tmp_path / "cache")
    monkeypatch.undo()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(building.os, "fsync", full)
    with pytest.raises(DisMixError, match=r"cannot write the image store \(No space left"):
        build_store(files, SMALL, tmp_path / "cache")


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 1)
    with pytest.raises(DisMixError, match=r"image cache cannot be written .*; set DISMIX_CACHE"):
        build_store(files, SMALL, files[0] / "below a file")


def test_default_cache_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path / "images"
    files = make_files(tmp_path / "raw", 1)
    assert build_store(files, SMALL).folder.parent == tmp_path / "images"
    monkeypatch.delenv("DISMIX_CACHE")
    assert default_cache_dir() == Path.home() / ".cache" / "dismix" / "images"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"size": 0}, "size is 0"), ({"channels": 2}, r"channels is 2; give 1 \(grey\) or 3"),
     ({"fit": "zoom"}, "fit is 'zoom'; give stretch or pad or crop"), ({"bits": 17}, "bits is 17")],
)  # fmt: skip
def test_settings_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DisMixError, match=words):
        StoreSettings(**options)


def test_pickles_carry_no_pixels(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 3)
    built = build_store(files, StoreSettings(size=64), tmp_path / "cache")
    data = pickle.dumps(built)
    assert len(data) < 2000
    assert torch.equal(pickle.loads(data)[:], built[:])


def test_to_device_holds_all_images(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 5)
    built = build_store(files, SMALL, tmp_path / "cache")
    assert torch.equal(built.to_device("cpu", chunk=2), expected(files))
    assert not built.fits_on("cpu")


def test_equal_files_have_equal_digests(tmp_path: Path) -> None:
    files = make_files(tmp_path / "raw", 3)
    files.append(tmp_path / "copy.png")
    files[3].write_bytes(files[0].read_bytes())
    digests = build_store(files, SMALL, tmp_path / "cache").digests
    assert digests[3] == digests[0]
    assert len(set(digests)) == 3


@fork
def test_memory_does_not_grow_with_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_RELEASE_BYTES", 2**20)
    path = tmp_path / "one.png"
    Image.new("RGB", (16, 16), (3, 4, 5)).save(path)

    def resident() -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    build_store([path] * 8, StoreSettings(size=256), tmp_path / "cache")[:]
    before, peak = resident(), 0.0
    built = build_store([path] * 500, StoreSettings(size=256), tmp_path / "cache")
    for start in range(0, 500, 20):
        built[torch.arange(start, start + 20)]
        peak = max(peak, resident())
    assert built.nbytes / 2**20 > 90
    assert peak - before < 30


@pytest.mark.data
def test_real_images(shared_data: Path, tmp_path: Path) -> None:
    knees = sorted((shared_data / "koa" / "test").rglob("*.webp"))[:20]
    grey = build_store(knees, StoreSettings(size=224, channels=1), tmp_path)
    assert grey.shape == (20, 1, 224, 224)
    assert grey[:].float().std() > 20
    fundus = sorted((shared_data / "idrid").rglob("*.jpg"))[:20]
    colour = build_store(fundus, StoreSettings(), tmp_path)
    assert torch.equal(colour[:5], expected(fundus[:5], StoreSettings()))


def test_what_does_not_fit_its_scale_is_told_once(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    rng = np.random.default_rng(0)
    files = []
    for i, top in enumerate([4095] * 8 + [65535] * 3):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(rng.integers(0, top, (20, 20)).astype(np.uint16)).save(files[-1])
    twelve, sixteen = (StoreSettings(size=16, channels=1, bits=bits) for bits in (12, 16))
    build_store(files[:8], twelve, tmp_path / "cache")
    assert len(recwarn) == 0
    for settings, said in (
        (twelve, "3 of 11 16-bit images hold values above 4095, which bits=12 cuts off"),
        (sixteen, "8 of 11 16-bit images use at most 12 bits, the others more"),
    ):
        build_store(files, settings, tmp_path / "cache")
        assert said in str(recwarn.pop(UserWarning).message)
        assert len(recwarn) == 0
