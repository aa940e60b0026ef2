"""Tables in other encodings are refused in one line that says which one, where, and what to do."""

from pathlib import Path

import pytest

from dismix.data.check import check_path
from dismix.data.encodings import decode_text
from dismix.data.sources import table
from dismix.errors import DisMixError

TEXT = "image,grade\r\na.png,0\r\nmüller.png,1\r\n"


def refused(content: bytes) -> str:
    with pytest.raises(DisMixError) as caught:
        decode_text(content, Path("t.csv"))
    return str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf8_is_read_with_plain_line_ends(encoding):
    assert decode_text(TEXT.encode(encoding), Path("t")) == TEXT.replace("\r\n", "\n")
    assert decode_text("a\rb".encode(encoding), Path("t")) == "a\nb"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("ends", ["\r\n", "\n", "\r"])
def test_windows_1252_is_named_with_its_line_and_letter(encoding, ends):
    assert refused(TEXT.replace("\r\n", ends).encode(encoding)) == (
        "t.csv, row 3: is not UTF-8 text but probably Windows-1252 (byte 0xFC is 'ü' there); "
        "save it as CSV UTF-8, or `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`"
    )


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE"),
     ("utf-32", "UTF-32")],
)  # fmt: skip
def test_wide_text_is_named_with_and_without_its_mark(encoding, name):
    assert refused(TEXT.encode(encoding)) == (
        f"t.csv, row 1: is {name} text, not UTF-8; "
        f"save it as CSV UTF-8, or `iconv -f {name} -t UTF-8 FILE > NEW`"
    )


def test_a_mark_does_not_move_the_place():
    told = refused(b"\xef\xbb\xbfimage,grade\n\xe9,1\n")
    assert "row 2: is not UTF-8" in told
    assert "byte 0xE9 is 'é'" in told


def test_what_is_no_text_is_not_called_an_encoding():
    # 0x81 means nothing in Windows-1252.
    assert refused(b"image\n\x81\n") == (
        "t.csv, row 2: is not UTF-8 text (byte 0x81); save it as CSV UTF-8"
    )
    assert "is not a text table" in refused(bytes(range(256)) * 4)
    assert "is a spreadsheet or an archive" in refused(b"PK\x03\x04" + bytes(40))


def test_the_cure_works(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode("cp1252"))
    with pytest.raises(DisMixError, match=r"t\.csv, row 3: is not UTF-8 .* Windows-1252"):
        table.read(path)
    (finding,) = check_path(path).findings
    assert "row 3" in finding.message
    assert "iconv -f WINDOWS-1252" in finding.cure
    path.write_bytes(path.read_bytes().decode("WINDOWS-1252").encode("UTF-8"))
    assert table.read(path).table["image"].tolist() == ["a.png", "müller.png"]
