r"""Which guide orders real images best: what to know before a generator is trained under it.

    python benchmarks/guide_order.py few.csv --size 128 --seeds 2 -o F.json \
        conv lite0 lite0:lr=1e-3 lite0:lr=1e-3,batch_size=16,steps=1200

Each guide is taught on the training images and judged by Spearman's correlation of what it reads
and the mean ranks of the votes, on validation images and, with ``--held-out``, on those that stand
as "test" too (of `koa_few.py` or `idrid_folds.py`, which have no published test images).
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from dismix import atomic
from dismix.data.manifest import read_manifest
from dismix.generator.guide import train_guide
from dismix.generator.images import SplitImages, load_split
from dismix.generator.read_order import read_order
from dismix.progress import bar
from dismix.provenance import provenance

CPU = torch.device("cpu")
STEPS = 600


def settings_of(text: str) -> dict[str, Any]:
    """Return what ``kind:name=number,...`` asks of `train_guide`.

    Example:
        >>> settings_of("lite0:lr=1e-3,steps=1200")
        {'kind': 'lite0', 'steps': 1200, 'lr': 0.001}
    """
    kind, _, rest = text.partition(":")
    given = dict(part.split("=") for part in rest.split(",") if part)
    numbers = {name: float(v) if name == "lr" else int(v) for name, v in given.items()}
    return {"kind": kind, "steps": STEPS, **numbers}


def main() -> None:
    """Teach the guides, print and write how they order images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("guides", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = read_manifest(args.manifest)
    parts = ["train", "val", *(["test"] if args.held_out else [])]
    splits: dict[str, SplitImages] = {}
    with bar() as progress:
        for name in parts:
            splits[name] = load_split(data, name, args.size, device=CPU, progress=progress)
    record: dict[str, Any] = {
        "images": {name: len(split) for name, split in splits.items()},
        "size": args.size, "guides": [], "provenance": provenance("cpu"),
    }  # fmt: skip
    for text in args.guides:
        for seed in range(args.seeds):
            start = time.process_time()
            with bar() as progress:
                guide = train_guide(
                    splits["train"], CPU, seed=seed, progress=progress, **settings_of(text)
                )
            taught = time.process_time() - start
            orders = {}
            for name in parts[1:]:
                split = splits[name]
                images = split.images(torch.arange(len(split)), CPU)
                orders[name] = round(read_order(guide, images, split.target), 4)
            found = {"guide": text, "seed": seed, **orders, "seconds": round(taught, 1)}
            record["guides"].append(found)
            # After each: a kill loses nothing finished.
            atomic.write_json(args.output, record)
            print(found, flush=True)


if __name__ == "__main__":
    main()
