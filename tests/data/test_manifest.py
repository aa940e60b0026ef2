"""Manifest: the contract, read and written, and what bad tables get."""

import json
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dismix.data.manifest import ManifestMeta, make_manifest, read_manifest, write_manifest
from dismix.data.validate import normalise, problems
from dismix.errors import DisMixError

WIDE = """image,split,group,grade,annotator_ann,annotator_bob,camera
a.png,train,p1,1,1,2,X
b.png,train,p1,,0,,Y
c.png,val,p2,2,1,1,X
d.png,test,p3,2,0,0,X
e.png,test,p4,0,,,X
"""


@pytest.fixture
def wide(tmp_path):
    path = tmp_path / "graded.csv"
    path.write_text(WIDE)
    return path


def test_targets_use_votes_for_training_and_the_reference_for_testing(wide):
    manifest = read_manifest(wide)
    assert manifest.num_ranks == 3
    assert manifest.annotators == ["ann", "bob"]
    assert manifest.target().rank.tolist() == [1.5, 0.0, 1.0, 2.0, 0.0]
    assert manifest.table["camera"].tolist() == ["X", "Y", "X", "X", "X"]


def test_hidden_grades_of_validation_rows_do_not_matter(wide):
    manifest = read_manifest(wide)
    table = manifest.table.assign(grade=[0, 0, 0, 2, 0])
    changed = manifest.with_table(table)
    assert changed.target().rank.tolist() == manifest.target().rank.tolist()


def test_split_keeps_line_numbers(wide):
    test = read_manifest(wide).split("test")
    assert test.lines.tolist() == [5, 6]
    assert [p.name for p in test.image_paths] == ["d.png", "e.png"]
    with pytest.raises(DisMixError, match="did you mean 'test'"):
        test.split("tets")


def test_round_trip_with_meta(wide, tmp_path):
    manifest = make_manifest(
        read_manifest(wide).table,
        ManifestMeta(ranks=("none", "mild", "severe", "worst"), equalize=True, grey=True),
        tmp_path,
    )
    write_manifest(manifest, tmp_path / "out" / "again.csv")
    again = read_manifest(tmp_path / "out" / "again.csv")
    assert again.meta == manifest.meta
    assert again.num_ranks == 4
    assert again.image_paths == manifest.image_paths
    np.testing.assert_array_equal(again.votes, manifest.votes)


def test_paths_below_the_manifest_are_written_relative(wide, tmp_path):
    write_manifest(read_manifest(wide), tmp_path / "again.csv")
    assert read_manifest(tmp_path / "again.csv").table["image"][0] == "a.png"


def test_parquet_without_pyarrow_says_how(wide, tmp_path):
    manifest = read_manifest(wide)
    if find_spec("pyarrow"):
        write_manifest(manifest, tmp_path / "m.parquet")
        assert len(read_manifest(tmp_path / "m.parquet")) == 5
    else:
        with pytest.raises(DisMixError, match=r"dismix\[parquet\]"):
            write_manifest(manifest, tmp_path / "m.parquet")


