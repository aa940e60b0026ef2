import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dismix.data.manifest import write_manifest
from dismix.data.sources import read_source, table
from dismix.errors import DisMixError

SaveCsv = Callable[..., Path]


def save(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_own_column_names(tmp_path: Path) -> None:
    text = "ID,Set,Patient,Level,Age\nx1,training,p1,0,60\nx2,Test,p2,3,70\n"
    manifest = table.read(
        save(tmp_path, text), image="id", split="set", group="patient", grade="level",
        images="png", suffix="png",
    )  # fmt: skip
    assert manifest.table["image"].tolist() == ["png/x1.png", "png/x2.png"]
    assert manifest.table["split"].tolist() == ["train", "test"]
    assert manifest.table["group"].tolist() == ["p1", "p2"]
    assert manifest.grades.tolist() == [0, 3]
    assert manifest.meta.ranks == ("0", "1", "2", "3")
    assert manifest.table["Age"].tolist() == ["60", "70"]
    assert manifest.root == tmp_path


def test_votes_in_columns_keep_gaps(tmp_path: Path) -> None:
    text = "image,Dr A,Dr B\na.png,1,\nb.png,NA,0\nc.png,2,2.0\n"
    manifest = table.read(save(tmp_path, text), annotators=("Dr A", "dr b"))
    assert manifest.annotators == ["Dr A", "Dr B"]
    np.testing.assert_array_equal(manifest.votes, [[1, np.nan], [np.nan, 0], [2, 2]])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_delimiters_and_byte_order_mark(tmp_path: Path, delimiter: str, encoding: str) -> None:
    text = "image|grade|note\n'a'.png|0|b, c; d\n".replace("|", delimiter)
    text = text.replace("b, c; d", '"b, c; d"') + delimiter.join(["é.png", "1", "\r\n"])
    manifest = table.read(save(tmp_path, text, encoding=encoding))
    assert manifest.table["image"].tolist() == ["'a'.png", "é.png"]
    assert manifest.table["note"].fillna("").tolist() == ["b, c; d", ""]


def test_long_form_with_own_names_keeps_gaps(tmp_path: Path) -> None:
    text = "scan,reader,score,split\na,x,mild,train\na,y,severe,train\nb,y,none,test\n"
    manifest = table.read(
        save(tmp_path, text), image="scan", annotator="reader", grade="score",
        ranks=("none", "Mild", "severe"),
    )  # fmt: skip
    assert manifest.annotators == ["x", "y"]
    np.testing.assert_array_equal(manifest.votes, [[1, 2], [np.nan, 0]])
    assert manifest.meta.ranks == ("none", "Mild", "severe")
    assert manifest.table["split"].tolist() == ["train", "test"]


def test_long_form_names_both_rows_of_a_conflict(tmp_path: Path) -> None:
    text = "image,annotator,grade\na,x,1\na,x,1\nb,x,0\na,x,2\n"
    with pytest.raises(DisMixError, match=r"row 5, column 'grade'.*'2' here and '1' in row 2"):
        table.read(save(tmp_path, text))
    text = "image,annotator,grade\na,x,1\n\na,x,2\n"
    with pytest.raises(DisMixError, match=r"row 4, column 'grade'.*'1' in row 2"):
        table.read(save(tmp_path, text))


def test_a_conflict_is_told_in_the_words_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, "image,annotator,grade\na,x,4\na,x,5\nb,x,1\n")
    with pytest.raises(DisMixError, match="'5' here and '4' in row 2"):
        table.read(path, first_rank=1)
    path = save(tmp_path, "image,annotator,grade\na,x,low\na,x,high\n")
    with pytest.raises(DisMixError, match="'high' here and 'low' in row 2"):
        table.read(path, ranks=("low", "high"))


def test_what_belongs_to_a_vote_is_left_out_and_said(tmp_path: Path) -> None:
    text = "image,annotator,grade,date,eye\na,x,1,mon,left\na,y,2,tue,left\nb,x,0,wed,right\n"
    manifest = table.read(save(tmp_path, text))
    assert "date" not in manifest.table
    assert manifest.table["eye"].tolist() == ["left", "right"]
    said = "left out the column 'date', which differs among the votes of an image"
    assert manifest.meta.notes.endswith(said)
    for name in ("split", "group"):
        with pytest.raises(DisMixError, match=f"column '{name}': the rows for image 'a' say"):
            table.read(save(tmp_path, text.replace("date", name)))


