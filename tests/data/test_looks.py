from pathlib import Path

import numpy as np
from PIL import Image

from dismix.data.looks import look_at, look_at_all


def noise(seed: int, size: int, channels: int = 1) -> np.ndarray:
    shape = (size, size, 3) if channels == 3 else (size, size)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_size_channels_and_thumbnail(tmp_path: Path) -> None:
    colour, grey, webp = tmp_path / "c.jpg", tmp_path / "g.png", tmp_path / "g.webp"
    Image.fromarray(noise(0, 700, 3)).resize((900, 700)).save(colour)
    Image.fromarray(noise(1, 128)).save(grey)
    Image.fromarray(noise(1, 128)).save(webp, quality=80)
    looks = look_at_all([colour, grey, webp])
    # The JPEG is decoded smaller, but its own size is reported.
    assert [look.size for look in looks] == [(900, 700), (128, 128), (128, 128)]
    # WebP has no grey mode: three equal channels are grey.
    assert [look.channels for look in looks] == [3, 1, 1]
    blocks = noise(1, 128).reshape(64, 2, 64, 2).mean(axis=(1, 3))
    assert looks[1].thumbnail is not None
    assert np.abs(looks[1].thumbnail - blocks).max() <= 1


def test_unreadable_files_are_explained_not_raised(tmp_path: Path) -> None:
    text, cut, empty = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"
    text.write_text("no image")
    Image.fromarray(noise(0, 64)).save(cut)
    cut.write_bytes(cut.read_bytes()[:800])
    empty.write_bytes(b"")
    looks = look_at_all([text, cut, empty, tmp_path / "d.png", tmp_path])
    assert all(look.error and "\n" not in look.error for look in looks)
    assert all(look.thumbnail is None and look.size is None for look in looks)


def test_deep_pictures_keep_their_structure(tmp_path: Path) -> None:
    values = noise(3, 128).astype(np.uint16) * 4
    Image.fromarray(values).save(tmp_path / "deep.png")
    thumbnail = look_at(tmp_path / "deep.png").thumbnail
    assert thumbnail is not None
    blocks = noise(3, 128).reshape(64, 2, 64, 2).mean(axis=(1, 3))
    assert np.corrcoef(thumbnail.ravel(), blocks.ravel())[0, 1] > 0.9


def test_progress_counts_every_file(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    look_at_all([tmp_path / "x"] * 3, progress=lambda *call: calls.append(call))
    assert calls == [("reading images", i, 3) for i in (1, 2, 3)]


def test_turned_photographs_have_their_upright_size(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(np.zeros((20, 60, 3), np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    assert look_at(tmp_path / "a.jpg").size == (20, 60)
