"""All mixers on the same pairs of real images, in one picture.

    python benchmarks/mixer_gallery.py data/idrid -o idrid_mixers.png
    python benchmarks/mixer_gallery.py data/koa -o koa_mixers.png --grader runs/koa-ce

A row a mixer, a column a pair of neighbouring ranks; the first two rows are the pairs. Saliency
is the spectral residual, or with --grader the gradient of a trained grader's loss. Mixers that
act inside a network have no picture; DisMix has its own figures (`dismix mix show`).
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.data.manifest import Manifest, read_manifest
from dismix.data.sources import read_source
from dismix.generator.images import load_split
from dismix.labels import OrdinalTarget
from dismix.mixing import create_mixer, spectral_saliency
from dismix.show.contact_sheet import picture_grid, save_picture

NAMES = ["mixup", "cutmix", "resizemix", "puzzlemix", "guidedmixup", "comixup", "filtermix"]


def open_data(path: Path) -> Manifest:
    """Read a manifest, or a folder of a known form."""
    if path.is_file() or (path / "manifest.csv").is_file():
        return read_manifest(path)
    return read_source(path)


def choose_pairs(target: OrdinalTarget, pairs: int, seed: int) -> Tensor:
    """Return rows (2 * pairs,): image, partner of the next rank, image, partner, ..."""
    rng = torch.Generator().manual_seed(seed)
    hard = target.hard.cpu()
    chosen: list[int] = []
    for k in range(pairs):
        low = k % (target.num_ranks - 1)
        for rank in (low, low + 1):
            members = (hard == rank).nonzero().squeeze(1)
            chosen.append(int(members[torch.randint(len(members), (1,), generator=rng)]))
    return torch.tensor(chosen)


def pictures(images: Tensor, size: int) -> list[NDArray[np.uint8]]:
    """Return (size, size, channels) pixels of images in [-1, 1]."""
    small = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
    pixels = ((small.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return [x.permute(1, 2, 0).cpu().numpy() for x in pixels]


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--shown", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grader", type=Path)
    parser.add_argument("--only", nargs="*", default=NAMES)
    args = parser.parse_args()
    data = load_split(open_data(args.data), "train", args.size, device=torch.device("cpu"))
    rows = choose_pairs(data.target, args.pairs, args.seed)
    images, target = data.images(rows, "cpu"), data.target[rows]
    sources = {"saliency_fn": spectral_saliency}
    if args.grader:
        from dismix.graders.saving import load_grader

        sources = {"model": load_grader(args.grader)}
    table = [pictures(images[0::2], args.shown), pictures(images[1::2], args.shown)]
    captions = [("image", "rank " + " ".join(map(str, target.hard[0::2].tolist()))),
                ("partner", "rank " + " ".join(map(str, target.hard[1::2].tolist())))]  # fmt: skip
    for name in args.only:
        rule = {} if name == "comixup" else {"pairing": "consecutive"}
        mix = create_mixer(name, data.target.num_ranks, p=1.0, seed=args.seed, **rule, **sources)
        mixed, _, info = mix(images, target, return_info=True)
        table.append(pictures(mixed[0::2], args.shown))
        share = f"lam {float(info.lam[0::2].mean()):.2f} on average"
        captions.append((name, "of all images" if name == "comixup" else share))
    save_picture(picture_grid(table, captions, args.shown), args.output)
    print(args.output)


if __name__ == "__main__":
    main()
