"""How should Ord2Seq be taught by votes, and how read? Judged on validation images.

    python benchmarks/ord2seq_reading.py KOA [--seeds 2] [--record FILE]

KOA is a manifest with votes. A small network is trained from nothing for each kind of teaching
(the mean embedding of the votes' groups, or the path of one vote) and each seed; every training is
read twice, along one greedy path as the authors do and by the law over all paths. Accuracy and mean
absolute error are against majorities, the ranked probability score against votes. Test images take
no part.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dismix.atomic import write_text
from dismix.data.manifest import read_manifest
from dismix.generator.images import load_split
from dismix.graders.evaluation import evaluate
from dismix.graders.ord2seq import Ord2Seq
from dismix.graders.saving import load_grader
from dismix.graders.settings import choose_settings
from dismix.graders.start_run import train_grader
from dismix.progress import bar
from dismix.provenance import provenance

READINGS = ("softmax", "tree")


def main() -> None:
    """Train, read and print a table and one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--size", type=int, default=64, help="pixels a side")
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    val = load_split(read_manifest(args.manifest), "val", args.size, device=torch.device("cpu"))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, bar() as progress:
        for seed in range(args.seeds):
            for teacher in ("mean", "sample"):
                run = Path(folder) / f"{teacher}-{seed}"
                changes = {
                    "backbone": "tiny", "size": args.size, "epochs": args.epochs,
                    "select": "last", "teacher": teacher,
                }  # fmt: skip
                settings = choose_settings("ord2seq", changes=changes)
                train_grader(args.manifest, run, settings, seed=seed, cpu=True, progress=progress)
                grader = load_grader(run)
                assert isinstance(grader, Ord2Seq)
                for reading in READINGS:
                    grader.config = replace(grader.config, probabilities=reading)
                    found = evaluate(grader, val)
                    rows.append({
                        "teacher": teacher, "reading": reading, "seed": seed,
                        "accuracy": found["accuracy"], "mae": found["mae"], "rps": found["loss"],
                    })  # fmt: skip
                    print(rows[-1], flush=True)
    text = json.dumps({"epochs": args.epochs, "size": args.size, "rows": rows, **provenance()})
    if args.record:
        write_text(args.record, text + "\n")


if __name__ == "__main__":
    main()
