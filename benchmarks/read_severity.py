r"""Do images show what they are called? What a generator reads in the images of each rank.

    dismix mix encode RUN
    python benchmarks/read_severity.py RUN -o F.json

Readings are those of the encoded training images, told no label (`dismix.mixing.severity`). A
generator that is asked for a rank shows it fully; where what it reads in the images of a rank lies
nearer to the middle, mixes that show their labels are caricatures of them.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from dismix import atomic
from dismix.mixing.engine import MixEngine
from dismix.provenance import provenance


def readings(engine: MixEngine) -> list[dict[str, Any]]:
    """Return the mean rank by the votes and by the generator, of the images of each majority."""
    store = engine.store
    read = engine.stored(torch.arange(len(store))).read
    if read is None:
        raise SystemExit("this generator cannot be asked for a rank: it shows images as they are")
    votes = store.target.rank
    found = []
    for rank in range(store.target.num_ranks):
        here = store.target.hard == rank
        seen = read.sum(1)[here].double()
        found.append({
            "rank": rank, "images": int(here.sum()),
            "votes": round(float(votes[here].double().mean()), 3),
            "read": round(float(seen.mean()), 3), "sd": round(float(seen.std()), 3),
        })  # fmt: skip
    return found


def main() -> None:
    """Print and write the readings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    found = readings(MixEngine.load(args.run))
    for row in found:
        print(row)
    atomic.write_json(args.output, {"readings": found, "provenance": provenance("cpu")})


if __name__ == "__main__":
    main()
