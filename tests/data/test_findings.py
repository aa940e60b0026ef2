import json

from dismix.data.findings import Finding, Report, by_severity


def test_text_shows_levels_counts_and_folds_floods() -> None:
    many = [Finding("warning", "twin", f"pair {i}") for i in range(25)]
    bad = Finding("error", "leak", "a and b", (2, 3), ("a", "b"), "keep one")
    findings = by_severity([*many, bad])
    report = Report("data.csv", ("low", "high"), {"train": [3, 1]}, findings)
    lines = str(report).splitlines()
    assert lines[0] == "data.csv: 4 graded images, 2 ranks"
    assert lines[2].split() == ["train", "3", "/", "1"]
    assert lines[3].split(maxsplit=2) == ["error", "leak", "a and b; keep one"]
    assert "... and 5 more" in str(report)
    assert lines[-1] == "1 error, 25 warnings, 0 notes (image files not opened)"
    assert not report.ok
    assert Report("x", findings=tuple(many)).ok


def test_json_round_trip() -> None:
    finding = Finding("note", "twin", "m", (2,), ("a",), "c")
    content = json.loads(json.dumps(Report("t", ("0", "1"), findings=(finding,)).to_dict()))
    assert content["ok"] is True
    assert content["findings"] == [
        {"level": "note", "code": "twin", "message": "m", "rows": [2], "files": ["a"], "cure": "c"}
    ]
