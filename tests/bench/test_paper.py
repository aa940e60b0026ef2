"""The copied numbers are the paper's."""

import csv

import pytest

from dismix.bench.paper import (
    GRADERS,
    PaperNumber,
    data_key,
    find_number,
    paper_scores,
    table_graders,
)


def test_copied_facts_are_the_given_ones(shared_data):
    source = shared_data.parent / "paper" / "results.csv"
    if not source.is_file():
        pytest.skip("the paper's table is not here")
    for row in csv.DictReader(source.read_text(encoding="utf-8").splitlines()):
        found = find_number(
            row["table"], row["dataset"], row["classifier"], row["setting"], row["metric"]
        )
        assert found == PaperNumber(float(row["mean"]), float(row["std"]) if row["std"] else None)


def test_numbers_are_found_by_our_names():
    assert find_number("main", "koa", "ord2seq", "CoMix", "mae").text() == "0.41 ± 0.01"
    assert find_number("main", "koa", "ord2seq", "no mixing", "mae") is None
    assert find_number("clean_labels", "koa", "cloc", "DisMix", "accuracy").mean == 69.53
    assert PaperNumber(0.57, None).text() == "0.57"


@pytest.mark.parametrize(
    ("name", "key"),
    [("IDRID", "idrid"), (" IDRiD ", "idrid"), ("Crowd Gleason", "gleason"), ("Knie", "knie")],
)
def test_data_sets_are_matched_whatever_their_case(name, key):
    assert data_key(name) == key


def test_tables():
    assert table_graders("scarcity", "gleason") == ["ord2seq", "cloc"]
    assert table_graders("main", "gleason") == [*GRADERS]
    assert table_graders("clean_labels", "gleason") == []
    assert set(paper_scores("mae", "clean_labels")) == {("IDRID", "CLOC"), ("KOA", "CLOC")}
    assert "comixup" in paper_scores("mae")["IDRID", "POE"]
