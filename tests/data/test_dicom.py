"""Real DICOM files, written here, against pydicom's own pipeline; no identifier escapes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dismix.data.decode import decode_image
from dismix.data.store import StoreSettings, build_store
from dismix.errors import DisMixError

pydicom = pytest.importorskip("pydicom")
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset  # noqa: E402
from pydicom.pixels import apply_modality_lut, apply_windowing  # noqa: E402
from pydicom.sequence import Sequence  # noqa: E402
from pydicom.uid import ExplicitVRLittleEndian, RLELossless, generate_uid  # noqa: E402

NAME, PATIENT, BIRTH = "Sekret^Patientina", "MRN-77120-XQ", "19310704"


def dataset(pixels: np.ndarray, kind: str = "MONOCHROME2", **tags: Any) -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = generate_uid()
    ds = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    ds.SOPClassUID, ds.SOPInstanceUID = (
        meta.MediaStorageSOPClassUID,
        meta.MediaStorageSOPInstanceUID,
    )
    ds.PatientName, ds.PatientID, ds.PatientBirthDate = NAME, PATIENT, BIRTH
    ds.PhotometricInterpretation = kind
    ds.SamplesPerPixel = 3 if kind in ("RGB", "YBR_FULL") else 1
    if ds.SamplesPerPixel == 3:
        ds.PlanarConfiguration = 0
    ds.Rows, ds.Columns = pixels.shape[:2] if pixels.ndim < 4 else pixels.shape[1:3]
    ds.BitsAllocated = pixels.dtype.itemsize * 8
    ds.BitsStored = tags.pop("BitsStored", ds.BitsAllocated)
    ds.HighBit = ds.BitsStored - 1
    ds.PixelRepresentation = int(pixels.dtype.kind == "i")
    ds.PixelData = pixels.tobytes()
    for tag, value in tags.items():
        setattr(ds, tag, value)
    return ds


def saved(ds: FileDataset, folder: Path, name: str = "image.dcm") -> Path:
    path = folder / name
    ds.save_as(path, enforce_file_format=True)
    return path


def ct(seed: int = 0, shape: tuple[int, int] = (20, 30)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4096, shape).astype(np.uint16)


def by_pydicom(ds: FileDataset, pixels: np.ndarray) -> np.ndarray:
    """pydicom's own rescale and window, whose output range is that of the stored bits."""
    values = apply_windowing(apply_modality_lut(pixels, ds), ds)
    low, high = 0, 2**ds.BitsStored - 1
    if ds.PixelRepresentation:
        low, high = low - 2 ** (ds.BitsStored - 1), high - 2 ** (ds.BitsStored - 1)
    slope, intercept = float(ds.get("RescaleSlope", 1)), float(ds.get("RescaleIntercept", 0))
    low, high = low * slope + intercept, high * slope + intercept
    return (values - low) / (high - low) * 255


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_rescale_and_window_are_pydicoms(function: str, tmp_path: Path) -> None:
    pixels = ct()
    ds = dataset(
        pixels, BitsStored=12, RescaleSlope=1.5, RescaleIntercept=-1024,
        WindowCenter=[300, 40], WindowWidth=[1500, 80], VOILUTFunction=function,
    )  # fmt: skip
    got = decode_image(saved(ds, tmp_path))[:, :, 0]
    assert np.abs(got - by_pydicom(ds, pixels)).max() <= 0.5001
    assert got.std() > 20


def test_signed_pixels(tmp_path: Path) -> None:
    pixels = ct().astype(np.int16) - 2000
    ds = dataset(pixels, WindowCenter=-100, WindowWidth=900)
    assert np.abs(decode_image(saved(ds, tmp_path))[:, :, 0] - by_pydicom(ds, pixels)).max() < 0.51


def test_without_a_window_the_stored_range_counts(tmp_path: Path) -> None:
    pixels = np.array([[0, 1000, 2048, 4095]], np.uint16)
    ds = dataset(pixels, BitsStored=12, RescaleSlope=2, RescaleIntercept=-1000)
    assert decode_image(saved(ds, tmp_path))[0, :, 0].tolist() == [0, 62, 128, 255]
    ds.RescaleSlope = -2
    assert decode_image(saved(ds, tmp_path))[0, :, 0].tolist() == [255, 193, 127, 0]
    signed = dataset(np.array([[-128, 0, 127]], np.int8))
    assert decode_image(saved(signed, tmp_path))[0, :, 0].tolist() == [0, 128, 255]


def test_monochrome1_is_inverted(tmp_path: Path) -> None:
    pixels = ct()
    tags = {"BitsStored": 12, "WindowCenter": 2000, "WindowWidth": 3000}
    plain = decode_image(saved(dataset(pixels, **tags), tmp_path))
    inverted = decode_image(saved(dataset(pixels, "MONOCHROME1", **tags), tmp_path))
    assert np.array_equal(inverted, 255 - plain)


def test_colour_and_palette(tmp_path: Path) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    path = saved(dataset(rgb, "RGB"), tmp_path)
    assert np.array_equal(decode_image(path), rgb)
    assert decode_image(path, channels=1).shape == (6, 8, 1)
    ybr = np.stack([rgb[:, :, 0], np.full((6, 8), 128), np.full((6, 8), 128)], -1).astype(np.uint8)
    grey = decode_image(saved(dataset(ybr, "YBR_FULL"), tmp_path))
    assert np.abs(grey.astype(int) - rgb[:, :, :1]).max() <= 1
    indexed = dataset(np.array([[0, 1]], np.uint8), "PALETTE COLOR")
    for colour, values in (("Red", (0, 65535)), ("Green", (257, 514)), ("Blue", (0, 0))):
        setattr(indexed, f"{colour}PaletteColorLookupTableDescriptor", [2, 0, 16])
        table = np.array(values, np.uint16).tobytes()
        setattr(indexed, f"{colour}PaletteColorLookupTableData", table)
    assert decode_image(saved(indexed, tmp_path)).tolist() == [[[0, 1, 0], [255, 2, 0]]]


