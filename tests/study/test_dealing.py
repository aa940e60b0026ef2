import pandas as pd
import pytest
from PIL import Image

from dismix.bench.derive import derive
from dismix.data.manifest import make_manifest
from dismix.study.dealing import dealing_notes, dealing_words, dealt


def folds(folder, rows, of):
    """Deal rows as a study does."""
    for i, row in enumerate(rows):
        row["image"] = f"{i:03d}.png"
        # Alike files would be kept together.
        Image.new("L", (4, 4), i % 250).resize((4 + i // 250, 4)).save(folder / row["image"])
    manifest = make_manifest(pd.DataFrame(rows), None, folder)
    how = {"labels": "clean", "validation": {"share": 0.15, "seed": 0, "own": "keep"}}
    return [
        dealt(derive(manifest, {**how, "fold": {"number": i + 1, "of": of, "seed": 0}}))
        for i in range(of)
    ]


@pytest.mark.filterwarnings("ignore:fewer than")
@pytest.mark.filterwarnings("ignore:a single group")
def test_few_patients_of_one_grade_each_are_said_as_they_were_dealt(tmp_path):
    rows = [{"grade": p % 4, "group": f"p{p}"} for p in range(8) for _ in range(10)]
    made = folds(tmp_path, rows, 4)
    assert all(sum(map(sum, (f.train, f.val, f.test))) == 80 for f in made)
    assert {(sum(f.val), sum(f.train)) for f in made} != {(9, 51)}
    how, used = dealing_words(made)
    assert "equal shares" not in how
    assert "of 4 grades in a fold)" in how
    learned = sorted({sum(f.train) for f in made})
    assert used.endswith(f"{' to '.join(map(str, learned))} were learned from")
    assert "15 %" not in used
    notes = dealing_notes(made, ("none", "mild", "severe", "worst"))
    lacking = [f for f in made if 0 in f.val]
    assert notes[0].startswith(f"Validation lacks grades in {len(lacking)} of 4 folds (fold 1")
    assert notes[0].endswith("there the checkpoint was chosen on part of the scale.")
    assert notes[1].startswith("Held-out images lack grades in 4 of 4 folds")
    apart = [i for i, f in enumerate(made, 1) if not any(map(min, f.val, f.test))]
    assert len(notes) == 2 + bool(apart)
    if apart:
        assert f"In {len(apart)} of 4 folds ({', '.join(map(str, apart))}) no grade" in notes[2]


def test_many_single_images_are_dealt_equally_and_need_no_note(tmp_path):
    made = folds(tmp_path, [{"grade": (i % 7) // 3} for i in range(140)], 5)
    assert dealing_words(made)[0] == "in equal shares of the grades"
    assert "(15 %) chose the checkpoint" in dealing_words(made)[1]
    assert dealing_notes(made, ("0", "1", "2")) == []


def test_a_grade_that_no_image_has_is_no_lack_of_a_fold(tmp_path):
    made = folds(tmp_path, [{"grade": 2 * (i % 2)} for i in range(60)], 3)
    assert made[0].val[1] == made[0].test[1] == 0
    assert dealing_notes(made, ("0", "1", "2")) == []
