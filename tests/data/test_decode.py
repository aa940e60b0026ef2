"""Every kind of file to the same 8-bit array, and one line for every bad one."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dismix.data.decode import decode_image, resize, with_channels
from dismix.errors import DisMixError


def gradient(height: int = 24, width: int = 40) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 6, y * 10, (x + y) * 3], -1).clip(0, 255).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


RGB = gradient()
GREY = RGB[:, :, 2]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("BMP", {}),
     ("WEBP", {"lossless": True})],
)  # fmt: skip
def test_lossless_kinds_are_exact(kind: str, options: dict[str, Any]) -> None:
    assert np.array_equal(decode_image(encoded(Image.fromarray(RGB), kind, **options)), RGB)
    grey = decode_image(encoded(Image.fromarray(GREY), kind, **options), channels=1)
    assert grey.shape == (24, 40, 1)
    assert np.array_equal(grey[:, :, 0], GREY)


def test_jpeg_is_close_and_grey_stays_grey() -> None:
    colour = decode_image(encoded(Image.fromarray(RGB), "JPEG", quality=95))
    assert np.abs(colour.astype(int) - RGB).mean() < 4
    assert decode_image(encoded(Image.fromarray(GREY), "JPEG")).shape == (24, 40, 1)


def test_channels_are_luminance_or_repetition() -> None:
    data = encoded(Image.fromarray(RGB), "PNG")
    grey = decode_image(data, channels=1)[:, :, 0]
    expected = RGB.astype(float) @ [0.299, 0.587, 0.114]
    assert np.abs(grey - expected).max() <= 1
    repeated = decode_image(encoded(Image.fromarray(GREY), "PNG"), channels=3)
    assert all(np.array_equal(repeated[:, :, c], GREY) for c in range(3))


def test_the_result_is_contiguous_and_owned() -> None:
    pixels = with_channels(GREY.T, None)
    assert pixels.shape == (40, 24, 1)
    assert pixels.flags.c_contiguous


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_maps_the_full_range_whatever_the_image_holds(kind: str) -> None:
    values = np.array([[0, 128, 129, 257], [4095, 32768, 65407, 65535]], np.uint16)
    expected = np.array([[0, 0, 1, 1], [16, 128, 255, 255]])
    data = encoded(Image.fromarray(values), kind)
    assert np.array_equal(decode_image(data)[:, :, 0], expected)
    assert np.array_equal(decode_image(data)[:, :, 0], np.rint(values / 257))


def test_16_bit_with_12_in_use() -> None:
    values = np.array([[0, 2048, 4095, 60000]], np.uint16)
    data = encoded(Image.fromarray(values), "PNG")
    assert decode_image(data, bits=12)[0, :, 0].tolist() == [0, 128, 255, 255]
    assert decode_image(data, bits=12, channels=3).shape == (1, 4, 3)


def deep_png(colour: int, *values: int) -> bytes:
    """A PNG of one pixel, 16 bits a channel, of a colour type that Pillow cannot write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 1, 1, 16, colour, 0, 0, 0)
    row = b"\0" + struct.pack(f">{len(values)}H", *values)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", head), (b"IDAT", zlib.compress(row)), (b"IEND", b""))
    )


@pytest.mark.parametrize(
    ("data", "pixel"),
    [
        (deep_png(2, 4095, 2048, 0), [15, 8, 0]),
        (deep_png(4, 4095, 65535), [15, 15, 15]),
        (deep_png(6, 4095, 2048, 0, 65535), [15, 8, 0]),
    ],
    ids=["colour", "grey with alpha", "colour with alpha"],
)
def test_16_bit_colour_has_8_bits_and_no_other_scale(data: bytes, pixel: list[int]) -> None:
    assert decode_image(data, channels=3)[0, 0].tolist() == pixel
    with pytest.raises(DisMixError, match=r"16-bit colour.*bits=12 cannot scale it; export all"):
        decode_image(data, bits=12)
    # Colour of 8 bits has nothing to be scaled.
    plain = encoded(Image.new("RGB", (1, 1), (9, 8, 7)), "PNG")
    assert decode_image(plain, bits=12)[0, 0].tolist() == [9, 8, 7]


