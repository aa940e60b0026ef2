"""Does a mix show the rank of its label? Measured from the pictures, on phantoms.

    python benchmarks/mixing_phantom.py --run RUN [--figure FILE.png]

RUN is a generator trained on a phantom set (`dismix data phantom -o DIR`, `dismix generator train
DIR -o RUN --arch tiny`). Its training images are mixed in pairs, adjacent ones and ones 2 to 4
ranks apart, and the rank factor (joint-space width, lesion area) of every picture is measured, in
ranks, without any network. Beside the policies: Mixup and CutMix on the same pairs and ratios, and
the constant midpoint, which always answers the middle of the pair. `at_ranks` takes the error of
single images decoded at asked ranks apart: means, between pictures, within them.

For interpolating policies: slope of the measured on the intended rank over all pictures, slope
within pairs, mean absolute error. For preserving ones: mean and mean absolute change against the
giver's rank. The measure's own error on the real images and on reconstructions stands first.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.data.manifest import read_manifest
from dismix.data.phantom import measured_severity
from dismix.data.transforms import from_unit
from dismix.generator.images import load_split
from dismix.generator.traverse import ordinal_traverse
from dismix.mixing.encoding import encode_split, run_manifest
from dismix.mixing.engine import MixEngine
from dismix.mixing.quality import (
    RankPairs,
    Readings,
    draw_rank_pairs,
    read_method,
    within_slope,
)
from dismix.progress import bar
from dismix.provenance import provenance

# Evenly spaced as the uniform law has it: the constant midpoint is off by 0.25 rank.
LAMS = tuple((2 * k + 1) / 12 for k in range(5, -1, -1))
INTERPOLATING = ("ordinal_mix", "generate_and_mix", "mixup", "cutmix")
PRESERVING = ("nonordinal_mix", "order_swap")


def overall_slope(found: Readings) -> float:
    """Return the slope of the measured on the intended rank over all pictures."""
    return float(np.polyfit(found.intended.ravel(), found.read.ravel(), 1)[0])


def interpolation(found: Readings) -> dict[str, float]:
    """Return the numbers of an interpolating method."""
    return {
        "slope": round(overall_slope(found), 3),
        "slope_within_pairs": round(within_slope(found.read, found.intended), 3),
        "error": round(float(np.abs(found.read - found.intended).mean()), 3),
    }


def midpoint(found: Readings) -> Readings:
    """Return what the middle of each pair would read."""
    middle = (found.intended[0] + found.intended[-1]) / 2
    return Readings(np.broadcast_to(middle, found.read.shape), found.intended)


def preservation(found: Readings) -> dict[str, float]:
    """Return how far pictures are from their giver's rank."""
    away = found.read - found.intended
    return {
        "mean_change": round(float(away.mean()), 3),
        "error": round(float(np.abs(away).mean()), 3),
        "error_of_pair_means": round(float(np.abs(away.mean(0)).mean()), 3),
    }


def scatter(read: NDArray[np.float64], asked: NDArray[np.float64]) -> dict[str, Any]:
    """Part the error of pictures decoded at asked ranks (R,) and read (R, N) as ranks."""
    away = read - asked[:, None]
    left = away - away.mean(1, keepdims=True)
    own = left.mean(0)
    return {
        "asked": asked.tolist(),
        "mean_away": away.mean(1).round(3).tolist(),
        "deviation_between_pictures": round(float(own.std()), 3),
        "deviation_within_pictures": round(float((left - own).std()), 3),
    }


def alike(engine: MixEngine, pairs: RankPairs, count: int) -> Tensor:
    """Return second images (P,), the most alike of ``count`` that have the drawn one's rank."""
    ranks, rng = engine.store.target.hard, torch.Generator().manual_seed(1)
    chosen = []
    for first, second in zip(pairs.first, pairs.second, strict=True):
        same = torch.nonzero(ranks == ranks[second]).flatten()
        others = same[torch.randperm(len(same), generator=rng)[: count - 1]]
        drawn = torch.cat([second.view(1), others])
        away = engine.likeness.away(first.expand(len(drawn)), drawn)
        chosen.append(drawn[away.argmin()])
    return torch.stack(chosen)


def measure(run: Path, args: argparse.Namespace, progress: Any) -> dict[str, Any]:
    """Return every number."""
    data = read_manifest(args.manifest or run_manifest(run))
    subject = "knee" if data.meta.grey else "fundus"
    store = encode_split(
        run, args.manifest, details=args.detail > 0, cache=args.cache, progress=progress
    )
    engine = MixEngine.load(run, store.folder)
    train = load_split(
        data, "train", engine.model.image_size, device=torch.device("cpu"), cache=args.cache
    )
    ranks = store.target.hard

    def severity(images: Tensor) -> NDArray[np.float64]:
        pixels = from_unit(images).numpy()
        return np.asarray(measured_severity(pixels, subject, data.num_ranks), np.float64)

    rows = torch.linspace(0, len(train) - 1, min(400, len(train))).long()
    real = severity(train.images(rows, "cpu"))
    rebuilt = severity(engine.decode(engine.stored(rows).codes))
    wanted = ranks[rows].numpy()
    record: dict[str, Any] = {
        "subject": subject,
        "pairs": args.pairs,
        "detail": args.detail,
        "alike": args.alike,
        "lams": [round(lam, 3) for lam in LAMS],
        "error_of_measure_on_real_images": round(float(np.abs(real - wanted).mean()), 3),
        "error_on_reconstructions": round(float(np.abs(rebuilt - wanted).mean()), 3),
        "reconstruction_against_own_image": round(float(np.abs(rebuilt - real).mean()), 3),
    }
    asked = np.arange(2 * data.num_ranks - 1) / 2
    made = ordinal_traverse(engine.model, train.images(rows[::2], "cpu"), torch.from_numpy(asked))
    found = np.stack([severity(pictures.clamp(-1, 1)) for pictures in made])
    record["at_ranks"] = scatter(found, asked)
    for name, gaps in (("adjacent", (1,)), ("2 to 4 apart", (2, 3, 4))):
        pairs = draw_rank_pairs(ranks, args.pairs, args.seed, gaps)
        pairs = replace(pairs, second=alike(engine, pairs, args.alike))
        table: dict[str, Any] = {}
        for done, method in enumerate((*INTERPOLATING, *PRESERVING), start=1):
            found = read_method(
                engine, train, method, pairs, severity, lams=LAMS, detail=args.detail
            )
            if method in PRESERVING:
                table[method] = preservation(found)
            else:
                table[method] = interpolation(found)
            if method == "ordinal_mix":
                table["constant midpoint"] = interpolation(midpoint(found))
            progress(f"{name} pairs", done, 6)
        record[name] = table
    return record


def main() -> None:
    """Print a table and one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--detail", type=float, default=0.0, help="share given back to mixes")
    parser.add_argument("--alike", type=int, default=1, help="partners drawn for the most alike")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--figure", type=Path, help="also draw the policies here")
    args = parser.parse_args()
    with bar() as progress:
        record = measure(args.run, args, progress)
    for name in ("adjacent", "2 to 4 apart"):
        print(f"\n{name}")
        for method, numbers in record[name].items():
            print(f"  {method:<20}" + "".join(f"{k} {v:7.3f}   " for k, v in numbers.items()))
    if args.figure:
        from dismix.mixing.showing import draw_figure
        from dismix.show.contact_sheet import save_picture

        save_picture(draw_figure(args.run, manifest=args.manifest, cache=args.cache), args.figure)
    print(json.dumps({**record, **provenance()}, indent=1))


if __name__ == "__main__":
    main()