def test_long_form_becomes_wide(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("image,annotator,grade,split\na,x,1,train\na,y,2,train\nb,y,0,test\n")
    manifest = read_manifest(path)
    assert manifest.annotators == ["x", "y"]
    assert np.isnan(manifest.votes[1, 0])
    assert manifest.lines.tolist() == [2, 4]


def test_long_form_conflict_names_both_rows(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("image,annotator,grade\na,x,1\na,y,2\na,x,2\n")
    with pytest.raises(DisMixError, match=r"row 4, column 'grade': .*annotator 'x'.* in row 2"):
        read_manifest(path)
    path.write_text("image,annotator,grade,split\na,x,1,train\na,y,2,test\n")
    with pytest.raises(DisMixError, match="row 3, column 'split'"):
        read_manifest(path)


def test_table_exported_by_a_spreadsheet(tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_bytes("image , grade ,,\n a.png , 1 ,,\nb.png,0.0,,\n".encode("utf-8-sig"))
    manifest = read_manifest(path)
    assert manifest.table["image"].tolist() == ["a.png", "b.png"]
    assert manifest.grades.tolist() == [1, 0]
    assert manifest.table["split"].tolist() == ["train", "train"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("image,grade\n", "no rows"),
        ("file,grade\na,1\n", "no column 'image'"),
        ("image,label\na,1\n", "no column 'grade'"),
        ("image,grade\na,1\nb,x\n", "row 3, column 'grade': 'x' is not a whole number"),
        ("image,grade\na,1\nb,1.5\n", "row 3, column 'grade': '1.5' is not a whole number"),
        ("image,grade\na,1\nb,inf\n", "row 3, column 'grade': inf is outside"),
        ("image,grade\na,1\nb,1e30\n", "row 3, column 'grade': 1e30 is outside"),
        ("image,grade\na,1\nb,20261115\n", "row 3, column 'grade': 20261115 is outside"),
        ("image,grade\n\na,1\n\nb,x\n", "row 5, column 'grade': 'x'"),
        ("image,grade\na,1,one\nb,0,two\n", "row 2: has 3 cells under 2 column names"),
        ("image,annotator_x,annotator_x\na,1,2\n", "row 1, column 'annotator_x': two columns"),
        ("image,grade\na,1\nb,-1\n", "row 3, column 'grade': -1 is outside"),
        ("image,grade\na,1\na,1\n", "row 3, column 'image': 'a' is listed a second time"),
        ("My study,,\nimage,grade,x\na,1,2\n", "row 1: 2 columns have cells but no name; begin"),
        ("image,grade\nb/a,1\n./b//a,1\n", "row 3, column 'image': './b//a' is listed a second"),
        ("image,grade\n,1\n", "row 2, column 'image': is empty"),
        ("image,grade\na,\n", "row 2: the image has neither .*; fill column 'grade', or"),
        ("image,split,grade\na,dev,1\n", "row 2, column 'split': unknown split 'dev'"),
        ("image,split,group,grade\na,train,p,1\nb,test,p,1\n", "row 3, column 'group'"),
        ('image,grade\n"a,1\n', "row 2: is no regular table"),
    ],
)
def test_bad_tables_are_named_with_row_and_column(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DisMixError, match=message) as error:
        read_manifest(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_and_undecodable_files(tmp_path):
    with pytest.raises(DisMixError, match="no such file"):
        read_manifest(tmp_path / "absent.csv")
    path = tmp_path / "latin.csv"
    path.write_bytes("image,grade\nmüller.png,1\n".encode("latin-1"))
    with pytest.raises(DisMixError, match="UTF-8"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ("{", "Expecting"),
        ("[]", "no object"),
        ('{"ranks": ["a"]}', "at least two names"),
        ('{"ranks": ["a", "b"], "gray": true}', "unknown field 'gray', did you mean 'grey'"),
        ('{"ranks": ["a", "a", "b"]}', "two ranks are called 'a'"),
        ('{"ranks": ["a", ""]}', "a rank has an empty name"),
        ('{"ranks": ["a", null, ["b"]]}', "must list names, not null"),
    ],
)
def test_bad_meta_is_named(wide, meta, words):
    wide.with_suffix(".meta.json").write_text(meta)
    with pytest.raises(
        DisMixError, match=rf"graded\.meta\.json: is not a manifest's meta file \(.*{words}"
    ):
        read_manifest(wide)


def test_grades_above_the_named_ranks_are_refused(wide):
    wide.with_suffix(".meta.json").write_text(json.dumps({"ranks": ["low", "high"]}))
    with pytest.raises(DisMixError, match=r"2 is outside the range 0\.\.1"):
        read_manifest(wide)


def test_all_problems_are_found_not_only_the_first():
    table = pd.DataFrame({"image": ["a", None, "a"], "grade": ["9", "x", None], "split": "train"})
    codes = [p.code for p in problems(normalise(table), 5)]
    assert sorted(codes) == ["image-twice", "no-image", "not-a-grade", "not-graded", "out-of-range"]


def test_writing_leaves_nothing_half_done(wide, tmp_path, monkeypatch):
    manifest = read_manifest(wide)
    out = tmp_path / "out"
    monkeypatch.setattr(pd.DataFrame, "to_csv", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_manifest(manifest, out / "m.csv")
    assert not list(out.iterdir())


def test_long_form_keeps_the_filled_cell_of_a_repeated_row(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(
        "image,annotator,grade,split\na,x,,\na,x,2,test\na,y,2.0,\na,y,2,\nb,x,0,train\n"
    )
    manifest = read_manifest(path)
    np.testing.assert_array_equal(manifest.votes, [[2, 2], [0, np.nan]])
    assert manifest.table["split"].tolist() == ["test", "train"]


def test_long_form_names_the_line_of_the_vote(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("image,annotator,grade\na,x,1\n\na,y,q\n")
    with pytest.raises(DisMixError, match="row 4, column 'grade': 'q' is not a whole number"):
        read_manifest(path)


def test_words_for_unknown_are_gaps_in_grades_and_groups_only(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text(
        "image,split,group,annotator_x,annotator_y,note\n"
        "a,train,NA,1,n/a,None\nb,test,NA,0,-,null\nc,test,,0,2,x\n"
    )
    manifest = read_manifest(path)
    np.testing.assert_array_equal(manifest.votes, [[1, np.nan], [0, np.nan], [0, 2]])
    assert manifest.table["group"].isna().all()
    assert manifest.table["note"].tolist() == ["None", "null", "x"]


def test_semicolons_and_excels_first_line_are_read(tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes("\ufeffsep=;\r\nimage;grade\r\na;1\r\nb;x\r\n".encode())
    with pytest.raises(DisMixError, match="row 4, column 'grade': 'x'"):
        read_manifest(path)


def test_text_in_another_encoding_is_named_with_its_line(tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes("image,grade\na,1\nmüller,0\n".encode("latin-1"))
    with pytest.raises(DisMixError, match="row 3: is not UTF-8 text"):
        read_manifest(path)


@pytest.mark.parametrize("ranks", [("only",), ("low", "low", "high")])
def test_scales_need_two_names_that_differ(ranks):
    table = pd.DataFrame({"image": ["a"], "grade": [0]})
    with pytest.raises(DisMixError, match="rank"):
        make_manifest(table, ManifestMeta(ranks=ranks), ".")


def test_nothing_is_written_where_the_table_cannot_be(wide, tmp_path, monkeypatch):
    monkeypatch.setattr("dismix.data.delimited.find_spec", lambda name: None)
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for output, message in (
        ("x.parquet", "needs pyarrow"),
        ("folder", "is a folder"),
        ("x.xlsx", r"cannot write '\.xlsx' files; end it \.csv, \.tsv, \.txt or \.parquet"),
    ):
        with pytest.raises(DisMixError, match=message):
            write_manifest(read_manifest(wide), tmp_path / output)
    assert sorted(tmp_path.iterdir()) == before


def test_a_tsv_file_has_tabs(wide, tmp_path):
    write_manifest(read_manifest(wide), tmp_path / "x.tsv")
    assert "image\t" in (tmp_path / "x.tsv").read_text()
    assert len(read_manifest(tmp_path / "x.tsv")) == len(read_manifest(wide))


def test_cells_that_are_no_text_are_kept(tmp_path):
    table = pd.DataFrame(
        {
            "image": [tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"],
            "group": pd.Series([7, "p 8 ", " "], dtype=object),
            "grade": [0, 1, 1],
        }
    )
    manifest = make_manifest(table, None, tmp_path)
    assert [p.name for p in manifest.image_paths] == ["a.png", "b.png", "c.png"]
    assert manifest.table["group"].tolist()[:2] == [7, "p 8"]
    assert manifest.table["group"].isna().tolist() == [False, False, True]


def test_a_damaged_parquet_file_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise ValueError("Parquet magic bytes not found")

    monkeypatch.setattr("dismix.data.delimited.find_spec", lambda name: object())
    monkeypatch.setattr(pd, "read_parquet", refuse)
    (tmp_path / "m.parquet").write_text("xx")
    with pytest.raises(DisMixError, match=r"m\.parquet: is no Parquet file"):
        read_manifest(tmp_path / "m.parquet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"ranks": ["a", "b"], "grey": "no"}', "'grey' must be true or false, not 'no'"),
        ('{"ranks": ["a", "b"], "notes": 5}', "'notes' must be text, not 5"),
        ("[]", "it is no object"),
    ],
)
def test_meta_files_hold_what_they_should(wide, text, message):
    wide.with_suffix(".meta.json").write_text(text)
    with pytest.raises(DisMixError, match=message):
        read_manifest(wide)


def test_twelve_bit_data_are_read_as_the_meta_file_says(tmp_path):
    from dismix.data.store import build_store
    from dismix.data.store_settings import settings_for

    pixels = np.full((8, 8), 4095, np.uint16)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    table = pd.DataFrame({"image": ["a.png"], "grade": [1]})
    meta = ManifestMeta(("no", "yes"), grey=True, bits=12, fit="pad")
    write_manifest(make_manifest(table, meta, tmp_path), tmp_path / "m.csv")
    again = read_manifest(tmp_path / "m.csv")
    store = build_store(again.image_paths, settings_for(again.meta, 8), tmp_path / "cache")
    assert (store[0] == 255).all()
    for wrong in ({"bits": 20}, {"fit": "squash"}):
        with pytest.raises(DisMixError):
            ManifestMeta(("no", "yes"), **wrong)


def test_a_way_round_to_the_images_leaves_no_trace(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    table = pd.DataFrame({"image": ["a.png", "b.png"], "grade": [0, 1]})
    write_manifest(make_manifest(table, None, "../here/pix"), "m.csv")
    assert read_manifest("m.csv").table["image"].tolist() == ["pix/a.png", "pix/b.png"]
    write_manifest(make_manifest(table, None, "../other"), "n.csv")
    assert read_manifest("n.csv").table["image"][0] == str(tmp_path.resolve() / "other" / "a.png")


def test_a_meta_file_may_begin_with_a_byte_order_mark(wide):
    text = json.dumps({"ranks": ["none", "mild", "severe"]})
    wide.with_suffix(".meta.json").write_text(text, encoding="utf-8-sig")
    assert read_manifest(wide).meta.ranks == ("none", "mild", "severe")


def test_minus_one_is_told_to_be_a_gap(wide):
    wide.write_text(WIDE.replace("a.png,train,p1,1,1", "a.png,train,p1,1,-1"))
    with pytest.raises(DisMixError, match=r"row 2, column 'annotator_ann': -1 .*leave it empty"):
        read_manifest(wide)


@pytest.mark.parametrize("name", ["m.csv", "m.parquet"])
def test_names_that_are_no_text_are_not_written(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    table = pd.DataFrame({"image": ["a.png", "b.png"], "grade": [0, 1]})
    # Below its own folder a path is relative, and plain text.
    manifest = make_manifest(table, None, tmp_path / "caf\udce9")
    with pytest.raises(DisMixError, match=r"caf\\udce9/a.png': the name is not UTF-8 text; rename"):
        write_manifest(manifest, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_columns_about_annotators_are_no_votes_in_the_long_form(tmp_path):
    file = tmp_path / "long.csv"
    file.write_text(
        "image,annotator,annotator_experience,grade\na.png,ann,4,0\nb.png,bob,1,1\nc.png,ann,4,2\n"
    )
    manifest = read_manifest(file)
    assert sorted(manifest.annotators) == ["ann", "bob"]
    assert manifest.num_ranks == 3


def test_a_code_for_a_missing_grade_makes_no_ranks(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("image,grade\na.png,0\nb.png,1\nc.png,99\n")
    with pytest.raises(DisMixError, match="row 4, column 'grade': 99 is far above the next"):
        read_manifest(path)
    path.write_text("image,annotator,grade\na,x,0\na,y,1\nb,x,1\nb,y,99\n")
    with pytest.raises(DisMixError, match="row 5, column 'grade': 99 is far above the next"):
        read_manifest(path)
    # Whoever lists the ranks is believed.
    (tmp_path / "m.meta.json").write_text(json.dumps({"ranks": [str(r) for r in range(100)]}))
    assert read_manifest(path).num_ranks == 100


def test_a_rank_has_a_name():
    with pytest.raises(DisMixError, match="a rank has an empty name"):
        make_manifest(pd.DataFrame({"image": ["a"], "grade": [0]}), ManifestMeta(("a", "")), ".")


def test_an_image_is_listed_once_whole_path_or_not(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text(f"image,grade,split\nb.png,0,train\na.png,0,train\n{tmp_path}/a.png,0,test\n")
    with pytest.raises(DisMixError, match=r"row 4, column 'image': '.*a\.png' is listed a second"):
        read_manifest(path)
    # From another folder it is another file.
    table = pd.DataFrame({"image": ["a.png", f"{tmp_path}/a.png"], "grade": [0, 1]})
    assert len(make_manifest(table, None, tmp_path / "other")) == 2


def test_columns_that_differ_by_space_only_are_two_of_one_name():
    table = pd.DataFrame([["a.png", 0, 1]], columns=["image", "grade", "grade "])
    with pytest.raises(DisMixError, match="two columns are called 'grade'; rename one"):
        make_manifest(table, None, ".")


@pytest.mark.parametrize(
    "other",
    [{"equalize": True}, {"grey": True}, {"bits": 12}, {"fit": "pad"}, {"ranks": ("0", "b")}],
)
def test_a_fingerprint_tells_how_files_are_read_and_not_where_they_lie(other, tmp_path):
    table = pd.DataFrame({"image": ["a.png", "b.png"], "grade": [0, 1]})
    plain = make_manifest(table, ManifestMeta(("0", "1")), tmp_path).fingerprint()
    moved = make_manifest(table, ManifestMeta(("0", "1"), notes="moved"), tmp_path / "new")
    assert moved.fingerprint() == plain
    meta = ManifestMeta(**{"ranks": ("0", "1"), **other})
    assert make_manifest(table, meta, tmp_path).fingerprint() != plain