def test_16_bit_tiff_of_either_byte_order_and_polarity() -> None:
    values = np.array([[0, 257 * 7], [257 * 99, 65535]], np.uint16)
    entries = [
        (256, 3, 1, 2), (257, 3, 1, 2), (258, 3, 1, 16), (259, 3, 1, 1), (262, 3, 1, 1),
        (273, 4, 1, 200), (277, 3, 1, 1), (278, 3, 1, 2), (279, 4, 1, 8),
    ]  # fmt: skip

    def tiff(end: str, photometric: int) -> bytes:
        body = struct.pack(f"{end}2sHIH", {"<": b"II", ">": b"MM"}[end], 42, 8, len(entries))
        for tag, kind, count, value in entries:
            value = photometric if tag == 262 else value
            packed = (
                struct.pack(f"{end}HH", value, 0) if kind == 3 else struct.pack(f"{end}I", value)
            )
            body += struct.pack(f"{end}HHI", tag, kind, count) + packed
        return (body + b"\0" * 4).ljust(200, b"\0") + values.astype(f"{end}u2").tobytes()

    for end in "<>":
        assert decode_image(tiff(end, 1))[:, :, 0].tolist() == [[0, 7], [99, 255]]
    white_is_zero = decode_image(tiff("<", 0))[:, :, 0]
    assert white_is_zero.tolist() == [[255, 248], [156, 0]]


def test_float_pixels_map_nought_to_one_in_every_image() -> None:
    values = np.array([[0.0, 0.25, 0.5, np.nan, np.inf]], np.float32)
    data = encoded(Image.fromarray(values), "TIFF")
    assert decode_image(data)[0, :, 0].tolist() == [0, 64, 128, 0, 0]
    rounded = np.array([[-1e-5, 1.0001]], np.float32)
    assert decode_image(encoded(Image.fromarray(rounded), "TIFF"))[0, :, 0].tolist() == [0, 255]
    narrow = np.array([[0, 257, 65535]], np.int32)
    assert decode_image(encoded(Image.fromarray(narrow), "TIFF"))[0, :, 0].tolist() == [0, 1, 255]
    empty = np.full((2, 2), np.nan, np.float32)
    assert decode_image(encoded(Image.fromarray(empty), "TIFF")).max() == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([[-2.0, 0.5]], np.float32), "floating-point pixels run from -2 to 0.5, not wit"),
        (np.array([[0.0, 255.0]], np.float32), "floating-point pixels run from 0 to 255, not wit"),
        (np.array([[-1024, 3071]], np.int32), "pixels run from -1024 to 3071, not within 0 to 655"),
    ],
)
def test_pixels_without_a_scale_that_images_share_are_refused(
    values: np.ndarray, words: str
) -> None:
    with pytest.raises(DisMixError, match=words) as caught:
        decode_image(encoded(Image.fromarray(values), "TIFF"))
    assert "export all images by one scale" in str(caught.value)


def test_transparency_is_laid_on_black() -> None:
    rgba = Image.new("RGBA", (3, 1), (200, 100, 50, 255))
    rgba.putpixel((1, 0), (200, 100, 50, 0))
    rgba.putpixel((2, 0), (200, 100, 50, 128))
    pixels = decode_image(encoded(rgba, "PNG"))
    assert pixels.shape == (1, 3, 3)
    assert pixels[0].tolist() == [[200, 100, 50], [0, 0, 0], [100, 50, 25]]
    la = Image.new("LA", (2, 1), (200, 255))
    la.putpixel((1, 0), (200, 0))
    assert decode_image(encoded(la, "PNG"))[0].tolist() == [[200], [0]]


def test_palettes_with_and_without_transparency() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    assert decode_image(encoded(image, "PNG"))[0].tolist() == [[10, 20, 30], [200, 100, 50]]
    clear = decode_image(encoded(image, "PNG", transparency=1))
    assert clear[0].tolist() == [[10, 20, 30], [0, 0, 0]]


def test_keyed_transparency_of_plain_images() -> None:
    grey = Image.new("L", (2, 1), 9)
    grey.putpixel((1, 0), 200)
    assert decode_image(encoded(grey, "PNG", transparency=200))[0].tolist() == [[9], [0]]
    colour = Image.new("RGB", (2, 1), (9, 9, 9))
    colour.putpixel((1, 0), (1, 2, 3))
    data = encoded(colour, "PNG", transparency=(1, 2, 3))
    assert decode_image(data)[0].tolist() == [[9, 9, 9], [0, 0, 0]]


