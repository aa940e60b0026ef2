"""`dismix mix` as a user meets it."""

import sys

import numpy as np
import pandas as pd
import pytest
from tests.mixing.toy_run import make_run, toy_generator

from dismix.cli import main
from dismix.data.manifest import read_manifest, write_manifest


@pytest.fixture
def dismix(monkeypatch, capsys, tmp_path):
    """Run the command line in this process; return (exit code, stdout, stderr)."""
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))

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


def test_from_a_run_to_a_folder_of_mixes(dismix, tmp_path):
    run = make_run(tmp_path, train=20)
    code, out, _ = dismix("mix", "encode", run, "-q")
    assert code == 0
    assert out.startswith("20 images, 168 bytes each")
    code, _, err = dismix("mix", "encode", run, "--severity", "image")
    assert code != 0
    assert "--severity: says nothing without --details" in " ".join(err.split())
    code, out, _ = dismix(
        "mix", "write", run, "-n", 12, "-o", tmp_path / "mixes", "-q",
        "--policy", "preserving", "--ranks", "consensus", "--balanced", "--seed", 2,
    )  # fmt: skip
    assert code == 0
    assert "nearest training image" in out
    assert "policies: nonordinal_mix" in out
    assert len(read_manifest(tmp_path / "mixes")) == 12
    code, out, _ = dismix("mix", "show", run, "-o", tmp_path / "a.png", "--figure", "strip", "-q")
    assert code == 0
    assert (tmp_path / "a.png").is_file()
    page = tmp_path / "q.html"
    code, out, _ = dismix(
        "mix", "quality", run, "-o", page, "--judge-epochs", 1, "--pairs", 3, "-q"
    )
    assert code == 0
    assert "monotone" in out
    assert page.is_file()


def test_a_rare_rank_between_common_ones_is_named_when_encoding(dismix, tmp_path):
    run = make_run(tmp_path, train=40)
    data = read_manifest(tmp_path / "data")
    _, out, _ = dismix("mix", "encode", run, "-q")
    assert "times as often" not in out
    training = data.table["split"] == "train"
    grades = np.resize([0, 2, 2, 0, 3, 2, 0], len(data.table))
    grades[np.flatnonzero(training)[0]] = 1
    votes = dict.fromkeys((f"annotator_{name}" for name in data.annotators), grades)
    write_manifest(data.with_table(data.table.assign(grade=grades, **votes)), data.path)
    code, out, _ = dismix("mix", "encode", run, "-q")
    assert code == 0
    assert f"note: the image of rank '{data.meta.ranks[1]}' is a partner " in out
    assert "pairing=near keeps the ranks" in out
    ranks, gaps = grades[training.to_numpy()], {}
    for pairing in ("adjacent", "near"):
        folder = tmp_path / pairing
        dismix("mix", "write", run, "-n", 60, "-o", folder, "--pairing", pairing, "-q")
        assert f"{pairing} pairs by majority" in (folder / "README.md").read_text()
        table = pd.read_csv(folder / "mixes.csv").dropna(subset="partner")
        gaps[pairing] = {*abs(ranks[table["anchor"]] - ranks[table["partner"].astype(int)])}
    assert gaps == {"adjacent": {1}, "near": {0, 1}}


def test_mixers_are_listed_without_torch(dismix):
    code, out, _ = dismix("mix", "list")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert {"dismix", "mixup", "cutmix"} <= set(names)


def test_mistakes_are_one_line(dismix, tmp_path):
    run = make_run(tmp_path, train=20)
    for arguments, words in (
        (("encode", tmp_path / "absent"), "no such file; give the folder of a trained generator"),
        (("show", run, "-o", tmp_path / "a.xyz", "-q"), "unknown picture format '.xyz'"),
        (("quality", run, "-o", tmp_path), "is a folder; name a file, .html"),
        (("quality", run, "-o", "a.json"), "a.json: cannot write '.json' files; end it .html"),
        (("encode", run, "--device", "gpu"), "there is no device 'gpu' here; leave it out"),
        (("encode", run, "--device", "cuda:77"), "there is no device 'cuda:77' here"),
        (("show", run, "-o", tmp_path / "a.png", "--rank", 4, "-q"), "choose none to moder"),
        (
            ("write", run, "-n", 3, "-o", tmp_path / "m", "--policy", "orderswap", "-q"),
            "did you mean 'order_swap'",
        ),
    ):
        code, _, err = dismix("mix", *arguments)
        assert code == 2
        assert words in err
        assert err.count("\n") == 1
    toy_generator(conditioned=False).save(run)
    code, _, err = dismix(
        "mix", "write", run, "-n", 3, "-o", tmp_path / "n", "--policy", "generate_and_mix", "-q"
    )
    assert code == 2
    assert "cannot be asked for a rank" in err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("mix", "encode", "run"), "dismix.mixing.encoding.encode_split"),
        (("generator", "report", "run"), "dismix.generator.report.write_report"),
        (("generator", "evaluate", "run"), "dismix.generator.evaluation.evaluate_generator"),
    ],
)
def test_a_gpu_is_left_alone_in_either_way(dismix, monkeypatch, words, place):
    used = []

    def work(*_, device, **__):
        used.append(device)
        raise KeyboardInterrupt

    monkeypatch.setattr(place, work)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for more in (("--cpu",), ("--device", "cpu"), ()):
        dismix(*words, *more, "-q")
    assert used == ["cpu", "cpu", "cuda"]
