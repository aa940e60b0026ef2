"""What `dismix data check` says of bits in use that are not those declared."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from dismix.data.check import check_path
from dismix.data.findings import Finding, Report

BITS = {"beyond-bits", "mixed-depth", "dark-images", "blank-image"}


def report_on(folder: Path, tops: Sequence[int], grades: Sequence[int], bits: int = 16) -> Report:
    """Check noise that reaches these values; 255 is of 8 bits, others are of 16."""
    rng = np.random.default_rng(0)
    rows = []
    for i, (top, grade) in enumerate(zip(tops, grades, strict=True)):
        kind = np.uint8 if top == 255 else np.uint16
        pixels = rng.integers(0, top, (48, 48), endpoint=True).astype(kind)
        Image.fromarray(pixels).save(folder / f"{i}.png")
        rows.append(f"{i}.png,{grade}")
    (folder / "manifest.csv").write_text("image,grade\n" + "\n".join(rows) + "\n")
    meta = {"ranks": ["none", "mild", "severe"], "bits": bits, "grey": True}
    (folder / "manifest.meta.json").write_text(json.dumps(meta))
    return check_path(folder, near=False)


def about_bits(report: Report) -> dict[str, Finding]:
    found = {f.code: f for f in report.findings if f.code in BITS}
    assert len(found) == sum(f.code in BITS for f in report.findings)
    return found


CYCLED = [i % 3 for i in range(24)]
TWO_DEVICES = [4095] * 18 + [65535] * 6


def test_two_depths_are_named_where_the_lower_one_is_dark(tmp_path: Path) -> None:
    found = about_bits(report_on(tmp_path, TWO_DEVICES, CYCLED))
    assert set(found) == {"mixed-depth"}
    mixed = found["mixed-depth"]
    assert mixed.level == "warning"
    assert mixed.message == (
        "18 of 24 16-bit images use at most 12 bits, the others more; the first of each are row 2:"
        " 0.png and row 20: 18.png"
    )
    # The fewer.
    assert mixed.rows == tuple(range(20, 26))
    assert mixed.files[0] == "18.png"
    assert "export all images by one scale" in mixed.cure
    assert "leak" in mixed.cure


def test_two_depths_are_named_where_the_higher_one_is_cut_off(tmp_path: Path) -> None:
    found = about_bits(report_on(tmp_path, TWO_DEVICES, CYCLED, bits=12))
    assert set(found) == {"beyond-bits", "mixed-depth"}
    over = found["beyond-bits"]
    assert over.message.startswith(
        "6 of 24 16-bit images hold values above 4095, which bits=12 cuts off (9"
    )
    assert over.message.endswith("the first is row 20: 18.png")
    assert over.rows == tuple(range(20, 26))
    assert "with --set bits=16 the others would be dark" in over.cure


def test_too_few_bits_for_all(tmp_path: Path) -> None:
    tops = [16383] * 6
    found = about_bits(report_on(tmp_path, tops, CYCLED[:6], bits=12))
    assert set(found) == {"beyond-bits"}
    assert found["beyond-bits"].cure == "they want `dismix data import ... --set bits=14`"
    assert not about_bits(report_on(tmp_path, tops, CYCLED[:6], bits=14))
    # Read by 16 bits they are dark, and 12 bits would be wrong for them.
    dark = about_bits(report_on(tmp_path, tops, CYCLED[:6]))
    assert set(dark) == {"dark-images"}
    assert "no image is brighter than 25 % of white" in dark["dark-images"].message
    assert "--set bits=14" in dark["dark-images"].cure


def test_a_depth_that_goes_with_the_grade_is_told(tmp_path: Path) -> None:
    # Six of the eight severe ones are from another device.
    grades = [0] * 8 + [1] * 8 + [2] * 8
    mixed = about_bits(report_on(tmp_path, TWO_DEVICES, grades))["mixed-depth"]
    assert mixed.message.endswith(
        "; depth goes with the grade (of the lower one are 8 of 8 in rank 0 (none), 8 of 8 in rank"
        " 1 (mild), 2 of 8 in rank 2 (severe))"
    )
    one = about_bits(report_on(tmp_path, TWO_DEVICES, [1] * 24))["mixed-depth"]
    assert "goes with the grade (" not in one.message


def test_8_bit_images_have_a_scale_of_their_own(tmp_path: Path) -> None:
    assert not about_bits(report_on(tmp_path, [255] * 12 + [65535] * 12, CYCLED))
    assert not about_bits(report_on(tmp_path, [255] * 12 + [4095] * 12, CYCLED, bits=12))
    # Bright ones of 8 bits do not hide that those of 16 are dark.
    dark = about_bits(report_on(tmp_path, [255] * 6 + [4095] * 18, CYCLED))
    assert set(dark) == {"dark-images"}
    assert "no 16-bit image is brighter than 6 % of white" in dark["dark-images"].message
    assert "--set bits=12" in dark["dark-images"].cure


def test_dark_photographs_and_stray_pixels_are_no_alarm(tmp_path: Path) -> None:
    assert not about_bits(report_on(tmp_path, [65535 >> i % 6 for i in range(24)], CYCLED))
    assert not about_bits(report_on(tmp_path, [3000, 2500] + [60000] * 22, CYCLED))
    report_on(tmp_path, [4095] * 24, CYCLED, bits=12)
    pixels = np.array(Image.open(tmp_path / "3.png"))
    pixels[5, 5] = 65535
    Image.fromarray(pixels).save(tmp_path / "3.png")
    assert not about_bits(check_path(tmp_path, near=False))
    pixels[5, 6] = 65535
    Image.fromarray(pixels).save(tmp_path / "3.png")
    over = about_bits(check_path(tmp_path, near=False))["beyond-bits"]
    assert over.message == (
        "1 of 24 16-bit images holds values above 4095, which bits=12 cuts off (0.1 % of the pixels"
        " at worst); the first is row 5: 3.png"
    )
