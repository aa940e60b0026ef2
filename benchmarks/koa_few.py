r"""Few images of KOA to train on, and many of its other training images to try recipes on.

    python benchmarks/koa_few.py KOA/manifest.csv -o few.csv
    dismix generator train few.csv -o RUN --arch tiny --size 128 --epochs 60 --set seen=0 \
        --set guide_kind=lite0 --set guide_steps=600 --set evaluate_every=20 --set strip_every=20
    dismix generator train few.csv -o SMALL --arch tiny --size 128 --epochs 80 \
        --set evaluate_every=40     # with the small guide, for comparison
    dismix bench run results/bench/few_plan.json --data few=few.csv --generator few=RUN -o OUT --cpu

The published test images are left out, and so are the published grades: the annotators' votes
judge. Three tenths of the rest stand as "test", 15 % of what is left is kept to train and validate
on; no patient is in two parts. `--rest` writes the knees of all other patients, on which
`few_judge.py` teaches a judge of such generators.
"""

import argparse
from pathlib import Path

from dismix.data.annotators.simulate import simulate_annotators
from dismix.data.describe import describe
from dismix.data.manifest import read_manifest, write_manifest
from dismix.data.splits import scarcity_subset, split_test, split_validation


def main() -> None:
    """Write the manifest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--rest", type=Path, help="manifest of the other patients' knees")
    parser.add_argument("--share", type=float, default=0.15, help="of each grade that is kept")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = read_manifest(args.manifest).split("train", "val")
    data = data.with_table(data.table.assign(split="train"))
    voted, _ = simulate_annotators(data, "30", seed=args.seed)
    blind = voted.with_table(voted.table.drop(columns="grade"))
    parted = split_test(blind, 0.3, seed=args.seed)
    few = scarcity_subset(parted, args.share, seed=args.seed)
    made = split_validation(few, 0.15, seed=args.seed)
    write_manifest(made, args.output)
    if args.rest is not None:
        others = ~blind.table["group"].isin(set(made.table["group"]))
        write_manifest(blind.with_table(blind.table[others].reset_index(drop=True)), args.rest)
    print(describe(made))


if __name__ == "__main__":
    main()