def test_files_of_several_frames_are_refused(tmp_path: Path) -> None:
    frames = np.stack([np.full((5, 4), v, np.uint8) for v in (10, 99, 200)])[..., None]
    ds = dataset(frames, NumberOfFrames=3)
    with pytest.raises(DisMixError, match="holds 3 frames, and nothing says which one was graded"):
        decode_image(saved(ds, tmp_path))


def test_window_of_enhanced_files_is_found(tmp_path: Path) -> None:
    ds = dataset(np.full((5, 4), 100, np.uint16), NumberOfFrames=1)
    voi, group = Dataset(), Dataset()
    voi.WindowCenter, voi.WindowWidth = "100.5", "201"
    group.FrameVOILUTSequence = Sequence([voi])
    ds.SharedFunctionalGroupsSequence = Sequence([group])
    assert (decode_image(saved(ds, tmp_path)) == 128).all()


def test_voi_tables(tmp_path: Path) -> None:
    item = Dataset()
    item.add_new(0x00283002, "US", [4, 10, 8])
    item.add_new(0x00283006, "US", [0, 50, 100, 255])
    ds = dataset(np.array([[0, 10, 11, 12, 13, 90]], np.uint16), VOILUTSequence=Sequence([item]))
    assert decode_image(saved(ds, tmp_path))[0, :, 0].tolist() == [0, 0, 50, 100, 255, 255]


def test_rle_compression_needs_no_further_package(tmp_path: Path) -> None:
    pixels = ct().astype(np.uint8)
    ds = dataset(pixels)
    ds.compress(RLELossless)
    assert np.array_equal(decode_image(saved(ds, tmp_path))[:, :, 0], pixels)


def test_files_are_known_by_content_or_by_name(tmp_path: Path) -> None:
    ds = dataset(ct().astype(np.uint8))
    path = saved(ds, tmp_path, "no_suffix")
    assert decode_image(path).shape == (20, 30, 1)
    assert decode_image(path.read_bytes()).shape == (20, 30, 1)


def test_bad_files_give_one_line(tmp_path: Path) -> None:
    path = saved(dataset(ct()), tmp_path)
    whole = path.read_bytes()
    for size in (1, 100, 200, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:size])
        with pytest.raises(DisMixError) as caught:
            decode_image(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "--write-readable NEW.csv" in str(caught.value)
        assert NAME not in str(caught.value)
    path.write_text("just text, named like an image")
    with pytest.raises(DisMixError, match="is not a DICOM file with an image"):
        decode_image(path)


def test_pixel_limit_and_burned_in_text(tmp_path: Path) -> None:
    path = saved(dataset(ct()), tmp_path)
    with pytest.raises(DisMixError, match="30 x 20 pixels is over the limit of 599 pixels"):
        decode_image(path, max_pixels=599)
    marked = saved(dataset(ct(), BurnedInAnnotation="YES"), tmp_path)
    with pytest.raises(DisMixError, match="text burned into the image, which may name a person"):
        decode_image(marked)


def test_an_unknown_compression_says_what_to_install(tmp_path: Path) -> None:
    ds = dataset(ct())
    ds.file_meta.TransferSyntaxUID = pydicom.uid.JPEGLSLossless
    if pydicom.pixels.get_decoder(pydicom.uid.JPEGLSLossless).is_available:
        pytest.skip("a JPEG-LS decoder is installed")
    ds.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8nothing\xff\xd9"])
    with pytest.raises(DisMixError, match="no installed decoder for JPEG-LS"):
        decode_image(saved(ds, tmp_path))


def test_without_pydicom_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(dataset(ct()), tmp_path)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(DisMixError, match=r"needs pydicom; pip install 'dismix\[dicom\]'"):
        decode_image(path)
    with pytest.raises(DisMixError, match="needs pydicom"):
        build_store([path], StoreSettings(size=8), tmp_path / "c", on_error="skip")


def test_no_identifier_reaches_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "Folder_of_Patientina"
    folder.mkdir()
    whole = saved(dataset(ct(0)), folder, f"{PATIENT}.dcm")
    cut = saved(dataset(ct(1)), folder, f"{PATIENT}_cut.dcm")
    cut.write_bytes(cut.read_bytes()[:-200])
    burned = saved(dataset(ct(2), BurnedInAnnotation="YES"), folder, f"{PATIENT}_burned.dcm")
    absent = folder / f"{PATIENT}_absent.dcm"
    cache = tmp_path / "cache"
    files = [whole, cut, burned, absent]
    store = build_store(files, StoreSettings(size=16, channels=1), cache, on_error="skip")
    assert store.valid.tolist() == [0]
    assert [item.path for item in store.skipped] == files[1:]
    written = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {"images.u8", "index.json", "digests.sqlite"}
    for path in written:
        content = path.read_bytes() + str(path.relative_to(cache)).encode()
        for secret in (NAME, "Patientina", PATIENT, BIRTH, ".dcm", str(tmp_path)):
            assert secret.encode() not in content, (path.name, secret)
