"""Ablations: what each changes, that all can be built, and that finished ones are kept."""

import csv
from pathlib import Path

import pytest
from tests.generator.toy import toy_recipe, toy_training

from dismix.errors import DisMixError
from dismix.generator.ablations import ablation_table, list_ablations, run_ablations
from dismix.generator.config import GeneratorConfig
from dismix.generator.recipe_choice import choose_recipe
from dismix.generator.settings import with_settings
from dismix.generator.start_run import train_generator


@pytest.mark.parametrize(
    ("recipe", "arch"), [("paper", "vq-f8"), ("default", "light"), ("default", "tiny")]
)
def test_each_changes_one_thing_and_makes_a_valid_structure(recipe: str, arch: str) -> None:
    base = choose_recipe(recipe, arch, {})
    known = list_ablations(base)
    assert known["full"].settings == {}
    assert len(known) == 8
    for name, ablation in known.items():
        changed = with_settings(base, ablation.settings)
        GeneratorConfig.from_dict({**changed.structure, "num_ranks": 5, "arch": arch})
        assert (changed == base) == (name == "full")


def test_a_part_that_is_absent_is_added_instead() -> None:
    with_term = choose_recipe("default", "tiny", {"similarity": 0.1, "rank_fake": 0.2})
    without = choose_recipe("default", "tiny", {"similarity": 0, "rank_fake": 0})
    assert {"no_similarity", "no_rank_term"} <= list_ablations(with_term).keys()
    assert {"similarity", "rank_term"} <= list_ablations(without).keys()
    paper = choose_recipe("paper", "vq-f8", {})
    assert {"two_projections", "soft_attention"} <= list_ablations(paper).keys()
    soft = choose_recipe("default", "tiny", {"attention": "soft"})
    assert "hard_attention" in list_ablations(soft)


def test_without_a_condition_nothing_is_asked() -> None:
    base = toy_recipe(guide=0.1, stay=1.0, keep=1.0, control_realism=0.1, mix_realism=0.1)
    blind = with_settings(base, list_ablations(base)["unconditioned"].settings)
    names = [toy_training(recipe).objective.names for recipe in (base, blind)]
    assert {*names[0]} - {*names[1]} >= {"stay", "keep", "control_realism"}
    assert "mix_realism" in names[1]


def _run(small_run, output: Path, **more):
    return run_ablations(
        small_run.data, output, arch="tiny", settings=small_run.settings, size=32, cpu=True,
        judge_epochs=1, **more,
    )  # fmt: skip


def test_finished_ones_are_read_and_the_table_grows(small_run, tmp_path: Path) -> None:
    first = _run(small_run, tmp_path, only=["full"])
    assert [row["name"] for row in first] == ["full"]
    assert (first[0]["paper_z_o"], first[0]["paper_z_n"]) == (65.04, 19.65)
    marks = {p: p.stat().st_mtime_ns for p in (tmp_path / "full").iterdir()}
    judge = (tmp_path / "judge.safetensors").read_bytes()
    second = _run(small_run, tmp_path, only=["full", "one_codebook"])
    assert [row["name"] for row in second] == ["full", "one_codebook"]
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "full").iterdir()} == marks
    assert (tmp_path / "judge.safetensors").read_bytes() == judge
    assert second[0] == first[0]
    with open(tmp_path / "ablations.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["name"] for row in written] == ["full", "one_codebook"]
    assert float(written[1]["z_n_linear_accuracy"]) == second[1]["z_n_linear_accuracy"]
    # One codebook: both codes are the same.
    assert second[1]["z_o_linear_accuracy"] == second[1]["z_n_linear_accuracy"]
    table = (tmp_path / "ablations.md").read_text()
    assert ablation_table(second) in table
    assert "33.01 / 33.01" in table


def test_guide_and_reader_are_trained_once(small_run, tmp_path: Path, monkeypatch) -> None:
    from dismix.generator import guide

    plain, trained = guide.train_guide, []

    def counted(*args, **more):
        trained.append(more["whole"])
        return plain(*args, **more)

    monkeypatch.setattr(guide, "train_guide", counted)
    _run(small_run, tmp_path, only=["full", "no_reversal"])
    assert trained == [False]
    kept = [(tmp_path / n / "guide.safetensors").read_bytes() for n in ("full", "no_reversal")]
    assert kept[0] == kept[1]
    # Of other steps it would be another guide.
    settings = {**small_run.settings, "guide_steps": 3}
    other = {"arch": "tiny", "settings": settings, "size": 32, "cpu": True}
    train_generator(small_run.data, tmp_path / "other", beside=tmp_path, **other)
    assert trained == [False, False]


def test_runs_of_other_settings_stay_out_of_the_table(small_run, tmp_path: Path) -> None:
    _run(small_run, tmp_path, only=["no_reversal"], seed=1)
    # Somebody else's folder beside them has no guide to take.
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader" / "run.json").write_text('{"settings": {}}')
    rows = _run(small_run, tmp_path, only=["full"])
    assert [row["name"] for row in rows] == ["full"]


def test_one_that_fails_is_noted(small_run, tmp_path: Path, monkeypatch) -> None:
    from dismix.generator import start_run

    plain = start_run.train_generator

    def fails(manifest, run, **more):
        if Path(run).name == "no_reversal":
            raise DisMixError("the term 'x' is not finite")
        return plain(manifest, run, **more)

    monkeypatch.setattr(start_run, "train_generator", fails)
    rows = _run(small_run, tmp_path, only=["no_reversal", "full"])
    assert [row["name"] for row in rows] == ["full", "no_reversal"]
    assert "not finite" in rows[1]["failed"]
    assert "failed: the term 'x'" in (tmp_path / "ablations.md").read_text()


def test_an_unknown_name_offers_near_ones(small_run, tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match="no_reversal"):
        _run(small_run, tmp_path, only=["no_reversl"])


@pytest.mark.slow
def test_all_of_them_train(small_run, tmp_path: Path) -> None:
    rows = _run(small_run, tmp_path)
    assert len(rows) == 8
    assert not [row for row in rows if "failed" in row]
