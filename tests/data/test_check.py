import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock, call

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dismix.data.check import check_manifest, check_path, read_leniently
from dismix.data.findings import Finding, Report
from dismix.data.manifest import ManifestMeta, make_manifest
from dismix.errors import DisMixError


def pictures(folder: Path, names: Sequence[str], *, colour: bool = True, size: int = 48) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        seed = zlib.crc32(name.encode())
        shape = (size, size, 3) if colour else (size, size)
        pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)


def save(folder: Path, text: str, ranks: Sequence[str] | None = None) -> Path:
    path = folder / "manifest.csv"
    path.write_text(text)
    if ranks is not None:
        (folder / "manifest.meta.json").write_text(json.dumps({"ranks": list(ranks)}))
    return path


def only(report: Report, code: str) -> Finding:
    found = report.of(code)
    assert len(found) == 1, str(report)
    return found[0]


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def test_a_clean_manifest_has_no_finding_but_scarcity(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png", "c.png", "d.png"])
    text = "image,split,grade\na.png,train,0\nb.png,train,1\nc.png,test,0\nd.png,test,1\n"
    report = check_path(save(tmp_path, text))
    assert codes(report) == {"few-images"}
    assert report.ok
    assert report.counts == {"train": [1, 1], "test": [1, 1]}
    assert report.images_checked


def test_everything_wrong_with_a_table_is_listed_at_once(tmp_path: Path) -> None:
    text = (
        "image,split,group,grade,annotator_x\n"
        "a.png,train,p1,0,1\n"  # row 2
        "b.png,train,p2,7,1\n"  # outside
        "c.png,trian,p3,1,9\n"  # split, outside
        "a.png,test,p1,1,1.5\n"  # twice, group in two splits, not whole
        "d.png,val,p4,,\n"  # not graded
        ",train,p5,2,one\n"  # no image, no number
    )
    report = check_path(save(tmp_path, text, ["low", "mid", "high"]), images=False)
    assert not report.ok
    bad = {(f.code, f.rows) for f in report.of("error")}
    assert {
        ("bad-split", (4,)),
        ("group-in-two-splits", (5,)),
        ("image-twice", (5,)),
        ("no-image", (7,)),
        ("not-graded", (6,)),
    } <= bad
    outside = report.of("out-of-range")
    assert {f.rows for f in outside} == {(3,), (4,)}
    assert any("column 'grade', row 3: 7 is outside the range 0..2" in str(f) for f in outside)
    assert any("column 'annotator_x', row 4: 9" in str(f) for f in outside)
    assert only(report, "not-a-grade").rows == (5, 7)
    # What is valid is still counted: rows 2 and 3 by vote, row 7 by grade, row 5 in test.
    assert report.counts == {"train": [0, 2, 1], "test": [0, 1, 0]}


def test_many_problems_of_a_kind_are_one_finding(tmp_path: Path) -> None:
    rows = "".join(f"{i}.png,9\n" for i in range(40))
    report = check_path(save(tmp_path, f"image,grade\n{rows}", ["0", "1"]), images=False)
    finding = only(report, "out-of-range")
    assert len(finding.rows) == len(finding.files) == 40
    assert "and 35 more rows" in finding.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("picture,grade\na,0\n", "no-image-column"),
        ("image,level\na,0\n", "no-grade-column"),
        ("image,grade\n", "no-rows"),
        ("", "unreadable-table"),
        ('image,grade\n"a,0\n', "unreadable-table"),
        ("image,grade\na,0\nb,1,2\n", "unreadable-table"),
    ],
)
def test_hopeless_tables_are_reported_not_raised(tmp_path: Path, text: str, code: str) -> None:
    report = check_path(save(tmp_path, text))
    assert codes(report) >= {code}
    assert not report.ok


@pytest.mark.parametrize("ranks", ["3", '["low", "low"]'])
def test_bad_meta_is_one_finding_among_others(tmp_path: Path, ranks: str) -> None:
    path = save(tmp_path, "image,grade\na.png,0\nb.png,1\n")
    (tmp_path / "manifest.meta.json").write_text(f'{{"ranks": {ranks}}}')
    report = check_path(path)
    assert {"bad-meta", "missing-image"} <= codes(report)


