"""The report page: before and after an evaluation."""

import json
import re
from pathlib import Path

import pytest

from dismix.errors import DisMixError
from dismix.generator.evaluation import EVALUATION, evaluate_generator
from dismix.generator.report import write_report


def copied(run: Path, target: Path) -> Path:
    target.mkdir()
    for name in ("generator.json", "generator.safetensors", "run.json", "metrics.jsonl"):
        (target / name).write_bytes((run / name).read_bytes())
    return target


def cells(page: str, first: str) -> list[str]:
    """Return the cells of the table row that begins with ``first``."""
    found = re.search(rf"<tr><td>{re.escape(first)}</td>(.*?)</tr>", page)
    assert found, first
    return re.findall(r"<td>(.*?)</td>", found[1])


def test_without_an_evaluation_it_measures_what_needs_no_judge(small_run, tmp_path: Path) -> None:
    run = copied(small_run.run, tmp_path / "run")
    page = write_report(run).read_text()
    assert "dismix generator evaluate" in page
    for heading in ("Order transition", "Reconstruction", "Can the rank be read", "The two codes"):
        assert heading in page
    assert cells(page, "paper, KOA: full") == ["65.04", "19.65"]
    assert page.count("<img ") == 6
    assert len(cells(page, "linear probe, balanced accuracy (%)")) == 2
    # On phantoms the picture itself can be read without a judge.
    assert len(cells(page, "picture, decoded at ranks")) == 3


def test_it_shows_the_evaluation(small_run, tmp_path: Path) -> None:
    run = copied(small_run.run, tmp_path / "run")
    found = evaluate_generator(run, judge_epochs=1, device="cpu")
    # Numbers that only the file can know.
    found["probes"]["ordinal_linear"]["accuracy"] = 0.123
    (run / EVALUATION).write_text(json.dumps(found))
    page = write_report(run, tmp_path / "other.html").read_text()
    assert cells(page, "linear probe, accuracy (%)")[0] == "12.3"
    assert found["judge"]["fingerprint"] in page
    slope = f"{found['rank_control']['slope']:.2f}"
    assert cells(page, "judge, decoded at ranks")[1] == slope
    assert "dismix generator evaluate" not in page


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match="trained generator"):
        write_report(tmp_path)


def test_very_few_held_out_images_get_no_map(small_run, tmp_path: Path) -> None:
    run, few = copied(small_run.run, tmp_path / "run"), small_run.data / "few.csv"
    table = (small_run.data / "manifest.csv").read_text().splitlines()
    split = table[0].split(",").index("split")
    kept = [line for line in table[1:] if line.split(",")[split] == "train"]
    kept += [line for line in table[1:] if line.split(",")[split] == "val"][:1]
    few.write_text("\n".join([table[0], *kept]) + "\n")
    few.with_suffix(".meta.json").write_bytes((small_run.data / "manifest.meta.json").read_bytes())
    said = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**said, "manifest_at": str(few)}))
    page = write_report(run).read_text()
    assert "1 held-out images are too few for a map" in page


def test_ranks_named_from_the_other_end_are_refused(small_run, tmp_path: Path) -> None:
    run, turned = copied(small_run.run, tmp_path / "run"), small_run.data / "turned.csv"
    turned.write_bytes((small_run.data / "manifest.csv").read_bytes())
    meta = json.loads((small_run.data / "manifest.meta.json").read_text())
    meta["ranks"] = meta["ranks"][::-1]
    turned.with_suffix(".meta.json").write_text(json.dumps(meta))
    with pytest.raises(DisMixError, match=r"turned.csv: has the ranks .* in the generator's order"):
        write_report(run, manifest=turned)


@pytest.mark.parametrize("used", [write_report, evaluate_generator])
def test_files_read_in_another_way_are_refused(small_run, tmp_path: Path, used) -> None:
    run, other = copied(small_run.run, tmp_path / "run"), small_run.data / "equalized.csv"
    other.write_bytes((small_run.data / "manifest.csv").read_bytes())
    meta = json.loads((small_run.data / "manifest.meta.json").read_text())
    other.with_suffix(".meta.json").write_text(json.dumps({**meta, "equalize": True}))
    with pytest.raises(DisMixError, match=r"equalized.csv: is read with equalize true, .* false"):
        used(run, manifest=other)
