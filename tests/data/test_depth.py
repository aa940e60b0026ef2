"""How much of their 16 bits files use, and when two depths are mixed."""

import io

import numpy as np
import pytest
from PIL import Image

from dismix.data.decode import decode_image
from dismix.data.depth import STRAY, Depth, depth_note, depth_of, lower_depth


def with_bits(*counts: tuple[int, int]) -> list[Depth]:
    """Give some images of so many bits each: (bits, images)."""
    return [Depth(2**bits - 1) for bits, images in counts for _ in range(images)]


@pytest.mark.parametrize("seed", range(6))
def test_depth_is_what_a_sorted_list_of_pixels_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    side = (8, 50, 150)[seed % 3]
    values = rng.integers(0, 2 ** rng.integers(9, 17), (side, side)).astype(np.uint16)
    values[rng.random(values.shape) < 2e-4] = 65535
    ordered = sorted(values.ravel().tolist())
    stray = max(1, int(STRAY * len(ordered)))
    over = sum(value > 4095 for value in ordered)
    expected = Depth(ordered[-1 - stray], over / len(ordered) if over > stray else 0.0)
    assert depth_of(values, bits=12) == expected


def test_even_pictures_have_no_depth() -> None:
    assert depth_of(np.full((9, 9), 5000, np.uint16), bits=12) is None


def seen(image: Image.Image, kind: str, *, bits: int = 16) -> list[Depth]:
    data = io.BytesIO()
    image.save(data, kind)
    found: list[Depth] = []
    decode_image(data.getvalue(), bits=bits, see_depth=found.append)
    return found


def test_only_whole_numbers_of_16_bits_have_a_depth() -> None:
    values = np.arange(600).reshape(20, 30)
    for kind in ("PNG", "TIFF"):
        assert seen(Image.fromarray((values * 100).astype(np.uint16)), kind) == [Depth(59800)]
    # Another order of the bytes.
    assert seen(Image.fromarray((values * 100).astype(">u2")), "TIFF") == [Depth(59800)]
    (cut,) = seen(Image.fromarray((values * 10).astype(np.uint16)), "PNG", bits=12)
    assert cut == Depth(5980, over=190 / 600)
    # 8 bits have a scale of their own, whatever is said of 16-bit files.
    eight = (values % 256).astype(np.uint8)
    assert seen(Image.fromarray(eight), "PNG", bits=4) == []
    assert seen(Image.fromarray(eight), "JPEG") == []
    assert seen(Image.fromarray((values / 600).astype(np.float32)), "TIFF") == []


@pytest.mark.parametrize(
    ("counts", "lower"),
    [
        (((12, 18), (16, 6)), 12),
        (((11, 3), (12, 15), (15, 2), (16, 4)), 12),
        # Of 100 images, one of another device leaves the rest nearly black.
        (((12, 99), (16, 1)), 12),
        (((8, 5), (12, 5)), 8),
        # 12 bits beside 14, of which a handful says nothing.
        (((12, 10), (14, 10)), 12),
        (((12, 3), (14, 3)), None),
        # A few dim pictures of a device with more bits, out of many.
        (((12, 100), (14, 2), (16, 100)), 12),
        # Images of one device.
        (((12, 24),), None),
        (((11, 8), (12, 16)), None),
        (((15, 8), (16, 16)), None),
        # Two pictures, or one of 20, may be dark for once.
        (((12, 2), (16, 6)), None),
        (((12, 5), (16, 95)), None),
        # Photographs of any brightness.
        (((10, 2), (11, 3), (12, 4), (13, 4), (14, 5), (15, 6), (16, 8)), None),
        # Dark ones without a common end below a bright one.
        (((9, 3), (10, 4), (12, 2), (16, 4)), None),
        ((), None),
    ],
)
def test_two_depths_are_told_from_dark_photographs(
    counts: tuple[tuple[int, int], ...], lower: int | None
) -> None:
    assert lower_depth(with_bits(*counts)) == lower


def test_photographs_of_any_darkness_are_hardly_ever_called_mixed() -> None:
    rng = np.random.default_rng(0)
    called = total = 0
    for middle in (9, 11, 13, 15):
        for spread in (0.5, 1, 2):
            for images in (6, 24, 100):
                for _ in range(20):
                    tops = np.minimum(65535, 2 ** rng.normal(middle, spread, images))
                    called += lower_depth([Depth(int(top)) for top in tops]) is not None
                    total += 1
    assert called <= 0.02 * total


def test_a_note_counts_and_is_one_line() -> None:
    assert depth_note(with_bits((16, 20)), 16) == ""
    assert depth_note([], 12) == ""
    mixed = depth_note(with_bits((12, 18), (16, 6)), 16)
    assert mixed.startswith("18 of 24 16-bit images use at most 12 bits, the others more; ")
    over = depth_note([*with_bits((12, 18)), *[Depth(65535, over=0.5)] * 6], 12)
    assert over.startswith("6 of 24 16-bit images hold values above 4095, which bits=12 cuts off")
    assert "\n" not in over + mixed
