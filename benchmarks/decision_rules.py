"""How should what a grader says become a grade? Rules compared on validation images.

    python benchmarks/decision_rules.py MANIFEST [MANIFEST ...] [--methods poe rnc] [--record FILE]

Trains methods that place images between ranks (a small network from nothing, or with ``--backbone``
another, on the CPU), then fits each rule on some validation images and scores it on the other half,
many times over. Of several manifests, such as folds, means are shown. Test images take no part.

Rules that cut the line of ranks: "nearest" rank (the authors'), "shares" (as many images of each
grade as there are), "best" (least cost on the images it is fitted on) and "averaged" (that of
resampled sets, averaged: what `dismix.graders.cut_points` does). "mode" takes the most probable
rank of the grader's law, of equal ones the nearest to the expected rank, and fits nothing.
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
from dismix.laws import majority_rank
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
MODE = "mode"


def compare(
    places: Array, modes: Array, grades: Array, ranks: int, sizes: list[int], times: int
) -> dict[str, Any]:
    """Return accuracy and mean absolute error of each rule by the number of images to fit on."""
    half = len(places) // 2
    found: dict[str, Any] = {}
    for size in (s for s in sizes if s <= half):
        rng = np.random.default_rng(0)
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in (*RULES, MODE)}
        for _ in range(times):
            order = rng.permutation(len(places))
            fit, held = order[:size], order[half:]
            labels = {
                name: (places[held, None] >= rule(places[fit], grades[fit], ranks)).sum(1)
                for name, rule in RULES.items()
            }
            for name, label in (labels | {MODE: modes[held]}).items():
                away = label - grades[held]
                scores[name].append((float((away == 0).mean()), float(np.abs(away).mean())))
        found[str(size)] = {
            name: dict(zip(("accuracy", "mae"), np.mean(pairs, 0).round(4).tolist(), strict=True))
            for name, pairs in scores.items()
        }
    return found


def mean_of(folds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over folds of what `compare` found, for the sizes that all of them have."""
    sizes = [size for size in folds[0] if all(size in fold for fold in folds)]
    return {
        size: {
            rule: {
                name: round(float(np.mean([fold[size][rule][name] for fold in folds])), 4)
                for name in values
            }
            for rule, values in folds[0][size].items()
        }
        for size in sizes
    }


def main() -> None:
    """Train, compare and print a table and one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifests", type=Path, nargs="+")
    parser.add_argument("--methods", nargs="+", default=["poe", "gol", "mwr", "rnc"])
    parser.add_argument("--split", default="val", help="what is judged; folds call it test")
    parser.add_argument("--backbone", default="tiny")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, help="learning rate, the method's own if absent")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--size", type=int, default=64, help="pixels a side")
    parser.add_argument("--fit", type=int, nargs="+", default=[62, 200, 496])
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    record: dict[str, Any] = {
        "data": [path.stem for path in args.manifests], "split": args.split,
        "backbone": args.backbone, "epochs": args.epochs, "lr": args.lr,
        "batch_size": args.batch, "size": args.size, "times": args.times,
    }  # fmt: skip
    changes = {
        "backbone": args.backbone, "size": args.size, "epochs": args.epochs, "lr": args.lr,
        "batch_size": args.batch, "select": "last",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, bar() as progress:
        for method in args.methods:
            folds = []
            for number, manifest in enumerate(args.manifests):
                data, run = read_manifest(manifest), Path(folder) / f"{method}_{number}"
                judged = load_split(data, args.split, args.size, device=torch.device("cpu"))
                settings = choose_settings(method, changes=changes)
                train_grader(manifest, run, settings, cpu=True, progress=progress)
                grades = grade_split(load_grader(run), judged)
                folds.append(
                    compare(
                        grades.rank.double().numpy(), majority_rank(grades.probabilities).numpy(),
                        judged.target.hard.numpy(), data.num_ranks, args.fit, args.times,
                    )
                )  # fmt: skip
            record[method] = mean_of(folds)
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
