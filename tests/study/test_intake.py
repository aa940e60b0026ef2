import warnings

import pandas as pd
import pytest
from PIL import Image
from tests.study.toy import toy_choices, toy_images

from dismix.data.manifest import read_manifest
from dismix.data.strata import group_names
from dismix.errors import DisMixError
from dismix.study.intake import take_in


def write(folder, rows):
    """Write a manifest and small different pictures."""
    for i, row in enumerate(rows):
        picture = Image.effect_noise((32, 32), 20 + i)
        picture.save(folder / f"{i:02d}.png")
        row["image"] = f"{i:02d}.png"
    path = folder / "mine.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def taken(path, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return take_in(path, toy_choices(**changes), 32)


def refused(path, **changes):
    with pytest.raises(DisMixError) as caught:
        taken(path, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_test_rows_take_part_unless_left_out(tmp_path):
    path = toy_images(tmp_path).path
    whole = taken(path)
    assert len(whole.manifest) == 30
    assert "6 images marked 'test' take part" in whole.notes[0]
    kept = taken(path, without_test=True)
    assert len(kept.manifest) == 24
    assert whole.votes
    assert whole.groups == 15


def test_a_rare_grade_is_noted_and_a_missing_one_too(tmp_path):
    rows = [{"grade": 0 if i < 18 else 1 if i < 21 else 3} for i in range(24)]
    found = taken(write(tmp_path, rows), folds=4)
    assert found.counts == (18, 3, 0, 3)
    assert not found.votes
    assert any("'1' comes from 3 images, fewer than the 4 folds" in n for n in found.notes)
    assert any("No image has grade '2'" in n for n in found.notes)


def test_a_grade_of_one_patient_is_noted(tmp_path):
    rows = [{"grade": int(i >= 20), "group": f"p{i // 2}" if i < 20 else "z"} for i in range(24)]
    assert any("never both learned and tested" in n for n in taken(write(tmp_path, rows)).notes)


def test_too_little_is_one_line_with_a_cure(tmp_path):
    path = write(tmp_path, [{"grade": i % 2, "group": f"p{i % 3}"} for i in range(30)])
    text = refused(path, folds=5)
    assert "3 groups (patients) cannot be dealt into 5 folds; give --folds 3, or add" in text
    path = write(tmp_path, [{"grade": i % 2} for i in range(14)])
    assert "14 images are too few for 5 folds of 4 or more; give --folds 3" in refused(
        path, folds=5
    )
    for images, most in ((3, 0), (7, 0), (9, 2)):
        # What is advised works.
        path = write(tmp_path, [{"grade": i % 2} for i in range(images)])
        told = f"{images} images are too few for 5 folds of 4 or more; "
        assert refused(path, folds=5).endswith(
            told + (f"give --folds {most}, or add images" if most else "add images")
        )
    assert len(taken(path, folds=2).manifest) == 9
    path = write(tmp_path, [{"grade": i % 2, "group": f"p{i % 3}"} for i in range(9)])
    assert refused(path, folds=5).endswith("give --folds 2, or add images of other groups")
    path = write(tmp_path, [{"grade": 1} for _ in range(30)])
    assert "all images have grade '1': there is nothing to tell apart" in refused(path)
    path = write(tmp_path, [{"grade": i % 8} for i in range(32)])
    assert "give --folds 2 to 4" in refused(path, folds=5)


def test_patients_that_leave_nothing_to_choose_a_checkpoint_by_are_told_before_a_trial(tmp_path):
    path = write(tmp_path, [{"grade": i % 3, "group": f"p{i % 6}"} for i in range(30)])
    text = refused(path, folds=2)
    assert "mine.csv: fold 1 of 2 cannot make a validation part: each of the 3 groups" in text
    assert text.endswith("one to choose the checkpoint by and one to be tested on")
    path = write(tmp_path, [{"grade": i % 3, "group": f"p{i % 9}"} for i in range(36)])
    taken(path, folds=2)


def test_a_folder_of_another_kind_is_to_be_imported_first(tmp_path):
    write(tmp_path, [{"grade": i % 2} for i in range(4)])
    assert refused(tmp_path).endswith("name a manifest, or make one with `dismix data import`")


def test_unreadable_images_stop_it_or_are_left_out(tmp_path):
    path = write(tmp_path, [{"grade": i % 2} for i in range(20)])
    (tmp_path / "03.png").write_bytes(b"no picture")
    text = refused(path)
    assert "03.png" in text
    assert "--on-error skip" in text
    found = taken(path, on_error="skip")
    assert len(found.manifest) == 19
    assert found.skipped[0].startswith("03.png")
    assert "--" not in found.skipped[0]
    assert "1 images could not be read" in found.notes[0]


def test_images_without_a_group_stand_alone(tmp_path):
    path = write(tmp_path, [{"grade": i % 2, "group": "a" if i < 2 else ""} for i in range(20)])
    assert len({*group_names(read_manifest(path))}) == 19


def test_a_column_of_groups_that_is_empty_makes_none(tmp_path):
    rows = [{"grade": 0 if i < 18 else 1 if i < 21 else 2, "group": ""} for i in range(24)]
    path = write(tmp_path, rows)
    assert any("'1' comes from 3 images, fewer" in n for n in taken(path, folds=4).notes)
    assert "24 images are too few for 25 folds" in refused(path, folds=25)


def test_equal_files_are_one_image_to_what_is_said_of_rare_grades(tmp_path):
    path = write(tmp_path, [{"grade": int(i >= 20)} for i in range(24)])
    for i in (21, 22, 23):
        (tmp_path / f"{i}.png").write_bytes((tmp_path / "20.png").read_bytes())
    found = taken(path)
    # No fold parts them, so the grade is never both learned and tested.
    assert any("'1' comes from one of the images only" in n for n in found.notes)
    assert found.groups == 21


def test_patients_that_are_no_groups_are_noted(tmp_path):
    rows = [{"grade": i % 2, "subject_id": i // 2} for i in range(24)]
    notes = taken(write(tmp_path, rows)).notes
    assert any("Column 'subject_id' looks like a patient, but" in n for n in notes)
    rows = [{"grade": i % 2, "subject_id": i // 2, "group": i // 2} for i in range(24)]
    assert not any("looks like" in n for n in taken(write(tmp_path, rows)).notes)
