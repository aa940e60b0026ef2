"""Which ranks do mixes have, by the rule that pairs images? No generator is needed.

    python benchmarks/mix_ranks.py IDRID KOA [--output record.json]

Draws mixes of a training split as DisMix does and compares the mean of their labels with that of
the images, in per cent for each rank. "busiest" is how many times more often than a fair share the
image that is a partner most often is one. Data without votes get the paper's five simulated
annotators, and 15 % of train and val for validation, as in the benchmark.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from dismix import atomic
from dismix.bench.derive import VALIDATION, VOTES, derive
from dismix.data.manifest import Manifest, read_manifest
from dismix.labels import OrdinalTarget
from dismix.mixing.partner_index import PartnerIndex
from dismix.mixing.policies import mix_targets
from dismix.mixing.policy_draws import GROUPS, NUMBERS, draw_numbers, policy_draws
from dismix.provenance import provenance

DRAWN = 50_000


def training_part(manifest: Manifest) -> OrdinalTarget:
    """Return the targets of the images that a generator of the benchmark learns from."""
    how: dict[str, Any] = {
        "labels": "votes", "validation": {**VALIDATION, "own": "merge"},
        "variability": "own" if manifest.annotators else 30, "votes": VOTES,
    }  # fmt: skip
    return derive(manifest, how).split("train").target()


def percent(target: OrdinalTarget) -> list[float]:
    """Return the mean law of images, in per cent."""
    return [round(100 * float(share), 1) for share in target.probs.mean(0)]


def measured(target: OrdinalTarget) -> dict[str, Any]:
    """Return the ranks of images, and of their mixes by policies and pairing."""
    index = PartnerIndex(target.hard, target.num_ranks)
    numbers = draw_numbers(DRAWN, torch.Generator().manual_seed(0), NUMBERS + 1)
    anchor = index.anchors(numbers[:, -1])
    found: dict[str, Any] = {"images": len(target), "own": percent(target), "mixes": {}}
    for policies in GROUPS:
        for pairing in ("adjacent", "near"):
            draws = policy_draws(
                numbers, target.hard[anchor], index, GROUPS[policies],
                rows=anchor, pairing=pairing,
            )  # fmt: skip
            used = torch.bincount(draws.partner, minlength=len(target))
            found["mixes"][f"{policies}, {pairing}"] = {
                "ranks": percent(mix_targets(draws, target[anchor], target[draws.partner])),
                "busiest": round(float(used.max()) * len(target) / DRAWN, 1),
            }
    return found


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="+", help="manifests")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = {"drawn": DRAWN, "data": {}}
    for path in args.data:
        name = (path.parent.name if path.stem == "manifest" else path.stem).lower()
        record["data"][name] = measured(training_part(read_manifest(path)))
    record["provenance"] = provenance("cpu")
    print(json.dumps(record, indent=1))
    if args.output:
        atomic.write_json(args.output, record)


if __name__ == "__main__":
    main()
