import io
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from dismix.data.looks import Look, look_at_all
from dismix.data.store import default_cache_dir
from dismix.data.twins import Twins, detail, find_identical, find_near, find_twins


def scene(seed: int, side: int = 224) -> Image.Image:
    """Draw a knee-like picture: the same broad shape for all, fine structure of its own."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side] / side - 0.5
    broad = 150 * np.exp(-6 * (x**2 + 2 * y**2))
    fine = Image.fromarray(rng.integers(0, 256, (side, side), dtype=np.uint8))
    blurred = np.asarray(fine.filter(ImageFilter.GaussianBlur(5)), dtype=float) - 127
    return Image.fromarray(np.clip(40 + broad + 2 * blurred, 0, 255).astype(np.uint8))


def thumbnail(image: Image.Image) -> np.ndarray:
    return np.array(image.convert("L").resize((64, 64), Image.Resampling.BOX))


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data)


COPIES = {
    "jpeg": lambda im: recompressed(im, 40),
    "half": lambda im: im.resize((112, 112), Image.Resampling.LANCZOS),
    "larger": lambda im: im.resize((299, 299), Image.Resampling.BICUBIC),
    "stretched": lambda im: im.resize((320, 200), Image.Resampling.BICUBIC),
    "brighter": lambda im: im.point(lambda v: v * 1.1 + 10),
    "darker": lambda im: im.point(lambda v: v * 0.8),
    "gamma": lambda im: im.point(lambda v: 255 * (v / 255) ** 0.8),
}


@pytest.mark.parametrize("change", COPIES)
def test_copies_are_found_among_pictures_that_look_alike(change: str) -> None:
    images = [scene(seed) for seed in range(12)]
    thumbnails = np.stack([thumbnail(im) for im in [*images, COPIES[change](images[4])]])
    # Pixel by pixel the different pictures are alike: a plain correlation could not part them.
    flat = np.corrcoef(thumbnails[:12].reshape(12, -1).astype(float))
    assert flat[np.triu_indices(12, 1)].min() > 0.6
    found = find_near(thumbnails)
    assert [twins.members for twins in found] == [(4, 12)]
    assert found[0].kind == "near"
    assert 0.85 <= found[0].similarity <= 1.0


def test_agrees_with_a_slow_search() -> None:
    images = [scene(seed % 7) for seed in range(10)]
    thumbnails = np.stack([thumbnail(im.rotate(0.2 * i)) for i, im in enumerate(images)])
    details = detail(thumbnails).reshape(10, -1)
    slow = {
        pair
        for pair in combinations(range(10), 2)
        if np.corrcoef(details[pair[0]], details[pair[1]])[0, 1] >= 0.85
    }
    assert slow
    for block in (1, 3, 1024):
        assert {twins.members for twins in find_near(thumbnails, block=block)} == slow


def test_detail_ignores_brightness_and_contrast_and_meets_its_definition() -> None:
    picture = thumbnail(scene(0))
    values = detail(picture[None])[0]
    padded = np.pad(picture.astype(float), 4, mode="edge")
    window = padded[20 : 20 + 9, 30 : 30 + 9]
    centred = picture[20, 30] - window.mean()
    means = np.lib.stride_tricks.sliding_window_view(
        np.pad(picture.astype(float), 8, mode="edge"), (9, 9)
    ).mean(axis=(2, 3))[4:-4, 4:-4]
    difference = picture - means
    spread = np.sqrt((difference[16:25, 26:35] ** 2).mean())
    assert values[20, 30] == pytest.approx(np.clip(centred / (spread + 2), -2, 2), abs=1e-3)
    darker = detail((picture // 2 + 30)[None])[0]
    assert np.corrcoef(values.ravel(), darker.ravel())[0, 1] > 0.97


def test_mirrored_copies_are_an_option() -> None:
    images = [scene(seed) for seed in range(5)]
    mirrored = images[1].transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    thumbnails = np.stack([thumbnail(im) for im in [*images, mirrored]])
    assert find_near(thumbnails) == []
    found = find_near(thumbnails, mirrored=True)
    assert [(twins.members, twins.kind) for twins in found] == [((1, 5), "mirrored")]


def test_blank_pictures_are_no_twins() -> None:
    rng = np.random.default_rng(0)
    blank = 128 + rng.integers(-1, 2, (4, 1, 1)) + np.zeros((4, 64, 64))
    assert find_near(blank.astype(np.uint8)) == []
    assert find_near(np.empty((0, 64, 64), np.uint8)) == []


def test_several_copies_form_one_group() -> None:
    images = [scene(0), scene(1), recompressed(scene(0), 60), recompressed(scene(0), 80)]
    found = find_near(np.stack([thumbnail(im) for im in images]))
    assert [twins.members for twins in found] == [(0, 2, 3)]


def test_identical_files_and_one_of_them_stands_for_all(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    scene(0).save(paths[0])
    scene(1).save(paths[1])
    paths[2].write_bytes(paths[0].read_bytes())
    paths[3].write_bytes(paths[0].read_bytes())
    recompressed(scene(0), 70).save(paths[4])
    paths.append(tmp_path / "absent.png")
    found = find_twins(paths, look_at_all(paths))
    assert [(t.members, t.kind) for t in found] == [((0, 2, 3), "identical"), ((0, 4), "near")]
    assert find_twins(paths, look_at_all(paths), near=False) == found[:1]


def test_equal_length_is_not_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"same length 1")
    (tmp_path / "b").write_bytes(b"same length 2")
    assert find_identical([tmp_path / "a", tmp_path / "b"]) == []


def test_unchanged_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))
    default_cache_dir().mkdir(parents=True)
    read: list[str] = []
    monkeypatch.setattr(
        "dismix.data.digest.file_digest", lambda path: read.append(path.name) or path.read_text()
    )
    paths = [tmp_path / name for name in "abcd"]
    for path, text in zip(paths, ["one", "two", "one", "longer"], strict=True):
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
    for _ in range(3):
        assert [twins.members for twins in find_identical(paths)] == [(0, 2)]
    assert sorted(read) == ["a", "b", "c"]
    paths[1].write_text("one")
    os.utime(paths[1], (1e9, 2e9))
    assert [twins.members for twins in find_identical(paths)] == [(0, 1, 2)]


def test_empty_files_are_no_copies_of_each_other(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    assert find_identical(files) == []


def test_nothing_readable() -> None:
    assert find_twins([Path("x")], [Look(error="gone")], mirrored=True) == []


@pytest.mark.data
def test_idrid_has_six_identical_pairs_and_one_photo_at_two_exposures(shared_data: Path) -> None:
    paths = sorted((shared_data / "idrid").rglob("*.jpg"))
    found = find_twins(paths, look_at_all(paths), mirrored=True)

    def named(twins: Twins) -> tuple[str, ...]:
        return tuple(f"{paths[m].parent.name[0]}{paths[m].stem[-3:]}" for m in twins.members)

    assert {named(t) for t in found if t.kind == "identical"} == {
        ("a118", "b064"), ("a028", "a327"), ("a021", "a391"),
        ("a045", "a333"), ("a073", "a375"), ("a079", "a279"),
    }  # fmt: skip
    assert [named(t) for t in found if t.kind != "identical"] == [("a013", "a397")]


@pytest.mark.data
def test_knees_look_alike_but_are_no_twins(shared_data: Path) -> None:
    paths = sorted((shared_data / "koa" / "test").rglob("*.webp"))[:600]
    looks = look_at_all(paths)
    copy = looks[7].thumbnail
    assert copy is not None
    planted = Look((64, 64), 1, (copy * 0.9 + 8).astype(np.uint8))
    found = find_twins([*paths, Path("copy")], [*looks, planted], mirrored=True)
    assert [(t.members, t.kind) for t in found] == [((7, 600), "near")]


@pytest.mark.slow
@pytest.mark.data
def test_no_false_alarm_on_all_knees(shared_data: Path) -> None:
    paths = sorted((shared_data / "koa").rglob("*.webp"))
    assert find_twins(paths, look_at_all(paths), mirrored=True) == []
