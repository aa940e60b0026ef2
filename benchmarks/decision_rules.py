"""Where should a place on the line of ranks become a grade? Rules compared on validation images.

    python benchmarks/decision_rules.py MANIFEST [--methods poe rnc] [--epochs 10] [--record FILE]

Trains methods that place images between ranks (a small network from nothing, CPU), then fits each
rule on some validation images and scores it on the other half, many times over. Test images
take no part. Rules: "nearest" rank (the authors'), "shares" (as many images of each grade as
there are), "best" (least cost on the images it is fitted on) and "averaged" (that of resampled
sets, averaged: what `dismix.graders.cut_points` does).
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dismix.atomic import write_text
from dismix.data.manifest import read_manifest
from dismix.generator.images import load_split
from dismix.graders.cut_points import best_cuts, fit_cuts, nearest_cuts
from dismix.graders.evaluation import grade_split
from dismix.graders.saving import load_grader
from dismix.graders.settings import choose_settings
from dismix.graders.start_run import train_grader
from dismix.progress import bar
from dismix.provenance import provenance

Array = NDArray[Any]
Rule = Callable[[Array, Array, int], Array]


def shares(places: Array, grades: Array, ranks: int) -> Array:
    """Cut so that each grade is given as often as it occurs."""
    ordered = np.sort(places)
    edges = np.concatenate([[-0.5], ordered, [ranks - 0.5]])
    counts = [int((grades <= k).sum()) for k in range(ranks - 1)]
    return np.array([(edges[n] + edges[n + 1]) / 2 for n in counts])


RULES: dict[str, Rule] = {
    "nearest": lambda places, grades, ranks: nearest_cuts(ranks).numpy(),
    "shares": shares,
    "best": best_cuts,
    "averaged": lambda places, grades, ranks: fit_cuts(
        torch.from_numpy(places), torch.from_numpy(grades), ranks
    ).numpy(),
}


def compare(
    places: Array, grades: Array, ranks: int, sizes: list[int], times: int
) -> dict[str, Any]:
    """Return accuracy and mean absolute error of each rule by the number of images to fit on."""
    half = len(places) // 2
    found: dict[str, Any] = {}
    for size in (s for s in sizes if s <= half):
        rng = np.random.default_rng(0)
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in RULES}
        for _ in range(times):
            order = rng.permutation(len(places))
            fit, held = order[:size], order[half:]
            for name, rule in RULES.items():
                cuts = rule(places[fit], grades[fit], ranks)
                away = (places[held, None] >= cuts).sum(1) - grades[held]
                scores[name].append((float((away == 0).mean()), float(np.abs(away).mean())))
        found[str(size)] = {
            name: dict(zip(("accuracy", "mae"), np.mean(pairs, 0).round(4).tolist(), strict=True))
            for name, pairs in scores.items()
        }
    return found


def main() -> None:
    """Train, compare and print a table and one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--methods", nargs="+", default=["poe", "gol", "mwr", "rnc"])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--size", type=int, default=64, help="pixels a side")
    parser.add_argument("--fit", type=int, nargs="+", default=[62, 200, 496])
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    data = read_manifest(args.manifest)
    record: dict[str, Any] = {"epochs": args.epochs, "size": args.size, "times": args.times}
    with tempfile.TemporaryDirectory() as folder, bar() as progress:
        val = load_split(data, "val", args.size, device=torch.device("cpu"))
        for method in args.methods:
            run = Path(folder) / method
            changes = {
                "backbone": "tiny", "size": args.size, "epochs": args.epochs, "select": "loss",
            }  # fmt: skip
            settings = choose_settings(method, changes=changes)
            train_grader(args.manifest, run, settings, cpu=True, progress=progress)
            grades = grade_split(load_grader(run), val)
            truth = val.target.hard.numpy()
            record[method] = compare(
                grades.rank.double().numpy(), truth, data.num_ranks, args.fit, args.times
            )
    for method in args.methods:
        for size, rules in record[method].items():
            shown = "".join(
                f"  {name} {100 * r['accuracy']:.1f} / {r['mae']:.3f}" for name, r in rules.items()
            )
            print(f"{method:<5}{size:>5}{shown}")
    text = json.dumps({**record, **provenance()}, indent=1)
    print(text)
    if args.record:
        write_text(args.record, text + "\n")


if __name__ == "__main__":
    main()