def test_one_bit_and_cmyk() -> None:
    bits = Image.new("1", (2, 1))
    bits.putpixel((1, 0), 1)
    assert decode_image(encoded(bits, "PNG"))[0].tolist() == [[0], [255]]
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = decode_image(encoded(cmyk, "TIFF"))
    assert red[0, 0].tolist() == [255, 0, 0]
    jpeg = decode_image(encoded(cmyk, "JPEG", quality=100))
    assert np.abs(jpeg[4, 4].astype(int) - [255, 0, 0]).max() < 8


def test_lab_is_refused_with_a_cure() -> None:
    with pytest.raises(DisMixError, match="colour mode LAB is not supported; export it as RGB"):
        decode_image(encoded(Image.new("LAB", (4, 4)), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(orientation: int, kind: str) -> None:
    turn = {
        1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1], 5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, -1), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        8: np.rot90,
    }  # fmt: skip
    exif = Image.Exif()
    exif[274] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(Image.fromarray(RGB), kind, exif=exif, **options)
    assert np.array_equal(decode_image(data), turn[orientation](RGB))


@pytest.mark.parametrize("near_size", [None, 20])
def test_exif_orientation_of_jpegs(near_size: int | None) -> None:
    exif = Image.Exif()
    exif[274] = 6
    pixels = gradient(8, 8).repeat(30, 0).repeat(40, 1)
    data = encoded(Image.fromarray(pixels), "JPEG", quality=98, subsampling=0, exif=exif)
    upright = decode_image(data, near_size=near_size)
    expected = np.rot90(pixels, -1)[
        :: 1 if near_size is None else 4, :: 1 if near_size is None else 4
    ]
    assert upright.shape == expected.shape
    assert np.abs(upright.astype(int) - expected).mean() < 3


def test_files_of_several_pages_are_refused() -> None:
    frames = [Image.fromarray(np.full((6, 5, 3), value, np.uint8)) for value in (10, 200)]
    for kind, noun, options in (
        ("TIFF", "pages", {}), ("WEBP", "frames", {"lossless": True}), ("PNG", "frames", {}),
    ):  # fmt: skip
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        with pytest.raises(DisMixError, match=rf"holds 2 {noun}.*write that one into a file"):
            decode_image(data)


def test_smaller_copies_in_a_file_are_no_pages() -> None:
    large, small = (Image.fromarray(np.full((n, n, 3), n, np.uint8)) for n in (8, 4))
    # As slide scanners mark them: NewSubfileType 1.
    small.encoderinfo = {"tiffinfo": {254: 1}}
    pyramid = decode_image(encoded(large, "TIFF", save_all=True, append_images=[small]))
    assert pyramid.shape == (8, 8, 3)
    assert (pyramid == 8).all()
    small.encoderinfo = {"tiffinfo": {254: 4}}
    masked = encoded(large, "TIFF", save_all=True, append_images=[small])
    assert decode_image(masked).shape == (8, 8, 3)
    photo = encoded(large, "MPO", save_all=True, append_images=[small], quality=95)
    assert decode_image(photo).shape == (8, 8, 3)


def test_what_follows_a_whole_picture_may_be_damaged() -> None:
    large = Image.fromarray(np.full((8, 8, 3), 8, np.uint8))
    data = bytearray(encoded(large, "TIFF"))
    start = struct.unpack("<I", data[4:8])[0]
    entries = struct.unpack("<H", data[start : start + 2])[0]
    # The pointer to the next page, beyond the file.
    at = start + 2 + 12 * entries
    data[at : at + 4] = struct.pack("<I", len(data) + 1000)
    assert (decode_image(bytes(data)) == 8).all()


def png_bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises far more than its few bytes hold."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [8_001, 12_000, 60_000])
def test_bombs_are_refused_from_the_header(side: int) -> None:
    with pytest.raises(DisMixError, match="over the limit of 64,000,000 pixels; shrink it"):
        decode_image(png_bomb(side, side))


def test_the_pixel_limit_is_exact() -> None:
    data = encoded(Image.fromarray(RGB), "PNG")
    assert decode_image(data, max_pixels=24 * 40).shape == (24, 40, 3)
    with pytest.raises(DisMixError, match="40 x 24 pixels is over the limit of 959 pixels"):
        decode_image(data, max_pixels=24 * 40 - 1)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
