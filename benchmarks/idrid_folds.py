"""Folds of the images that are not for testing, to choose a mixer's recipe on.

    python benchmarks/idrid_folds.py IDRID/manifest.csv [--block 10]
    dismix bench run results/bench/folds_plan.json --data f0=IDRID/f0.csv --generator f0=RUN ...

Writes f0.csv to f3.csv beside the manifest: a fifth of train and val each stands as "test", every
eighth of it as "val" (the plan takes the last checkpoint); images for testing and published grades
are left out, so the annotators' votes judge. Images are dealt out grade by grade, or with
``--block`` in runs of so many numbers: neighbours may be the eyes of one person
(`benchmarks/idrid_neighbours.py`), and a mixer that helps to know persons again must not gain.
A generator that saw these images is refused as long as its run.json tells so, and rightly: its
mixers may be compared with each other only.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

FOLDS, WRITTEN = 5, 4


def fold_numbers(grades: "pd.Series[str]", seed: int) -> "pd.Series[int]":
    """Return the fold of every image, dealt out grade by grade."""
    rng = np.random.default_rng(seed)
    fold = pd.Series(-1, index=grades.index)
    for grade in sorted(grades.unique()):
        rows = rng.permutation(grades.index[grades == grade])
        fold[rows] = (np.arange(len(rows)) + rng.integers(FOLDS)) % FOLDS
    return fold


def block_numbers(images: "pd.Series[str]", block: int, seed: int) -> "pd.Series[int]":
    """Return the fold of every image, neighbours in number together."""
    number = images.str.extract(r"(\d+)\D*$")[0].astype(int)
    blocks = (number - 1) // block
    names = np.random.default_rng(seed).permutation(blocks.unique())
    fold = {name: place % FOLDS for place, name in enumerate(names)}
    return blocks.map(fold)


def main() -> None:
    """Write the folds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--block", type=int, default=0, help="numbers that stay together")
    args = parser.parse_args()
    table = pd.read_csv(args.manifest, dtype=str, keep_default_na=False)
    table = table[table["split"] != "test"]
    if args.block:
        fold = block_numbers(table["image"], args.block, args.seed)
    else:
        fold = fold_numbers(table["grade"], args.seed)
    for number in range(WRITTEN):
        split = pd.Series("train", index=table.index)
        held_out = table.index[fold == number]
        split[held_out] = "test"
        split[held_out[::8]] = "val"
        made = args.manifest.with_name(f"f{number}.csv")
        table.assign(split=split).drop(columns="grade").to_csv(made, index=False)
        meta = args.manifest.with_suffix(".meta.json")
        shutil.copyfile(meta, made.with_suffix(".meta.json"))
        print(made, split.value_counts().to_dict())


if __name__ == "__main__":
    main()