def test_missing_and_unreadable_images(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:900])
    (tmp_path / "d.png").write_text("text")
    text = "image,grade\na.png,0\nB.jpg,1\nc.png,0\nd.png,1\nsub/e.png,1\n"
    report = check_path(save(tmp_path, text))
    missing = {f.rows: f.cure for f in report.of("missing-image")}
    assert missing[(3,)] == "did you mean 'b.png'?"
    assert "no folder 'sub'" in missing[(6,)]
    assert {f.rows for f in report.of("unreadable-image")} == {(4,), (5,)}
    assert all(f.level == "error" for f in report.of("missing-image", "unreadable-image"))
    assert codes(check_path(tmp_path, images=False)) == {"few-images", "no-test"}


def test_twins_say_files_splits_and_grades(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png", "c.png"])
    for copy, original in (("a2", "a"), ("b2", "b"), ("c2", "c")):
        (tmp_path / f"{copy}.png").write_bytes((tmp_path / f"{original}.png").read_bytes())
    text = (
        "image,split,grade,annotator_x,annotator_y\n"
        "a.png,train,0,,\na2.png,test,2,,\n"
        "b.png,train,1,,\nb2.png,train,2,,\n"
        "c.png,train,,1,2\nc2.png,train,,1,2\n"
    )
    report = check_path(save(tmp_path, text))
    leak = only(report, "leak")
    assert leak.message == "a.png (train, grade 0) and a2.png (test, grade 2) are byte-identical"
    assert (leak.level, leak.rows, leak.files) == ("error", (2, 3), ("a.png", "a2.png"))
    conflict = only(report, "twin-conflict")
    assert (conflict.level, conflict.rows) == ("warning", (4, 5))
    same = only(report, "twin")
    assert same.level == "note"
    assert "c.png (train, votes 1,2) and c2.png (train, votes 1,2)" in same.message


def test_findings_speak_of_grades_as_the_scale_does(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png", "c.png"])
    for copy in "abc":
        (tmp_path / f"{copy}2.png").write_bytes((tmp_path / f"{copy}.png").read_bytes())
    text = (
        "image,split,grade,annotator_x,annotator_y,prob_0,prob_1,prob_2\n"
        "a.png,train,0,,,,,\na2.png,test,1,,,,,\n"
        "b.png,train,,0,1,,,\nb2.png,train,,0,1,,,\n"
        "c.png,train,1,,,,,\nc2.png,test,,,,0.5,0.5,0\n"
    )
    rows = "".join(f"{i}.png,val,,0,,,,\n" for i in range(20))
    report = check_path(save(tmp_path, text + rows, ["1", "2", "3"]))
    said = " ".join(finding.message for finding in report.findings)
    assert "a.png (train, grade 1) and a2.png (test, grade 2)" in said
    assert "b.png (train, votes 1,2) and b2.png (train, votes 1,2)" in said
    assert "c2.png (test, soft label, mean rank 1.50)" in said
    assert "rank 3 has no image" in said
    assert "val has no image of rank 2" in said
    everything = "image,annotator_x\n" + "".join(f"{i}.png,0\n" for i in range(20))
    finding = only(
        check_path(save(tmp_path, everything, ["1", "2"]), images=False), "one-grade-only"
    )
    assert finding.message == "annotator 'x' gave all 20 images grade 1"


def test_a_picture_with_many_copies_is_one_short_finding(tmp_path: Path) -> None:
    pictures(tmp_path, ["0.png"])
    for copy in range(1, 30):
        (tmp_path / f"{copy}.png").write_bytes((tmp_path / "0.png").read_bytes())
    rows = "".join(f"{i}.png,{i % 2}\n" for i in range(30))
    finding = only(check_path(save(tmp_path, f"image,grade\n{rows}")), "twin-conflict")
    assert len(finding.files) == 30
    assert "and 24 more are byte-identical" in finding.message


SOFT = "image,split,grade,prob_0,prob_1,prob_2\n"


def test_soft_labels_are_not_called_grades(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    text = f"{SOFT}a.png,train,,0,0.3,0.7\nb.png,train,,1,0,0\n"
    report = check_path(save(tmp_path, text, ["low", "mid", "high"]))
    assert str(report).splitlines()[0].endswith(": 2 images with soft labels, 3 ranks")
    assert report.counts == {"train": [1, 0, 1]}
    assert report.to_dict()["soft"] == 2
    told = only(report, "soft-labels").message
    assert told.startswith("2 images have a soft label (prob_0 to prob_2) and no grade, 1 of them")
    assert not report.of("no-test")


def test_graded_images_beside_soft_labels_are_counted_apart(tmp_path: Path) -> None:
    text = f"{SOFT}a.png,train,,0,0.3,0.7\nb.png,train,1,,,\nc.png,train,0,1,0,0\n"
    report = check_path(save(tmp_path, text), images=False)
    assert (
        str(report)
        .splitlines()[0]
        .endswith("2 graded images and 1 image with soft labels, 3 ranks")
    )
    assert only(report, "no-test")
    plain = check_path(save(tmp_path, "image,grade\na.png,0\nb.png,1\n"), images=False)
    assert plain.soft == 0
    assert not plain.of("soft-labels")


def test_mixes_that_look_alike_are_one_note(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    for source, names in {"a.png": ["a1.png", "a2.png"], "b.png": ["b1.png"]}.items():
        for name in names:
            (tmp_path / name).write_bytes((tmp_path / source).read_bytes())
    laws = {"a": "0,0.3,0.7", "a1": "0,0.4,0.6", "a2": "1,0,0"}
    rows = "".join(f"{name}.png,train,,{law}\n" for name, law in laws.items())
    # A photograph and a mix like it.
    rows += "b.png,train,2,,,\nb1.png,train,,0,0.5,0.5\n"
    report = check_path(save(tmp_path, SOFT + rows))
    alike = only(report, "alike")
    assert alike.level == "note"
    assert "4 of 4 images with soft labels" in alike.message
    assert "(2 groups)" in alike.message
    assert alike.rows == (2, 3, 4, 6)
    assert not report.of("twin", "twin-conflict", "leak")


def test_mixes_alike_in_two_ways_are_counted_once(tmp_path: Path) -> None:
    y, x = np.mgrid[0:96, 0:96]
    wave = np.sin(x / 5 + np.sin(y / 7)) * 60 + np.cos(y / 3 + x / 11) * 40 + 120
    # Two identical files, and a darker copy: a group of bytes and a group of pictures.
    for name, pixels in (("a.png", wave), ("b.png", wave), ("c.png", wave * 0.8 + 10)):
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name)
    rows = "".join(f"{name}.png,train,,0,0.5,0.5\n" for name in "abc")
    alike = only(check_path(save(tmp_path, SOFT + rows)), "alike")
    assert "3 of 3 images with soft labels" in alike.message
    assert "(1 group)" in alike.message
    assert alike.rows == (2, 3, 4)


def test_a_mix_like_a_test_image_and_photographs_alike_are_still_named(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    for name, source in {"a1.png": "a.png", "b1.png": "b.png", "b2.png": "b.png"}.items():
        (tmp_path / name).write_bytes((tmp_path / source).read_bytes())
    text = (
        f"{SOFT}a.png,test,1,,,\na1.png,train,,0,0.25,0.75\n"
        "b.png,train,0,,,\nb1.png,train,2,,,\nb2.png,train,,0,0,1\n"
    )
    report = check_path(save(tmp_path, text))
    leak = only(report, "leak")
    assert "a1.png (train, soft label, mean rank 1.75)" in leak.message
    assert "decid" not in leak.cure
    conflict = only(report, "twin-conflict")
    assert conflict.rows == (4, 5, 6)
    assert not report.of("alike")


def test_near_twins_can_be_switched_off(tmp_path: Path) -> None:
    y, x = np.mgrid[0:96, 0:96]
    wave = np.sin(x / 5 + np.sin(y / 7)) * 60 + np.cos(y / 3 + x / 11) * 40 + 120
    for name, pixels in (("a.png", wave), ("b.png", wave * 0.8 + 10), ("c.png", wave.T)):
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name)
    Image.fromarray(wave[:, ::-1].astype(np.uint8)).save(tmp_path / "d.png")
    text = "image,split,grade\na.png,train,0\nb.png,val,0\nc.png,train,1\nd.png,test,1\n"
    path = save(tmp_path, text)
    leak = only(check_path(path), "leak")
    assert leak.files == ("a.png", "b.png")
    assert "show the same picture (similarity" in leak.message
    assert not check_path(path, near=False).of("leak")
    mirrored = check_path(path, mirrored=True).of("leak")
    assert any("mirrored" in f.message and "d.png" in f.files for f in mirrored)


def test_an_image_listed_twice_is_not_its_own_twin(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    report = check_path(save(tmp_path, "image,grade\na.png,0\nb.png,1\na.png,1\n"))
    assert only(report, "image-twice").rows == (4,)
    assert not report.of("twin", "twin-conflict", "leak")


def test_ranks(tmp_path: Path) -> None:
    rows = [f"{i}.png,train,{g}" for i, g in enumerate([0] * 12 + [1] * 3)] + ["x.png,test,3"]
    text = "image,split,grade\n" + "\n".join(rows) + "\n"
    report = check_path(save(tmp_path, text, ["none", "mild", "moderate", "severe"]), images=False)
    assert "rank 1 (mild) has 3 training images" in only(report, "few-images").message
    assert "rank 2 (moderate) has no image" in only(report, "rank-gap").message
    error = only(report, "rank-not-in-train")
    assert error.level == "error"
    assert "rank 3 (severe)" in error.message


def test_ranks_that_validation_or_test_lack(tmp_path: Path) -> None:
    splits = {"train": (0, 1, 2, 3), "val": (0, 1), "test": (2, 3)}
    rows = [
        f"{split}{rank}{i}.png,{split},{rank}"
        for split, ranks in splits.items()
        for rank in ranks
        for i in range(12)
    ]
    text = "image,split,grade\n" + "\n".join(rows) + "\n"
    names = ["none", "mild", "moderate", "severe", "never"]
    report = check_path(save(tmp_path, text, names), images=False)
    val, test = report.of("rank-not-in-part")
    assert (val.level, test.level) == ("warning", "warning")
    # Not the last rank, which no image has at all.
    assert val.message == "val has no image of ranks 2 (moderate), 3 (severe)"
    assert "checkpoints are chosen without them" in val.cure
    assert test.message == "test has no image of ranks 0 (none), 1 (mild)"
    # Whole parts, and parts that are not there, lack nothing.
    whole = text.replace("val,0", "train,0").replace("val,1", "train,1").replace("test,", "train,")
    assert not check_path(save(tmp_path, whole, names), images=False).of("rank-not-in-part")


def test_grades_that_start_at_one(tmp_path: Path) -> None:
    path = save(tmp_path, "image,grade\na,1\nb,2\n")
    report = check_path(path, images=False)
    assert "lowest grade is 1" in only(report, "first-rank").message
    assert "first-rank" not in codes(check_path(save(tmp_path, "image,grade\na,0\nb,1\n")))


def test_a_start_above_one_is_told_as_it_is(tmp_path: Path) -> None:
    report = check_path(save(tmp_path, "image,grade\na,6\nb,7\n"), images=False)
    assert "--set first_rank=6" in only(report, "first-rank").cure
    # Somebody voted 0, so the scale begins there, whatever the majorities are.
    text = "image,annotator_a,annotator_b,annotator_c\na,0,1,1\nb,2,2,2\n"
    assert "first-rank" not in codes(check_path(save(tmp_path, text), images=False))


def test_splits_are_missed(tmp_path: Path) -> None:
    report = check_path(save(tmp_path, "image,split,grade\na,test,0\nb,test,1\n"), images=False)
    assert "no-train" in codes(report)
    assert "no-test" not in codes(report)


def test_annotators(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{i}.png,{rng.integers(3)},{rng.integers(3)},," for i in range(60)]
    rows = [row + ("1" if i < 25 else "") for i, row in enumerate(rows)]
    text = "image,annotator_a,annotator_b,annotator_idle,annotator_fixed\n" + "\n".join(rows)
    report = check_path(save(tmp_path, text), images=False)
    assert "annotator 'idle' graded nothing" in only(report, "no-votes").message
    assert "annotator 'fixed' gave all 25" in only(report, "one-grade-only").message
    assert only(report, "low-agreement").level == "note"
    agree = "image,annotator_a,annotator_b\n" + "".join(f"{i},{i % 3},{i % 3}\n" for i in range(30))
    assert "low-agreement" not in codes(check_path(save(tmp_path, agree), images=False))


def test_long_form_lists_every_double_vote(tmp_path: Path) -> None:
    text = "image,annotator,grade\na,x,0\na,x,1\na,y,1\nb,x,1\nb,y,0\nb,y,1\nb,y,1\nc,x,\nc,x,1\n"
    report = check_path(save(tmp_path, text), images=False)
    assert {f.rows for f in report.of("voted-twice")} == {(2, 3), (6, 7, 8)}
    assert "annotator 'x' gave image 'a' grades 0 and 1" in report.of("voted-twice")[0].message
    assert sum(report.counts["train"]) == 3
    broken = check_path(save(tmp_path, "image,annotator,grade\na,,0\n"), images=False)
    assert codes(broken) == {"long-form"}


def test_sizes_and_colours(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    pictures(tmp_path, ["c.png"], colour=False, size=200)
    path = save(tmp_path, "image,grade\na.png,0\nb.png,1\nc.png,1\n")
    report = check_path(path)
    assert "from 48 x 48 to 200 x 200" in only(report, "mixed-sizes").message
    mixed = only(report, "mixed-colour")
    assert (mixed.rows, mixed.files) == ((4,), ("c.png",))
    table = pd.DataFrame({"image": ["a.png", "b.png"], "grade": [0, 1]})
    colour = make_manifest(table, ManifestMeta(ranks=("0", "1"), grey=True), tmp_path)
    assert "not-grey" in codes(check_manifest(colour))
    pictures(tmp_path, ["d.png", "e.png"], colour=False)
    table = pd.DataFrame({"image": ["d.png", "e.png"], "grade": [0, 1]})
    unsaid = check_manifest(make_manifest(table, ManifestMeta(ranks=("0", "1")), tmp_path))
    assert "--set grey=true" in only(unsaid, "all-grey").cure


def test_transparent_pixels_are_noted(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png", "c.png", "d.png"])
    with Image.open(tmp_path / "a.png") as image:
        solid, clear, keyed = image.convert("RGBA"), image.convert("RGBA"), image.convert("P")
    clear.putpixel((3, 3), (200, 200, 200, 100))
    solid.save(tmp_path / "b.png")
    clear.save(tmp_path / "c.png")
    keyed.save(tmp_path / "d.png", transparency=keyed.getpixel((0, 0)))
    path = save(tmp_path, "image,grade\na.png,0\nb.png,1\nc.png,1\nd.png,0\n")
    finding = only(check_path(path, near=False), "transparent")
    # Not b, whose alpha channel lets nothing through.
    assert (finding.level, finding.rows) == ("note", (4, 5))
    assert "2 of 4 images have transparent pixels, which are read as black" in finding.message
    solid.save(tmp_path / "c.png")
    solid.save(tmp_path / "d.png")
    assert not check_path(path, near=False).of("transparent")


def test_images_that_show_nothing_and_dark_sets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "abcd":
        pixels = rng.integers(0, 4096, (48, 48), dtype=np.uint16) * (name != "c")
        Image.fromarray(pixels.astype(np.uint16)).save(tmp_path / f"{name}.png")
    text = "image,split,grade\na.png,train,0\nb.png,train,1\nc.png,test,0\nd.png,test,1\n"
    report = check_path(save(tmp_path, text))
    assert only(report, "blank-image").files == ("c.png",)
    assert only(report, "blank-image").rows == (4,)
    assert "6 % of white" in only(report, "dark-images").message
    meta = {"ranks": ["0", "1"], "bits": 12, "grey": True}
    (tmp_path / "manifest.meta.json").write_text(json.dumps(meta))
    assert "dark-images" not in codes(check_path(tmp_path))


def test_paths(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match=r"holds no manifest\.csv and no known layout"):
        check_path(tmp_path)
    with pytest.raises(DisMixError, match="no such file or folder"):
        check_path(tmp_path / "absent.csv")
    for grade in "01":
        pictures(tmp_path / "set" / grade, [f"{grade}{i}.png" for i in range(12)])
    report = check_path(tmp_path / "set")
    assert report.counts == {"train": [12, 12]}
    assert report.ok
    assert read_leniently(tmp_path / "absent.csv")[0] is None


@pytest.mark.data
def test_idrid(shared_data: Path) -> None:
    report = check_path(shared_data / "idrid")
    leak = only(report, "leak")
    assert [Path(f).stem for f in leak.files] == ["IDRiD_118", "IDRiD_064"]
    assert "IDRiD_118.jpg (train, grade 0)" in leak.message
    assert "IDRiD_064.jpg (test, grade 3)" in leak.message
    assert not report.ok
    assert report.of("error") == [leak]

    def pairs(code: str) -> dict[tuple[str, ...], str]:
        return {tuple(Path(f).stem[-3:] for f in t.files): t.message for t in report.of(code)}

    assert set(pairs("twin")) == {("045", "333"), ("073", "375"), ("079", "279")}
    conflicts = pairs("twin-conflict")
    assert set(conflicts) == {("028", "327"), ("021", "391"), ("013", "397")}
    assert "grade 4" in conflicts["028", "327"]
    assert "grade 3" in conflicts["028", "327"]
    identical = [f for f in report.findings if "byte-identical" in f.message]
    assert len(identical) == 6
    assert len(report.findings) == 7


@pytest.mark.slow
@pytest.mark.data
def test_koa_is_clean(shared_data: Path) -> None:
    stages: dict[str, tuple[int, int]] = {}
    report = check_path(
        shared_data / "koa",
        progress=lambda stage, done, total: stages.update({stage: (done, total)}),
    )
    assert report.findings == ()
    assert stages == {"reading images": (8260, 8260), "comparing images": (8260, 8260)}


def test_long_form_lists_bad_votes_by_their_own_lines(tmp_path: Path) -> None:
    text = "image,annotator,grade\na.png,x,1\n\na.png,y,q\nb.png,x,0\nb.png,y,0\nb.png,y,0.0\n"
    report = check_path(save(tmp_path, text), images=False)
    assert only(report, "not-a-grade").rows == (4,)
    assert "column 'grade'" in only(report, "not-a-grade").message
    assert "voted-twice" not in codes(report)


def test_half_grades_have_a_cure_and_slips_another(tmp_path: Path) -> None:
    report = check_path(save(tmp_path, "image,grade\na.png,1.5\nb.png,1\n"), images=False)
    assert "can be ranks of their own (--ranks 1,1.5,2" in only(report, "not-a-grade").cure
    report = check_path(save(tmp_path, "image,grade\na.png,o\nb.png,1\n"), images=False)
    assert "--ranks" not in only(report, "not-a-grade").cure


def test_one_grade_only_is_no_scale(tmp_path: Path) -> None:
    text = "image,grade\n" + "".join(f"{i}.png,0\n" for i in range(12))
    report = check_path(save(tmp_path, text), images=False)
    assert "rank 1 has no image" in only(report, "rank-gap").message


def test_cures_fit_the_fault(tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "text.png").write_text("text")
    text = "image,grade\ngone.png,0\nfolder.png,1\ntext.png,1\n"
    report = check_path(save(tmp_path, text))
    assert "link to a file that is gone" in only(report, "missing-image").cure
    cures = [f.cure for f in report.of("unreadable-image")]
    assert cures == [
        "name a file",
        "use JPEG, PNG, WebP, TIFF, BMP or DICOM, or leave the row out with --write-readable",
    ]


def test_a_folder_of_missing_images_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(tmp_path / "in", ["a.png", "b.png", "c.png"])
    listdir = Mock(wraps=os.listdir)
    monkeypatch.setattr(os, "listdir", listdir)
    path = save(tmp_path, "image,grade\nin/a.jpg,0\nin/b.jpg,1\nin/C.jpg,1\nin/d.jpg,0\n")
    cures = [finding.cure for finding in check_path(path).of("missing-image")]
    assert cures[:3] == [f"did you mean '{name}.png'?" for name in "abc"]
    assert "correct the path" in cures[3]
    assert listdir.call_args_list.count(call(tmp_path / "in")) == 1


@pytest.mark.skipif(os.name == "nt", reason="there they are paths")
def test_paths_of_windows_and_text_instead_of_paths_are_told(tmp_path: Path) -> None:
    pictures(tmp_path / "in", ["a.png"])
    path = save(tmp_path, f"image,grade\nin/a.png,0\nin\\a.png,1\n{'word ' * 100},0\n")
    found = check_path(path).of("missing-image")
    assert [finding.rows for finding in found] == [(3,), (4,)]
    assert "write / instead of \\" in found[0].cure