@pytest.mark.parametrize("ranks", [(), ("0", "1", "2")])
def test_half_grades_are_told_what_they_can_become(tmp_path: Path, ranks: tuple[str, ...]) -> None:
    path = save(tmp_path, "image,grade\na,0\nb,1.5\nc,2\n")
    told = (
        r"row 3, column 'grade': '1.5' is not a grade.*\(--ranks 1,1.5,2 and so on\) or two votes"
    )
    with pytest.raises(DisMixError, match=told):
        table.read(path, ranks=ranks)
    halves = table.read(path, ranks=("0", "0.5", "1", "1.5", "2"))
    assert halves.grades.tolist() == [0, 3, 4]
    votes = save(tmp_path, "image,x,y\na,0,0\nb,1,2\nc,2,2\n")
    assert table.read(votes, annotators=("x", "y")).target().rank.tolist() == [0, 1.5, 2]


def test_where_all_images_are_missing_their_folder_is_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\na,0\nb,1\n")
    with pytest.raises(DisMixError, match=r"2 of 2 images are missing.*--set images=FOLDER"):
        read_source(path)
    # Without an image nothing is left to go on with.
    with pytest.raises(DisMixError, match=r"2 of 2 images are missing.*--set images=FOLDER"):
        read_source(path, on_missing=print)
    (tmp_path / "pix").mkdir()
    for name in "ab":
        (tmp_path / "pix" / f"{name}.png").touch()
    assert len(read_source(path, images="pix", suffix="png")) == 2


