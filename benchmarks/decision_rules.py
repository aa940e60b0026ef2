"""How should what a grader says become a grade? Rules compared on validation images.

    python benchmarks/decision_rules.py MANIFEST [MANIFEST ...] [--methods poe rnc] [--record FILE]

Trains methods that place images between ranks (a small network from nothing, or with ``--backbone``
another, on the CPU), then fits each rule on some validation images and scores it on the other half,
many times over. Of several manifests, such as folds, means are shown. Test images take no part.

Rules that cut the line of ranks: "nearest" rank (the authors'), "shares" (as many images of each
grade as there are), "best" (least cost on the images it is fitted on) and "averaged" (that of
resampled sets, averaged: what `dismix.graders.cut_points` does). "mode" takes the most probable
rank of the grader's law, of equal ones the nearest to the expected rank, and fits nothing. "auto"
takes averaged cut points where they are surely better than the mode on parts of the images held out
from fitting, else the mode; "auto 0" where they are better at all, "auto 2" by two standard errors.

With ``--laws FOLDER`` what a trained grader says is kept there, and not trained again.
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

from dismix.atomic import replacing, write_text
from dismix.data.manifest import read_manifest
from dismix.generator.images import load_split
from dismix.graders.cut_points import SURELY, best_cuts, choose_cuts, fit_cuts, nearest_cuts
from dismix.graders.evaluation import grade_split
from dismix.graders.grades import decided
from dismix.graders.saving import load_grader
from dismix.graders.settings import choose_settings
from dismix.graders.start_run import train_grader
from dismix.laws import majority_rank
from dismix.progress import bar
from dismix.provenance import provenance

Array = NDArray[Any]
Rule = Callable[[Array, Array, int], Array]
#: Places (N,), laws (N, C) and grades (N,) of judged images.
Said = tuple[Array, Array, Array]


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
#: Standard errors by which cut points must be better than the mode.
AUTO = {"auto": SURELY, "auto 0": 0.0, "auto 2": 2.0}


def labels(name: str, fit: Said, held: Said) -> Array:
    """Return what a rule, fitted on some images, says of others."""
    (places, laws, grades), (others, their_laws, _) = fit, held
    ranks = laws.shape[1]
    if name in RULES:
        return np.asarray((others[:, None] >= RULES[name](places, grades, ranks)).sum(1))
    cuts = torch.full((ranks - 1,), torch.nan)
    if name in AUTO:
        mode = majority_rank(torch.from_numpy(laws))
        cuts = choose_cuts(
            torch.from_numpy(places), mode, torch.from_numpy(grades), ranks, surely=AUTO[name]
        )
    return decided(torch.from_numpy(their_laws), torch.from_numpy(others), cuts).numpy()


def compare(said: Said, sizes: list[int], times: int) -> dict[str, Any]:
    """Return accuracy and mean absolute error of each rule by the number of images to fit on."""
    half = len(said[0]) // 2
    found: dict[str, Any] = {}
    for size in (s for s in sizes if s <= half):
        rng = np.random.default_rng(0)
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in (*RULES, MODE, *AUTO)}
        for _ in range(times):
            order = rng.permutation(len(said[0]))
            fit, held = (tuple(a[rows] for a in said) for rows in (order[:size], order[half:]))
            for name, pairs in scores.items():
                away = labels(name, fit, held) - held[2]
                pairs.append((float((away == 0).mean()), float(np.abs(away).mean())))
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


def said_by(
    method: str, manifest: Path, split: str, settings: Any, kept: Path | None, progress: Any
) -> Said:
    """Train a grader on a manifest, unless what it says is kept, and return what it says."""
    file = kept / f"{manifest.parent.name}_{manifest.stem}_{method}.npz" if kept else None
    if file is None or not file.is_file():
        device = torch.device("cpu")
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / method
            train_grader(manifest, run, settings, cpu=True, progress=progress)
            judged = load_split(read_manifest(manifest), split, settings.size, device=device)
            grades = grade_split(load_grader(run), judged)
        found = (
            grades.rank.double().numpy(), grades.probabilities.numpy(),
            judged.target.hard.numpy(),
        )  # fmt: skip
        if file is None:
            return found
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary, open(temporary, "wb") as opened:
            np.savez(opened, place=found[0], law=found[1], grade=found[2])
    held = np.load(file)
    return held["place"], held["law"], held["grade"]


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
    parser.add_argument("--laws", type=Path, help="folder of what trained graders say")
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
    with bar() as progress:
        for method in args.methods:
            settings = choose_settings(method, changes=changes)
            folds = [
                said_by(method, manifest, args.split, settings, args.laws, progress)
                for manifest in args.manifests
            ]
            record[method] = mean_of([compare(said, args.fit, args.times) for said in folds])
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
