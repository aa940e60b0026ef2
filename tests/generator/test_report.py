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
