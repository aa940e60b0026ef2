"""Do all grading methods learn phantoms from annotators' votes, on a CPU?

Five ranks at 64 px, the tiny backbone from nothing, five annotators who disagree; test images
are scored by their true grades.

    OMP_NUM_THREADS=1 python benchmarks/grader_phantom.py --train 2000 --epochs 30
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from dismix import atomic
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.graders.report import evaluate_run
from dismix.graders.settings import choose_settings
from dismix.graders.start_run import train_grader
from dismix.provenance import provenance

ALL = ("ce", "or-cnn", "coral", "corn", "sord", "poe", "gol", "mwr", "rnc", "ord2seq", "cloc")
SMALL = {"ord2seq": {"encoder_layers": 1, "decoder_layers": 1}}


def main() -> None:
    """Train and print a Markdown row a method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=[*ALL])
    parser.add_argument("--subject", default="knee", choices=("knee", "fundus"))
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="keep runs and results here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.output or Path(temporary)
        spec = PhantomSpec(
            subject=args.subject, train=args.train, val=200, test=args.test, seed=args.seed
        )
        build_phantom(spec, folder / "data")
        print("| method | accuracy | MAE | MAE, expected | kappa | minutes |\n|" + "---|" * 6)
        for method in args.methods:
            changes = {"backbone": "tiny", "size": 64, "epochs": args.epochs, "batch_size": 32,
                       "select": "loss", "augment": False, **SMALL.get(method, {})}  # fmt: skip
            start, run = time.perf_counter(), folder / method
            settings = choose_settings(method, changes=changes)
            train_grader(
                folder / "data", run, settings, seed=args.seed, cpu=True, resume=True,
                cache=folder / "cache",
            )  # fmt: skip
            minutes = (time.perf_counter() - start) / 60
            found = evaluate_run(run, cpu=True, cache=folder / "cache")["metrics"]
            print(
                f"| {method} | {100 * found['accuracy']:.1f} % | {found['mae']:.3f} | "
                f"{found['mae_expected']:.3f} | {found['qwk']:.3f} | {minutes:.1f} |",
                flush=True,
            )
            if args.output:
                record = {"method": method, "test": found, "minutes": minutes}
                atomic.write_json(folder / f"{method}.json", record)
        print(json.dumps(provenance()))


if __name__ == "__main__":
    main()
