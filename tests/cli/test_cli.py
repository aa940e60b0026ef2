"""The command line as a user meets it: output, exit codes, and one-line errors."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from dismix.cli import main
from dismix.data.manifest import read_manifest


@pytest.fixture
def dismix(monkeypatch, capsys):
    """Run the command line in this process; return (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dismix", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """A clinic's own table: three annotators, gaps, other column names."""
    rows = []
    for i in range(60):
        name = f"img{i:02d}.png"
        Image.effect_noise((40, 40), 60 + i % 3 * 30).rotate(i).save(tmp_path / name)
        grade = i % 3
        rows.append(
            {
                "file": name,
                "patient": f"p{i // 2}",
                "dr_ann": grade,
                "dr_bob": grade if i % 5 else min(2, grade + 1),
                "dr_cy": grade if i % 2 else "",
            }
        )
    path = tmp_path / "clinic.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def import_clinic(dismix, clinic: Path) -> Path:
    manifest = clinic.parent / "manifest.csv"
    code, out, err = dismix(
        "data", "import", clinic, "-o", manifest, "--image", "file", "--group", "patient",
        "--annotator", "dr_ann", "--annotator", "dr_bob", "--annotator", "dr_cy",
        "--ranks", "none,mild,severe",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "60 images, 3 ranks: none, mild, severe" in out
    assert "3 annotators, 150 votes" in out
    return manifest


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\nsys.argv = ['dismix', 'data', '--help']\n"
        "from dismix.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'numpy'} & set(sys.modules), 'heavy import'\n"
    )
    command = [sys.executable, "-X", "importtime", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-300:]
    assert "phantom" in result.stdout


def test_version(dismix):
    assert dismix("--version")[1].startswith("dismix 0.")


def test_own_table_from_import_to_split(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    code, out, _ = dismix("data", "check", manifest, "-q")
    assert code == 0, out
    code, out, _ = dismix("data", "annotators", "agreement", manifest, "--json")
    assert json.loads(out)["annotators"] == ["dr_ann", "dr_bob", "dr_cy"]
    split = clinic.parent / "split.csv"
    code, out, _ = dismix("data", "split", manifest, "-o", split, "--val", "0.2")
    data = read_manifest(split)
    assert 8 <= (data.table["split"] == "val").sum() <= 16
    assert data.table.groupby("group")["split"].nunique().max() == 1


@pytest.mark.parametrize("name", ["patient", "Patient ID"])
def test_patients_that_no_split_would_keep_together_are_named(dismix, clinic, name):
    pd.read_csv(clinic).rename(columns={"patient": name}).to_csv(clinic, index=False)
    manifest, split = clinic.parent / "manifest.csv", clinic.parent / "split.csv"
    told = ("data", "import", clinic, "-o", manifest, "--image", "file", "--annotator", "dr_ann")
    option = "--group patient" if name == "patient" else "--group 'Patient ID'"
    code, _, err = dismix(*told)
    assert (code, err.count("\n")) == (0, 1)
    assert f"warning: column '{name}' looks like a patient: add {option}, or splits part" in err
    parts = ("data", "split", manifest, "-o", split, "--test", "0.2", "--val", "0.2")
    code, _, err = dismix(*parts)
    assert (code, err.count("\n")) == (0, 1)
    assert f"column '{name}' looks like a patient, but is no group" in err
    assert option in err
    out = dismix("data", "check", split, "--no-images")[1]
    assert "patients-unused" in out
    assert "of 30 are in several splits; import the table again with" in out
    for command in ((*told, "--group", name), parts, ("data", "check", split, "--no-images")):
        code, out, err = dismix(*command)
        assert (code, err) == (0, "")
        assert "looks like a patient" not in out


def test_a_table_without_a_test_part_gets_one(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    split = clinic.parent / "split.csv"
    code, _, _ = dismix("data", "split", manifest, "-o", split, "--test", "0.2", "--val", "0.2")
    assert code == 0
    data = read_manifest(split)
    assert set(data.table["split"]) == {"train", "val", "test"}
    assert data.table.groupby("group")["split"].nunique().max() == 1


def test_a_split_that_lacks_a_part_is_not_written(dismix, tmp_path):
    rows = "".join(f"{i}.png,p{i // 5},{i // 10}\n" for i in range(30))
    (tmp_path / "m.csv").write_text(f"image,group,grade\n{rows}")
    told = ("data", "split", tmp_path / "m.csv", "-o", tmp_path / "s.csv", "--val", "0.2")
    code, _, err = dismix(*told, "--test", "0.2")
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot make a validation part" in err
    assert "such as --val alone" in err
    assert not (tmp_path / "s.csv").exists()
    assert dismix(*told)[0] == 0
    assert len(read_manifest(tmp_path / "s.csv").split("val")) == 15


def test_images_that_nobody_graded_can_be_left_out(dismix, clinic):
    text = clinic.read_text().splitlines()
    # Not graded, and not there either: what is left out need not exist.
    clinic.write_text("\n".join([*text[:5], "gone.png,p2,,,", *text[5:]]) + "\n")
    told = [
        "data", "import", clinic, "-o", clinic.parent / "m.csv", "--image", "file",
        "--group", "patient",
        "--annotator", "dr_ann", "--annotator", "dr_bob", "--annotator", "dr_cy",
    ]  # fmt: skip
    code, _, err = dismix(*told)
    assert (code, err.count("\n")) == (2, 1)
    assert "row 6: nobody graded image 'gone.png'; fill one of the columns 'dr_ann', 'dr_" in err
    assert "--skip-ungraded" in err
    code, out, err = dismix(*told, "--skip-ungraded")
    assert (code, err) == (0, "")
    assert "left out 1 image that nobody graded: gone.png (row 6)" in out
    assert len(read_manifest(clinic.parent / "m.csv")) == 60


def test_images_that_are_missing_can_be_left_out(dismix, clinic):
    for gone in ("img03.png", "img10.png", *(f"img{i}.png" for i in range(50, 55))):
        (clinic.parent / gone).unlink()
    told = [
        "data", "import", clinic, "-o", clinic.parent / "m.csv", "--image", "file",
        "--group", "patient", "--annotator", "dr_ann",
    ]  # fmt: skip
    code, _, err = dismix(*told)
    assert (code, err.count("\n")) == (2, 1)
    assert "row 5, column 'file': 7 of 60 images are missing, the first" in err
    assert "leave such rows out: `dismix data import ... --skip-missing`" in err
    code, out, err = dismix(*told, "--skip-missing")
    assert code == 0
    # Each of them, which the note does not say.
    assert err.count("skipped: row ") == 7
    assert "skipped: row 56: img54.png: no such image" in err
    assert "left out 7 images whose file is missing: img03.png (row 5), " in out
    assert len(read_manifest(clinic.parent / "m.csv")) == 53


def test_folds_are_numbered_files(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    to = clinic.parent / "f.csv"
    code, _, _ = dismix("data", "split", manifest, "-o", to, "--folds", 3, "-q")
    assert code == 0
    held = [read_manifest(clinic.parent / f"f-{k}.csv").split("val").table for k in (1, 2, 3)]
    assert sorted(pd.concat(held)["image"]) == sorted(read_manifest(manifest).table["image"])


def test_consensus_is_written(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    target = clinic.parent / "consensus.csv"
    code, _, err = dismix("data", "annotators", "consensus", manifest, "-o", "consensus.xlsx")
    assert (code, err) == (
        2, "error: consensus.xlsx: cannot write '.xlsx' files; end it .csv\n",
    )  # fmt: skip
    code, out, _ = dismix("data", "annotators", "consensus", manifest, "-o", target)
    assert code == 0
    table = pd.read_csv(target)
    assert len(table) == 60
    assert (table[["p0", "p1", "p2"]].sum(axis=1) - 1).abs().max() < 1e-5
    # The guide says that the majority is the default everywhere.
    assert "60 images, majority" in out
    code, out, _ = dismix(
        "data", "annotators", "consensus", manifest, "-o", target, "--method=dawid_skene"
    )
    assert "60 images, dawid_skene" in out


def test_ties_of_a_consensus_are_counted(dismix, tmp_path):
    header = "image,annotator_1,annotator_2,annotator_3,annotator_4,annotator_5\n"
    rows = ["a,0,0,0,1,1", "b,0,2,2,3,3", "c,1,1,2,2,", "d,0,3,,,", "e,2,2,2,2,2"]
    (tmp_path / "m.csv").write_text(header + "\n".join(rows))
    told = ("data", "annotators", "consensus", tmp_path / "m.csv", "-o", tmp_path / "c.csv")
    code, out, _ = dismix(*told)
    assert code == 0
    # b has 2 and 3 with mean 2; c (1, 2) and d (0, 3) are even.
    assert (
        "\n3 ties: 1 went to the rank nearest the mean, 2, where both were as near, to the" in out
    )
    assert pd.read_csv(tmp_path / "c.csv")["consensus"].tolist() == [0, 2, 1, 0, 2]
    (tmp_path / "m.csv").write_text(header + rows[0] + "\n" + rows[-1])
    assert " tie" not in dismix(*told)[1]


def test_a_table_with_one_grade_is_told_of_its_second_rank(dismix, clinic):
    rows = "".join(f"img{i:02d}.png,0\n" for i in range(4))
    (clinic.parent / "one.csv").write_text(f"image,grade\n{rows}")
    told = ("data", "import", clinic.parent / "one.csv", "-o", clinic.parent / "m.csv")
    out = dismix(*told)[1]
    assert "4 images, 2 ranks: 0, 1" in out
    assert "note: all images have grade '0', none '1' (a scale has two ranks at least)" in out
    (clinic.parent / "one.csv").write_text(f"image,grade\n{rows}img10.png,1\n")
    assert "all images have grade" not in dismix(*told)[1]


def test_contact_sheet_shows_every_grade(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    picture = clinic.parent / "sheet.png"
    code, _, _ = dismix("data", "show", manifest, "-o", picture, "--columns", 4, "--size", 32, "-q")
    assert code == 0
    sheet = Image.open(picture)
    assert sheet.height == 3 * 36 + 4
    assert sheet.getbbox() is not None


def test_simulated_annotators_are_reported(dismix, tmp_path):
    rows = [f"{i}.png,train,{i % 5}" for i in range(100)]
    (tmp_path / "m.csv").write_text("image,split,grade\n" + "\n".join(rows))
    code, out, _ = dismix(
        "data", "annotators", "simulate", tmp_path / "m.csv", "-o", tmp_path / "v.csv",
        "--preset", "50", "--mode", "per_image",
    )  # fmt: skip
    assert code == 0
    assert "wrong majority" in out
    assert len(read_manifest(tmp_path / "v.csv").annotators) == 5


def test_sources_are_listed(dismix):
    out = dismix("data", "sources")[1]
    assert all(name in out for name in ("idrid", "koa", "chaoyang", "crowdgleason", "folders"))


def test_doctor_says_how_to_get_what_is_missing(dismix, monkeypatch, tmp_path):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    code, out, _ = dismix("doctor", "--json")
    entries = {(e["kind"], e["name"]): e for e in json.loads(out)}
    assert code == 0
    assert entries["software", "torch"]["found"]
    assert "$DISMIX_WEIGHTS" in entries["weights", "vq-f8"]["remark"]
    missing = [e for e in entries.values() if e["kind"] == "extra" and not e["found"]]
    assert all("pip install 'dismix[" in e["remark"] for e in missing)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = dismix("doctor")
    assert code == 0
    # Files have to be called so.
    assert all(name in out for kind, name in entries if kind == "weights")
    assert "…" not in out


def test_doctor_reports_without_a_torch_that_loads():
    code = (
        "import sys\nsys.modules['torch'] = None\nsys.argv = ['dismix', 'doctor', '--json']\n"
        "from dismix.cli import main\nmain()\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    entries = {(e["kind"], e["name"]): e for e in json.loads(told.stdout)}
    assert "torch does not load" in entries["device", "any"]["remark"]
    assert ("extra", "ray") in entries


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "check", "absent.csv"), "absent.csv: no such file"),
        (("data", "show", "bad.csv"), "bad.csv, row 3, column 'grade': 'x' is not a whole number"),
        (("data", "import", ".", "-o", "m.csv", "--source", "idird"), "did you mean 'idrid'?"),
        (("data", "import", "empty", "-o", "m.csv"), "empty: looks like none of the known layouts"),
        (("data", "split", "good.csv", "-o", "m.csv"), "nothing to do; give --val"),
        (("data", "split", "good.csv", "-o", "m.csv", "--val", "2"), "not between 0 and 1"),
        (("data", "show", "good.csv", "-o", "sheet.png", "-q"), "b.png: file not found"),
        (("data", "annotators", "agreement", "good.csv"), "good.csv: has no annotators"),
        (
            ("data", "annotators", "simulate", "good.csv", "-o", "m.csv", "--preset", "40"),
            "unknown preset '40'",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(dismix, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.csv").write_text("image,grade\na.png,1\nb.png,x\n")
    (tmp_path / "good.csv").write_text("image,grade\na.png,1\nb.png,0\nc.png,1\nd.png,0\n")
    before = sorted(p.name for p in tmp_path.iterdir())
    code, _, err = dismix(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_problems_found_by_check_are_exit_code_1(dismix, tmp_path):
    (tmp_path / "m.csv").write_text("image,grade\na.png,1\nb.png,x\n")
    code, out, _ = dismix("data", "check", tmp_path / "m.csv", "-q")
    assert code == 1
    assert "missing-image" in out
    assert "not-a-grade" in out


def test_bad_files_are_skipped_and_listed_on_request(dismix, clinic, monkeypatch):
    monkeypatch.setenv("DISMIX_CACHE", str(clinic.parent / "cache"))
    manifest = import_clinic(dismix, clinic)
    (clinic.parent / "img07.png").write_bytes(b"not a picture")
    sheet = clinic.parent / "s.png"
    for command in (
        ("data", "prepare", manifest, "--size", "16"),
        ("data", "show", manifest, "-o", sheet, "--columns", "30"),
    ):
        code, _, err = dismix(*command, "-q")
        assert code == 2
        assert "img07.png" in err
        assert ("--write-readable" if "prepare" in command else "--on-error skip") in err
        code, _, err = dismix(*command, "-q", "--on-error", "skip")
        assert code == 0
        assert err.count("skipped:") == 1
        assert "img07.png" in err
        # It is left out already.
        assert "--" not in err


def test_a_manifest_without_unreadable_rows_is_written(dismix, clinic, monkeypatch):
    monkeypatch.setenv("DISMIX_CACHE", str(clinic.parent / "cache"))
    manifest = import_clinic(dismix, clinic)
    whole = manifest.read_bytes()
    (clinic.parent / "img07.png").write_bytes((clinic.parent / "img07.png").read_bytes()[:300])
    (clinic.parent / "img09.png").unlink()
    new = clinic.parent / "sub" / "good.csv"
    told = ("data", "check", manifest, "-q", "--no-near", "--write-readable")
    code, out, err = dismix(*told, new)
    assert (code, err) == (0, "")
    assert "left out: row 9: img07.png: image is cut short\n" in out
    assert "left out: row 11: img09.png: file not found\n" in out
    assert out.endswith(f"58 rows with a readable image -> {new}\n")
    kept, before = read_manifest(new), read_manifest(manifest)
    assert kept.meta == before.meta
    assert kept.annotators == before.annotators
    names = [f"img{i:02d}.png" for i in range(60) if i not in (7, 9)]
    assert kept.image_paths == [clinic.parent / name for name in names]
    assert dismix("data", "prepare", new, "--size", "16", "-q")[0] == 0
    code, _, err = dismix(*told, manifest)
    assert code == 2
    assert "is the manifest that was checked; name another file" in err
    assert manifest.read_bytes() == whole
    code, out, err = dismix(*told, new, "--json")
    assert json.loads(out)["ok"] is False
    assert err.count("left out: ") == 2
    assert dismix(*told, new, "--no-images")[0] == 2


def test_unreadable_rows_left_out_do_not_hide_other_errors(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    (clinic.parent / "img07.png").write_bytes(b"")
    table = pd.read_csv(manifest)
    table.loc[[10, 11], "split"] = "test"
    (clinic.parent / "img10.png").write_bytes((clinic.parent / "img00.png").read_bytes())
    table.to_csv(manifest, index=False)
    new = clinic.parent / "good.csv"
    code, out, _ = dismix("data", "check", manifest, "-q", "--write-readable", new)
    assert code == 1
    assert "left out: row 9: img07.png: file is empty" in out
    assert len(read_manifest(new)) == 59


def test_a_table_is_not_overwritten_by_its_import(dismix, clinic):
    before = clinic.read_bytes()
    code, _, err = dismix(
        "data", "import", clinic, "-o", clinic, "--image", "file", "--annotator", "dr_ann"
    )
    assert code == 2
    assert "clinic.csv: is the table to import; name another file" in err
    assert clinic.read_bytes() == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("data", "annotators", "consensus"), "is the manifest with the votes"),
        (("data", "split", "--scarce", 0.1), "is the manifest to split"),
        (("data", "split", "--merge-val"), "is the manifest to split"),
    ],
)
def test_votes_and_rows_are_not_lost_to_an_output_in_place(dismix, clinic, command, said):
    manifest = import_clinic(dismix, clinic)
    before = manifest.read_bytes()
    link = clinic.parent / "link.csv"
    link.symlink_to(manifest)
    # Also by way of the folder that holds it, and of another name.
    for given, output in ((manifest, manifest), (clinic.parent, manifest), (manifest, link)):
        code, _, err = dismix(*command, given, "-o", output)
        assert (code, err.count("\n")) == (2, 1)
        assert f"{output}: {said}; name another file" in err
    assert manifest.read_bytes() == before


def test_a_fold_does_not_take_the_place_of_its_manifest(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    data = clinic.parent / "data-2.csv"
    assert dismix("data", "split", manifest, "-o", data, "--val", 0.2)[0] == 0
    before = data.read_bytes()
    code, _, err = dismix("data", "split", data, "-o", clinic.parent / "data.csv", "--folds", 3)
    assert code == 2
    assert "data-2.csv: is the manifest to split" in err
    assert data.read_bytes() == before
    assert not (clinic.parent / "data-1.csv").exists()


def test_nothing_is_lost_where_validation_is_taken_in_place(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    assert dismix("data", "split", manifest, "-o", manifest, "--val", 0.2)[0] == 0
    assert len(read_manifest(manifest)) == 60


def test_names_of_columns_may_hold_commas(dismix, clinic):
    table = pd.read_csv(clinic).rename(columns={"dr_ann": "Ann, MD", "dr_bob": "Bob, MD"})
    table.to_csv(clinic, index=False)
    manifest = clinic.parent / "m.csv"
    code, _, err = dismix(
        "data", "import", clinic, "-o", manifest, "--image", "file", "--group", "patient",
        "--annotator", "Ann, MD", "--annotator", "bob, md",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert read_manifest(manifest).annotators == ["Ann, MD", "Bob, MD"]


def test_an_output_that_is_a_folder_is_one_line(dismix, clinic):
    manifest = import_clinic(dismix, clinic)
    (clinic.parent / "folder.png").mkdir()
    for command in (
        ("data", "show", manifest, "--columns", 1, "-q"),
        ("data", "split", manifest, "--val", 0.2),
        ("data", "annotators", "consensus", manifest),
    ):
        code, _, err = dismix(*command, "-o", clinic.parent / "folder.png")
        assert code == 2
        assert len(err.strip().splitlines()) == 1
        assert "folder.png" in err
    assert not (clinic.parent / "folder.meta.json").exists()


def test_warnings_are_one_line_without_code(dismix, tmp_path):
    rows = [f"{i}.png,{i % 2 if i else 2}" for i in range(12)]
    (tmp_path / "m.csv").write_text("image,grade\n" + "\n".join(rows))
    code, _, err = dismix(
        "data", "split", tmp_path / "m.csv", "-o", tmp_path / "s.csv", "--val", 0.2
    )
    assert code == 0
    assert err.startswith("warning: a single group of images holds rank '2'")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("split", "m.csv", "-o", "s.csv", "--folds", 3, "--val", 0.2), "leave --val out"),
        (("split", "m.csv", "-o", "s.csv", "--folds", 7), "no rank has more than 5 images"),
        (("annotators", "simulate", "m.csv", "-o", "s.csv"), "is beyond the 2 ranks; name two"),
        (
            (
                "annotators",
                "consensus",
                "v.csv",
                "-o",
                "s.csv",
                "--method",
                "majority",
                "--ordinal",
            ),
            "use dawid_skene",
        ),
    ],
)
def test_options_that_contradict_each_other(dismix, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i}.png,{i % 2}\n" for i in range(10))
    (tmp_path / "m.csv").write_text("image,grade\n" + rows)
    (tmp_path / "v.csv").write_text("image,annotator_x\n" + rows)
    code, _, err = dismix("data", *arguments)
    assert code == 2
    assert message in err
    assert not (tmp_path / "s.csv").exists()


def test_two_ranks_can_be_simulated(dismix, tmp_path):
    (tmp_path / "m.csv").write_text(
        "image,grade\n" + "".join(f"{i}.png,{i % 2}\n" for i in range(40))
    )
    output = tmp_path / "v.csv"
    code, out, _ = dismix(
        "data",
        "annotators",
        "simulate",
        tmp_path / "m.csv",
        "-o",
        output,
        "--lower",
        0,
        "--upper",
        1,
    )
    assert code == 0
    assert "0->1 60%" in out


def test_simulated_annotators_flip_grades_as_the_user_calls_them(dismix, tmp_path):
    rows = "".join(f"{i}.png,{i % 5}\n" for i in range(40))
    (tmp_path / "m.csv").write_text(f"image,grade\n{rows}")
    (tmp_path / "m.meta.json").write_text('{"ranks": ["1", "2", "3", "4", "5"]}')
    told = ("data", "annotators", "simulate", tmp_path / "m.csv", "-o", tmp_path / "v.csv")
    # The second and third rank by default.
    out = dismix(*told)[1]
    assert "2->3 60%, 3->2 20%" in out
    assert "Grades 2 and 3 together" in out
    assert "(grade 2: 8 images" in out
    assert "2->3 60%" in read_manifest(tmp_path / "v.csv").meta.notes
    code, out, _ = dismix(*told, "--lower", "4", "--upper", "5")
    assert (code, "4->5 60%" in out) == (0, True)
    assert dismix(*told, "--lower", "0", "--upper", "1")[2].startswith(
        "error: there is no rank '0'; the ranks are 1, 2, 3, 4, 5"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "x"), "write dismix generator train or dismix grader train"),
        (("agreement", "x"), "write dismix data annotators agreement"),
        (("annotators", "simulate"), "write dismix data annotators"),
        (("data", "import", "s.xlsx", "-o", "m.csv"), "s.xlsx: is a spreadsheet; save it as CSV"),
        (("data", "import", "names.csv", "-o", "m.csv"), "from low to high with --ranks"),
        (("data", "import", "t.csv", "-o", "m.csv"), "--image COLUMN; choose one of file, grade"),
        (("data", "import", "t.csv", "-o", "m.csv", "--image", "file", "--annotator", "x"),
         "there is no column 'x'; name it with --annotator COLUMN"),
        (("data", "split", "val.csv", "-o", "m.csv", "--val", "0.2"), "first with --merge-val"),
        (("grader", "train", "x", "-o", "r", "--mix-set", "p=1"), "--mix-set: no mixer is chosen"),
        (("grader", "train", "x", "-o", "r", "--mix", "none", "--mix-set", "p=1"),
         "--mix-set: no mixer is chosen"),
        (("grader", "train", "x", "-o", "r", "--batch-size", "8", "--set", "batch_size=4"),
         "--set: 'batch_size' is given by --batch-size too; give it once"),
        (("grader", "train", "x", "-o", "r", "--at-once", "2"),
         "--at-once: a single seed is trained; add --seeds"),
        (("mix", "write", "x", "-n", "2", "-o", "r", "--detail-with", "rank"),
         "--detail-with: no detail is given back; add --detail"),
        (("study", "x", "-o", "r", "--plan", "--json"), "--json: --plan is a line of text; leave"),
        (("generator", "train", "x", "-o", "r", "--epochs", "2", "--set", "epochs=3"),
         "--set: 'epochs' is given by --epochs too"),
        (("generator", "evaluate", "x", "-o", "."), "is a folder; name a file, .json"),
        (("generator", "report", "x", "-o", "a.pdf"), "cannot write '.pdf' files; end it .html"),
        (("grader", "train", "x", "-o", "r", "--mix", "cutmix", "--generator", "g"),
         "--generator: the mixer is cutmix; add --mix dismix"),
        (("generator", "train", "absent", "-o", "r", "--arch", "tiny", "--size", "65"),
         "image size 65 is not a multiple of 8; use 64"),
        (("mix", "encode", "x", "--device", "gpu"), "--device: there is no device 'gpu' here"),
        (("grader", "train", "x", "-o", "r", "--set", "lr=fast"), "setting 'lr': 'fast' does not"),
    ],
)  # fmt: skip
def test_newcomers_are_told_what_to_type(dismix, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.xlsx").write_bytes(b"PK\x03\x04")
    (tmp_path / "names.csv").write_text("image,grade\na.png,mild\nb.png,severe\n")
    (tmp_path / "t.csv").write_text("file,grade\na.png,0\n")
    (tmp_path / "val.csv").write_text("image,split,grade\na.png,train,0\nb.png,val,1\n")
    code, _, err = dismix(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_no_epoch_is_no_training(dismix, tmp_path):
    run = tmp_path / "run"
    for bad in (("--epochs", "0"), ("--size", "8")):
        code, _, err = dismix("generator", "train", tmp_path, "-o", run, "--arch", "tiny", *bad)
        assert code == 2
        assert bad[0] in err
    assert not run.exists()


def test_memory_that_is_used_up_is_one_line(dismix, monkeypatch, tmp_path):
    import torch

    def burst(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("dismix.data.phantom.build_phantom", burst)
    code, _, err = dismix("data", "phantom", "-q", "-o", tmp_path)
    assert code == 2
    assert err.startswith("error: memory is used up; try smaller batches")
    assert len(err.splitlines()) == 1


def test_one_process_speaks_for_all(monkeypatch):
    from dismix.cli.options import one_of_many

    monkeypatch.delenv("RANK", raising=False)
    assert not one_of_many()
    monkeypatch.setenv("RANK", "0")
    assert not one_of_many()
    monkeypatch.setenv("RANK", "3")
    assert one_of_many()


def test_ctrl_c_is_said_in_one_line(dismix, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dismix.data.manifest.read_manifest", stop)
    found = dismix("data", "annotators", "agreement", "x.csv")
    assert found == (130, "", "interrupted; finished parts are kept\n")


def test_severities_of_phantoms_may_lie_on_their_ranks(dismix, tmp_path):
    few = ("--train", 8, "--val", 0, "--test", 0, "--size", 32)
    code, _, err = dismix("data", "phantom", "-q", "-o", tmp_path / "set", *few, "--jitter", 0)
    assert code == 0, err
    factors = pd.read_csv(tmp_path / "set" / "factors.csv")
    assert (factors["severity"] == factors["rank"]).all()
    code, _, err = dismix("data", "phantom", "-q", "-o", tmp_path / "no", *few, "--jitter", 0.5)
    assert code == 2
    assert "'jitter': 0.5 lets ranks overlap; give 0 <= jitter < 0.5" in err


def test_a_name_without_an_ending_is_a_folder_for_the_manifest(dismix, clinic):
    folder = clinic.parent / "imported"
    told = ("data", "import", clinic, "-o", folder, "--image", "file", "--annotator", "dr_ann")
    code, out, _ = dismix(*told, "--skip-ungraded", "--ranks", "none,mild,severe")
    assert code == 0
    assert out.startswith(f"{folder / 'manifest.csv'}\n")
    assert read_manifest(folder).num_ranks == 3
    code, out, _ = dismix("data", "split", folder, "-o", clinic.parent / "dealt", "--folds", "2")
    assert code == 0
    assert read_manifest(clinic.parent / "dealt" / "manifest-2.csv").num_ranks == 3
