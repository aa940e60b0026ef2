"""Which description of non-ordinal codes finds partners whose pictures lie alike?

    python benchmarks/likeness.py RUN --manifest MANIFEST --output record.json

For anchors of the training split 16 images of a neighbouring rank are drawn, and each description
names the nearest. Compared are the images themselves, at 32 x 32 without their mean brightness:
root mean square difference on a scale of -1 to 1, less is more alike. "any" is the first of the
16, "best" what comparing the images themselves would find.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix import atomic
from dismix.data.manifest import read_manifest
from dismix.generator.images import load_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.likeness import layout_of
from dismix.provenance import provenance

DRAWN, ANCHORS, SIDE = 16, 300, 32


def without_mean(maps: Tensor) -> Tensor:
    """Take each channel's mean off maps (N, D, h, w)."""
    return maps - maps.mean((2, 3), keepdim=True)


DESCRIPTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "layout, 8 x 8 (in use)": layout_of,
    "8 x 8 with its mean": lambda n: F.adaptive_avg_pool2d(n, 8).flatten(1),
    "4 x 4 with its mean": lambda n: F.adaptive_avg_pool2d(n, 4).flatten(1),
    "whole codes": lambda n: n.flatten(1),
    "whole codes without mean": lambda n: without_mean(n).flatten(1),
}


def main() -> None:
    """Print and write the mean differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    engine = MixEngine.load(args.run)
    count = len(engine.store)
    parts = torch.split(torch.arange(count), 64)
    codes = torch.cat([engine.stored(part).codes.nonordinal for part in parts]).float()
    train = load_split(
        read_manifest(args.manifest), "train", engine.model.image_size, device=torch.device("cpu")
    )
    small = torch.cat(
        [F.adaptive_avg_pool2d(train.images(part, "cpu").float(), SIDE) for part in parts]
    )
    shown = without_mean(small.mean(1, keepdim=True)).flatten(1)
    described = {name: describe(codes) for name, describe in DESCRIPTIONS.items()}
    ranks, rng = engine.store.target.hard, torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {name: [] for name in ("any", "best", *described)}
    for anchor in torch.randint(count, (ANCHORS,), generator=rng).tolist():
        near = torch.nonzero((ranks - ranks[anchor]).abs() == 1).flatten()
        drawn = near[torch.randperm(len(near), generator=rng)[:DRAWN]]
        away = (shown[drawn] - shown[anchor]).square().mean(1).sqrt()
        found["any"].append(float(away[0]))
        found["best"].append(float(away.min()))
        for name, table in described.items():
            found[name].append(float(away[(table[drawn] - table[anchor]).square().sum(1).argmin()]))
    means = {name: round(sum(values) / len(values), 4) for name, values in found.items()}
    record = {"images": count, "drawn": DRAWN, "difference": means, "provenance": provenance()}
    print(json.dumps(record, indent=1))
    if args.output:
        atomic.write_json(args.output, record)


if __name__ == "__main__":
    main()
