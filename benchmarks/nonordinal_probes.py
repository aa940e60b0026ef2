"""How much rank a generator's z_n holds, on some images only: for a CPU, where all take hours.

    python benchmarks/nonordinal_probes.py RUN [--manifest FILE] [--fit 2000] [--score 800]

The probes of `dismix generator evaluate`, fitted on label-free codes of training images and scored
on test images, both a fixed draw. The ordinal trunk is left out, which is half of the time.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from dismix.data.manifest import read_manifest
from dismix.generator.images import SplitImages, load_split
from dismix.generator.model import Generator
from dismix.generator.probes import conv_probe, linear_probe, some_rows
from dismix.mixing.encoding import run_manifest
from dismix.progress import bar
from dismix.provenance import provenance


@torch.no_grad()
def codes_of(model: Generator, split: SplitImages, rows: Tensor) -> Tensor:
    """Return z_n (n, D, h, w) of images of a split."""
    parts: list[Tensor] = []
    with bar() as progress:
        for part in rows.split(32):
            latent = model.nonordinal_latent(split.images(part, "cpu"))
            parts.append(model.quantize(latent).codes.float())
            progress("encoding", sum(map(len, parts)), len(rows))
    return torch.cat(parts)


def main() -> None:
    """Print one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--fit", type=int, default=2000)
    parser.add_argument("--score", type=int, default=800)
    args = parser.parse_args()
    model, cpu = Generator.load(args.run), torch.device("cpu")
    data = read_manifest(args.manifest or run_manifest(args.run))
    codes, ranks = [], []
    for name, most in (("train", args.fit), ("test", args.score)):
        split = load_split(data, name, model.image_size, device=cpu)
        rows = some_rows(len(split), most)
        codes.append(codes_of(model, split, rows))
        ranks.append(split.target.hard[rows].numpy())
    both = (codes[0], ranks[0], codes[1], ranks[1])
    found = {
        "images_fitted": len(ranks[0]), "images": len(ranks[1]),
        "z_n_linear": linear_probe(*both).to_dict(),
        "z_n_conv": conv_probe(*both, num_ranks=data.num_ranks).to_dict(),
    }  # fmt: skip
    print(json.dumps({**found, **provenance()}, indent=1))


if __name__ == "__main__":
    main()