def test_files_cut_anywhere_give_one_line(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    for share in (0.01, 0.1, 0.5, 0.9):
        path = tmp_path / f"cut{share}.img"
        path.write_bytes(data[: max(1, int(len(data) * share))])
        with pytest.raises(DisMixError) as caught:
            decode_image(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "--write-readable NEW.csv" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_flipped_bytes_never_escape_as_other_errors() -> None:
    generator = np.random.default_rng(1)
    for kind in ("PNG", "JPEG", "WEBP", "TIFF"):
        data = encoded(Image.fromarray(RGB), kind)
        for _ in range(60):
            broken = bytearray(data)
            for place in generator.integers(0, len(data), 4):
                broken[place] = generator.integers(256)
            try:
                pixels = decode_image(bytes(broken), max_pixels=10**6)
                assert pixels.dtype == np.uint8
            except DisMixError:
                pass


def test_unusable_paths_name_the_file_and_the_cure(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.png", tmp_path / "notes.png"
    empty.write_bytes(b"")
    text.write_text("not an image at all")
    for path, words in (
        (tmp_path / "absent.png", "file not found; correct the path"),
        (tmp_path, "is a folder, not an image; name a file"),
        (empty, "file is empty; copy it again"),
        (text, "is not an image that can be read; use JPEG, PNG, WebP, TIFF, BMP or DICOM"),
    ):
        with pytest.raises(DisMixError) as caught:
            decode_image(path)
        assert str(caught.value).startswith(f"{path}: {words}")


def test_formats_that_start_programs_are_not_read() -> None:
    with pytest.raises(DisMixError, match="is not an image that can be read"):
        decode_image(encoded(Image.fromarray(RGB), "EPS"))


def test_a_file_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DisMixError, match="may not be read by this user; change its rights"):
        decode_image(tmp_path / "secret.png")


def test_a_failing_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Image.fromarray(RGB), "PNG"))

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("dismix.data.decode.decode_stream", fail)
    with pytest.raises(DisMixError, match=r"cannot be read \(Input/output error\); check the disk"):
        decode_image(path)


def test_large_jpegs_decoded_small_look_the_same() -> None:
    smooth = Image.fromarray(gradient(8, 8)).resize((1600, 1200), Image.Resampling.BICUBIC)
    data = encoded(smooth, "JPEG", quality=95)
    reduced = decode_image(data, near_size=64)
    assert reduced.shape[:2] == (300, 400)
    direct = resize(decode_image(data), 64).astype(int)
    assert np.abs(resize(reduced, 64) - direct).max() <= 4
    assert decode_image(data, near_size=500).shape == (1200, 1600, 3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(30, 60), (60, 30), (7, 7), (64, 64), (1, 500)])
def test_resize_shapes(height: int, width: int, channels: int) -> None:
    pixels = np.full((height, width, channels), 90, np.uint8)
    for fit in ("stretch", "pad", "crop"):
        result = resize(pixels, 32, fit)
        assert result.shape == (32, 32, channels)
        assert result.dtype == np.uint8
        if fit != "pad":
            assert (result == 90).all()
        else:
            assert set(np.unique(result)) <= {0, 90}


def test_resize_fits_mean_what_they_say() -> None:
    pixels = np.zeros((40, 80, 1), np.uint8)
    pixels[:, :20] = 100
    pixels[:, 60:] = 200
    stretched = resize(pixels, 40)[:, :, 0]
    assert (stretched[:, :8] == 100).all()
    assert (stretched[:, 32:] == 200).all()
    assert (resize(pixels, 40, "crop")[:, 1:-1] == 0).all()
    padded = resize(pixels, 40, "pad")[:, :, 0]
    assert (padded[:9] == 0).all()
    assert (padded[31:] == 0).all()
    assert (padded[12:28, :8] == 100).all()


def test_resize_is_antialiased() -> None:
    checks = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)[:, :, None]
    small = resize(checks, 16)
    assert np.abs(small.astype(int) - 128).max() < 16


def test_resize_to_the_same_size_changes_nothing() -> None:
    square = RGB[:24, :24]
    assert np.array_equal(resize(square, 24), square)