def test_grades_from_one_need_a_word(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\na.png,1\nb.png,3\n")
    with pytest.raises(DisMixError, match=r"lowest grade is 1.*set first_rank=1"):
        table.read(path)
    with pytest.raises(DisMixError, match="column 'Level': the lowest grade is 1"):
        table.read(save(tmp_path, "image,Level\na,1\nb,2\n", "u.csv"), grade="level")
    manifest = table.read(path, first_rank=1)
    assert manifest.grades.tolist() == [0, 2]
    assert manifest.meta.ranks == ("1", "2", "3")
    assert table.read(path, ranks=("0", "1", "2", "3")).grades.tolist() == [1, 3]


def test_soft_labels_say_how_many_ranks_there_are(tmp_path: Path) -> None:
    path = save(tmp_path, "image,prob_0,prob_1,prob_2\na.png,0.5,0.5,0\nb.png,0,1,0\n")
    manifest = table.read(path)
    assert manifest.meta.ranks == ("0", "1", "2")
    assert manifest.target().rank.tolist() == [0.5, 1.0]
    graded = save(tmp_path, "image,grade,prob_0,prob_1\na,1,,\nb,,0.25,0.75\n", "g.csv")
    assert table.read(graded).meta.ranks == ("0", "1")


def test_soft_labels_may_have_decimal_commas(tmp_path: Path) -> None:
    text = "image;prob_0;prob_1\r\na.png;0,25;0,75\r\nb.png;1;0\r\nc.png;1e-05;0,99999\r\n"
    manifest = table.read(save(tmp_path, text), ranks=("low", "high"))
    np.testing.assert_allclose(manifest.target().rank, [0.75, 0, 0.99999], atol=1e-6)
    with pytest.raises(DisMixError, match="row 2, column 'prob_0': '0,2,5' is not a probability"):
        table.read(save(tmp_path, "image;prob_0;prob_1\na;0,2,5;1\n", "b.csv"))


def test_grades_from_six_need_a_word_too(tmp_path: Path) -> None:
    path = save(tmp_path, "image,sum\na.png,6\nb.png,7\nc.png,9\n")
    with pytest.raises(DisMixError, match=r"is 6, .* first_rank=6 if 6 is .*nobody got ranks 0 to"):
        table.read(path, grade="sum")
    manifest = table.read(path, grade="sum", first_rank=6)
    assert manifest.grades.tolist() == [0, 1, 3]
    assert manifest.meta.ranks == ("6", "7", "8", "9")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,grade\na.png,0\nb.png,x\n", r"t\.csv, row 3, column 'grade': 'x' is not a grade"),
        ("image,grade\na.png,0\n\nb.png,-2\n", "row 4, column 'grade': '-2'"),
        ("image,grade\na.png,1.5\nb.png,0\n", "row 2, column 'grade': '1.5'"),
        ("image,grade\na.png,0\n,1\n", "row 3, column 'image': is empty"),
        ("image,grade\na.png,0\na.png,1\n", "row 3, column 'image': 'a.png' is listed a second"),
        ("image,grade\na.png,0\nb.png,\n", r"row 3: nobody graded image 'b.png'; fill column"),
        ("image,grade\na.png,0,extra\n", "row 2: has 3 cells under 2 column names"),
        ("image,grade,grade\na.png,0,1\n", "row 1, column 'grade': two columns"),
        ('image,grade\n"a.png,0\n', "is no regular table"),
        ("image,grade\n", "has no rows"),
        ("", "is empty"),
        (
            "picture,grade\na.png,0\n",
            "'image'; name it with --image COLUMN; choose one of",
        ),
        ("image,note\na.png,0\n", "no column of grades was named"),
        ("image,grade\na.png,NA\n", "holds no grade at all"),
        ("image,split,grade\na.png,trian,0\n", "row 2, column 'split': unknown split 'trian'"),
        ("image,annotator\na.png,x\n", "needs a column 'grade'"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DisMixError, match=message) as caught:
        table.read(save(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


WAITING = "id,Dr A,Dr B\na,0,\nb,,\nc,NA,1\nd,-,\n\ne,,\nf,2,2\n"


def test_ungraded_rows_name_their_columns_and_the_option(tmp_path: Path) -> None:
    path = save(tmp_path, WAITING)
    with pytest.raises(DisMixError) as caught:
        table.read(path, image="id", annotators=("Dr A", "Dr B"))
    assert str(caught.value) == (
        f"{path}, row 3: nobody graded image 'b' (3 such images in all); fill one of the columns "
        "'Dr A', 'Dr B', or leave such rows out: `dismix data import ... --skip-ungraded`"
    )


@pytest.mark.parametrize("ranks", [(), ("none", "mild", "severe")])
def test_ungraded_rows_can_be_left_out(tmp_path: Path, ranks: tuple[str, ...]) -> None:
    manifest = table.read(
        save(tmp_path, WAITING), image="id", annotators=("Dr A", "Dr B"), ranks=ranks,
        skip_ungraded=True,
    )  # fmt: skip
    assert manifest.table["image"].tolist() == ["a", "c", "f"]
    np.testing.assert_array_equal(manifest.votes, [[0, np.nan], [np.nan, 1], [2, 2]])
    assert manifest.lines.tolist() == [2, 4, 8]
    assert manifest.meta.notes == (
        "from t.csv; left out 3 images that nobody graded: b (row 3), d (row 5), e (row 7)"
    )


def test_many_that_were_left_out_are_counted(tmp_path: Path) -> None:
    text = "image,grade\na,0\nb,1\n" + "".join(f"w{i},\n" for i in range(9))
    notes = table.read(save(tmp_path, text), skip_ungraded=True).meta.notes
    assert "left out 9 images that nobody graded: w0 (row 4)" in notes
    assert notes.endswith("w4 (row 8) and 4 more")


def test_waiting_images_of_the_long_form(tmp_path: Path) -> None:
    # A labelling tool lists an image that nobody has opened without an annotator.
    text = "image,annotator,grade\na,x,1\na,y,\nb,,\nc,x,\nc,y,\nd,y,0\n"
    path = save(tmp_path, text)
    with pytest.raises(DisMixError, match=r"row 4: nobody graded image 'b' \(2 .*column 'grade'"):
        table.read(path)
    manifest = table.read(path, skip_ungraded=True)
    np.testing.assert_array_equal(manifest.votes, [[1, np.nan], [np.nan, 0]])
    assert "left out 2 images that nobody graded: b (row 4), c (row 5)" in manifest.meta.notes


@pytest.mark.parametrize("ranks", [(), ("none", "some")])
def test_nothing_graded_is_no_matter_of_leaving_out(tmp_path: Path, ranks: tuple[str, ...]) -> None:
    path = save(tmp_path, "image,Level\na.png,\nb.png,NA\n")
    with pytest.raises(DisMixError, match="column 'Level': holds no grade at all"):
        table.read(path, grade="Level", ranks=ranks, skip_ungraded=True)


def test_a_law_is_a_grade(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade,prob_0,prob_1\na,0,,\nb,,0.5,0.5\nc,,,\n")
    manifest = table.read(path, skip_ungraded=True)
    assert manifest.table["image"].tolist() == ["a", "b"]


def test_a_column_of_names_given_as_votes_is_explained(tmp_path: Path) -> None:
    path = save(tmp_path, "image,reader,grade\na.png,Dr A,0\na.png,Dr B,1\n")
    with pytest.raises(DisMixError, match=r"row 2, column 'reader'.*--set annotator='reader'"):
        table.read(path, annotators=("reader",))
    assert table.read(path, annotator="reader").annotators == ["Dr A", "Dr B"]


def test_own_names_appear_in_messages(tmp_path: Path) -> None:
    path = save(tmp_path, "id,Level,Dr A\na,0,0\nb,1,9\n")
    with pytest.raises(DisMixError, match=r"row 3, column 'Dr A': '9' is not a grade.*of 0, 1"):
        table.read(path, image="id", grade="Level", annotators=("Dr A",), ranks=("0", "1"))
    with pytest.raises(DisMixError, match="both grade and an annotator"):
        table.read(path, image="id", grade="Level", annotators=("Level",))
    with pytest.raises(
        DisMixError, match="no column 'Levle'; name it with --grade COLUMN; did you mean"
    ):
        table.read(path, image="id", grade="Levle")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a.png,p1,train,ann,0\n,p2,train,ann,1\n", "row 3, column 'ID': is empty"),
        ("a.png,p1,train,ann,0\nb.png,p2,later,ann,1\n", "row 3, column 'Set': unknown split"),
        ("a.png,p1,train,ann,0\nb.png,p1,test,ann,1\n", "row 3, column 'Patient': group 'p1'"),
        ("a.png,p1,train,ann,0\nb.png,p2,test,,1\n", "row 3, column 'Reader': is empty"),
        ("a.png,p1,train,ann,0\na.png,p2,train,bob,1\n", "row 3, column 'Patient': the rows for"),
        ("a.png,p1,train,ann,0\na.png,p1,train,ann,1\n", "row 3, column 'Level': the votes of"),
    ],
)
def test_mistakes_are_told_by_the_columns_of_the_table(
    tmp_path: Path, rows: str, words: str
) -> None:
    path = save(tmp_path, "ID,Patient,Set,Reader,Level\n" + rows)
    own = {"image": "ID", "group": "Patient", "split": "Set", "annotator": "Reader"}
    with pytest.raises(DisMixError, match=words):
        table.read(path, grade="Level", **own)


def test_an_image_listed_twice_or_missing_is_told_by_its_column(tmp_path: Path) -> None:
    path = save(tmp_path, "ID,Level\na.png,0\na.png,1\n")
    with pytest.raises(DisMixError, match=r"row 3, column 'ID': 'a.png' is listed a second time"):
        table.read(path, image="ID", grade="Level")
    path = save(tmp_path, "ID,Level\na.png,0\nb.png,1\n")
    with pytest.raises(
        DisMixError, match=r"row 2, column 'ID': 2 of 2 images .*the first .*a\.png"
    ):
        read_source(path, image="ID", grade="Level")
    (tmp_path / "a.png").touch()
    with pytest.raises(DisMixError, match="row 3, column 'ID': no such image"):
        read_source(path, image="ID", grade="Level")


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("ID,Level\na,0\nb,1\nc,2\nd,99\n", {"grade": "Level"}, "row 5, column 'Level': 99 is far"),
        ("ID,Level\na,1\nb,2\nc,9\n", {"grade": "Level", "first_rank": 1}, "9 is .* grade, 2; le"),
        ("ID,A,B\na,0,1\nb,1,\nc,2,99\n", {"annotators": ("A", "B")}, "row 4, column 'B': 99 is"),
        (
            "ID,Who,Level\na,x,0\na,y,1\nb,x,1\nb,y,99\n",
            {"annotator": "Who", "grade": "Level"}, "row 5, column 'Level': 99 is far",
        ),
    ],
)  # fmt: skip
def test_a_code_for_a_missing_grade_makes_no_ranks(
    tmp_path: Path, text: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(DisMixError, match=words) as caught:
        table.read(save(tmp_path, text), image="ID", **options)
    assert "leave the cell empty if" in str(caught.value)


def test_sparse_scales_are_taken_and_listed_ranks_believed(tmp_path: Path) -> None:
    sparse = save(tmp_path, "image,grade\n" + "".join(f"{g}.png,{g}\n" for g in (0, 1, 3, 6, 8)))
    assert len(table.read(sparse).meta.ranks) == 9
    told = save(tmp_path, "image,grade\na,0\nb,50\nc,100\n")
    assert table.read(told, ranks=("0", "50", "100")).grades.tolist() == [0, 1, 2]


def test_a_column_in_the_way_is_kept(tmp_path: Path) -> None:
    path = save(tmp_path, "image,file,grade,level\nx,a.png,9,0\ny,b.png,9,1\n")
    manifest = table.read(path, image="file", grade="level")
    assert manifest.grades.tolist() == [0, 1]
    assert manifest.table["grade_original"].tolist() == ["9", "9"]
    assert manifest.table["image_original"].tolist() == ["x", "y"]


def test_none_can_be_a_rank(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\na,None\nb,some\n")
    assert table.read(path, ranks=("none", "some")).grades.tolist() == [0, 1]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    path = save(tmp_path, "image,grade\né.png,0\nb.png,1\n", encoding=encoding)
    with pytest.raises(DisMixError, match=r"row [12]: is .*not UTF-8.*; save it as CSV UTF-8"):
        table.read(path)


def test_parquet_needs_pyarrow_or_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        path.write_bytes(b"PAR1")
        with pytest.raises(DisMixError, match="Parquet needs pyarrow"):
            table.read(path)
        return
    pd.DataFrame({"image": ["a", "b"], "grade": [0, 1]}).to_parquet(path)
    assert table.read(path).grades.tolist() == [0, 1]


def test_numbers_in_names_are_meant_by_numbers(tmp_path: Path) -> None:
    scale = ("1", "2", "3", "4", "5")
    path = save(tmp_path, "image,grade\na,1\nb,1.0\nc,5\n")
    assert table.read(path, ranks=scale).grades.tolist() == [0, 0, 4]
    assert table.read(path, ranks=scale, first_rank=1).grades.tolist() == [0, 0, 4]
    words = ("1_mild", "2_moderate", "5_severe")
    assert table.read(path, ranks=words).grades.tolist() == [0, 0, 2]
    path = save(tmp_path, "image,grade\na,0\nb,1\nc,2\n")
    with pytest.raises(DisMixError, match=r"column 'grade': '0' is not a grade.* 1, 2, 3$"):
        table.read(path, ranks=("1", "2", "3"))
    with pytest.raises(DisMixError, match="'first_rank': is 1, and the lowest rank is called '0_"):
        table.read(path, ranks=("0_no", "1_mild", "2_severe"), first_rank=1)


@pytest.mark.parametrize("cells", [("1", "2", "3"), ("1", "", "3")])
def test_a_lowest_rank_that_no_number_means_is_told(tmp_path: Path, cells: tuple[str, ...]) -> None:
    path = save(tmp_path, "image,a,b\n" + "".join(f"{i},{c},2\n" for i, c in enumerate(cells)))
    names, people = ("none", "mild", "severe", "worst"), ("a", "b")
    with pytest.warns(UserWarning, match="1 is 'mild'; add --set first_rank=1 if 1 is 'none'"):
        found = table.read(path, ranks=names, annotators=people)
    assert found.votes[0].tolist() == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = table.read(path, ranks=names, annotators=people, first_rank=1)
        assert found.votes[0].tolist() == [0, 1]
        words = save(tmp_path, "image,grade\na,mild\nb,severe\n", "words.csv")
        assert table.read(words, ranks=names).grades.tolist() == [1, 2]
    with pytest.raises(DisMixError, match="; if 1 is 'none', add --set first_rank=1"):
        table.read(path, ranks=names[:3], annotators=people)


def test_a_number_that_may_mean_two_ranks_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\na,NC\nb,G4\nc,3\n")
    gleason = ("NC", "G3", "G4", "G5")
    with pytest.raises(DisMixError, match=r"row 4, column 'grade': '3' may mean .*'G3', or 'G5'"):
        table.read(path, ranks=gleason)
    with pytest.raises(DisMixError, match=r"such as 0_NC,1_G3,2_G4,3_G5$"):
        table.read(path, ranks=gleason)
    counted = save(tmp_path, "image,grade\na,0\nb,2\nc,3\n", "n.csv")
    names = ("0_NC", "1_G3", "2_G4", "3_G5")
    assert table.read(counted, ranks=names).grades.tolist() == [0, 2, 3]
    # Names whose numbers are the positions say the same either way.
    path = save(tmp_path, "image,grade\na,1\nb,KL-2\nc,2\n")
    assert table.read(path, ranks=("KL-0", "KL-1", "KL-2")).grades.tolist() == [1, 2, 2]
    scale = ("KL-1", "KL-2", "KL-3")
    with pytest.raises(DisMixError, match="'1' may mean the rank called 'KL-1', or 'KL-2'"):
        table.read(path, ranks=scale)
    assert table.read(path, ranks=scale, first_rank=1).grades.tolist() == [0, 1, 1]


def test_parquet_has_floats_where_grades_have_gaps(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    cells = {"image": ["a", "b", "c"], "grade": [1, 2, 3], "x": [1.0, None, 3.0]}
    pd.DataFrame(cells).to_parquet(path)
    manifest = table.read(path, annotators=("x",), ranks=("1", "2", "3"))
    assert manifest.grades.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(manifest.votes[:, 0], [0, np.nan, 2])
    with pytest.raises(DisMixError, match=r"'3\.0' is not a grade; write one of 1, 2"):
        table.read(path, grade="x", ranks=("1", "2"))


@pytest.mark.parametrize(
    ("header", "options", "words"),
    [
        ("x,grade", {"image": "x", "grade": "X"}, "'x' is both image and grade; name it once"),
        ("image,grade", {"group": "image"}, "'image' is both image and group"),
        ("image,a", {"annotators": ("a", "A")}, "'a' is an annotator twice"),
        ("image,a,annotator_a", {"annotators": ("a",)}, "both be the votes of annotator 'a'"),
        (
            "image,a,annotator_a", {"annotators": ("annotator_a", "a")},
            "columns 'a' and 'annotator_a' would both be the votes of annotator 'a'; rename one",
        ),
        (
            "image,annotator,grade,a", {"annotators": ("a",)},
            "row 1: column 'annotator' says that a row is a vote, --annotator that a column is",
        ),
        ("image,who,grade,a", {"annotator": "who", "annotators": ("a",)}, "'who' says that a row"),
    ],
)  # fmt: skip
def test_a_column_has_one_meaning(
    tmp_path: Path, header: str, options: dict[str, object], words: str
) -> None:
    rows = "".join(f"{name}{',0' * header.count(',')}\n" for name in ("a.png", "b.png"))
    with pytest.raises(DisMixError, match=words):
        table.read(save(tmp_path, f"{header}\n{rows}"), **options)


def test_columns_that_are_named_go_before_those_that_are_found(tmp_path: Path) -> None:
    path = save(tmp_path, "image,annotator\na.png,0\nb.png,1\n")
    assert table.read(path, grade="annotator").grades.tolist() == [0, 1]
    path = save(tmp_path, "image,grade,second\na.png,0,1\nb.png,1,1\n")
    assert table.read(path, annotators=("grade", "second")).annotators == ["grade", "second"]


def test_a_column_in_the_way_gets_a_name_that_is_free(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade,level,grade_original\na.png,9,0,x\nb.png,9,1,y\n")
    manifest = table.read(path, grade="level")
    assert manifest.table["grade_original"].tolist() == ["x", "y"]
    assert manifest.table["grade_original_original"].tolist() == ["9", "9"]


def test_columns_about_annotators_are_no_votes_in_the_long_form(tmp_path: Path) -> None:
    text = "image,annotator,annotator_level,grade\na.png,ann,senior,0\na.png,bob,4.5,1\n"
    manifest = table.read(save(tmp_path, text))
    assert manifest.annotators == ["ann", "bob"]
    assert "left out the column 'annotator_level'" in manifest.meta.notes


def test_an_image_without_a_name_is_missing_whatever_the_ending(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\n.,0\n/,1\n")
    with pytest.raises(DisMixError, match="2 of 2 images are missing"):
        read_source(path, suffix="png")


@pytest.mark.parametrize("folder", ["/home/ann/", "C:\\ann\\"])
def test_a_folder_is_no_cure_for_whole_paths(tmp_path: Path, folder: str) -> None:
    path = save(tmp_path, f"image,grade\n{folder}a.png,0\n{folder}b.png,1\n")
    for images in ("", "in"):
        with pytest.raises(DisMixError, match=r"2 of 2 images are missing.*has whole paths"):
            read_source(path, images=images)


def test_a_name_too_long_is_a_missing_image(tmp_path: Path) -> None:
    path = save(tmp_path, f"image,grade\n{'a' * 300}.png,0\nb.png,1\n")
    (tmp_path / "b.png").touch()
    with pytest.raises(DisMixError, match="row 2, column 'image': no such image"):
        read_source(path)


def test_a_manifest_is_not_imported_again_without_a_word(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\na.png,1\nb.png,2\n")
    manifest = table.read(path, first_rank=1, bits=12)
    write_manifest(manifest, tmp_path / "m.csv")
    with pytest.warns(UserWarning, match=r"m\.csv: seems .* since m\.meta\.json lies"):
        again = table.read(tmp_path / "m.csv")
    assert (manifest.meta.ranks, again.meta.ranks) == (("1", "2"), ("0", "1"))
