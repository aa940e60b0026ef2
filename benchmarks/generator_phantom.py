"""What a tiny generator separates on the phantom knees, on a CPU.

    python benchmarks/generator_phantom.py [--subject fundus] [--data-seed N] [--set name=value]

Draws 1000/200/300 pictures of 64 px with the default annotators, trains `--arch tiny` with the
default recipe, and measures on the test pictures, encoded without labels: how well the rank
can be read from each code, and the true rank factor (joint-space width or lesion area, in
ranks) measured from the decoded pictures themselves along an ordinal and a non-ordinal
traverse. Nothing is chosen on these pictures.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.generator.evaluation import evaluate_generator
from dismix.generator.start_run import train_generator
from dismix.progress import bar
from dismix.provenance import provenance


def measure(run: Path, cache: Path) -> dict[str, object]:
    """Return every number of the table."""
    found = evaluate_generator(run, device="cpu", cache=cache)
    shown, judge = found["severity"], found["rank_control"]
    return {
        "psnr": found["reconstruction"]["psnr"],
        **{name: result["accuracy"] for name, result in found["probes"].items()},
        "z_n_perplexity": found["codebooks"]["nonordinal"]["perplexity"],
        "severity_error_of_reconstructions": shown["error_of_reconstructions"],
        "severity_at_ranks": shown["rank_control"]["at_ranks"],
        "images_with_monotone_traverse": shown["rank_control"]["images_monotone"],
        "nonordinal_mean_change": shown["look_control"]["mean_change"],
        "nonordinal_mean_absolute_change": shown["look_control"]["mean_absolute_change"],
        "judge_accuracy": found["judge"]["accuracy"],
        "judge_at_ranks": judge["at_ranks"],
        "judge_slope": judge["slope"],
    }


def main() -> None:
    """Run and print one JSON record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--subject", default="knee", choices=["knee", "fundus"])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument("--data-seed", type=int, default=7, help="of the pictures")
    parser.add_argument("--strip", type=Path, help="write a picture strip here")
    options = parser.parse_args()
    settings = dict(text.split("=", 1) for text in options.set)
    with tempfile.TemporaryDirectory() as folder, bar() as progress:
        data, run = Path(folder) / "data", Path(folder) / "run"
        spec = PhantomSpec(
            subject=options.subject, train=1000, val=200, test=300, seed=options.data_seed
        )
        build_phantom(spec, data, progress=progress)
        start = time.perf_counter()
        best = train_generator(
            data, run, arch="tiny", settings=settings, seed=options.seed, cpu=True,
            cache=Path(folder) / "cache", progress=progress,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        record = {"training_seconds": round(seconds), "threads": torch.get_num_threads()}
        record |= {"epoch": best["epoch"], "mixing_accuracy": round(best["score"], 3)}
        record |= measure(run, Path(folder) / "cache")
        if options.strip:
            with Image.open(run / "evaluation.jpg") as strip:
                strip.save(options.strip)
    print(json.dumps({**record, "settings": settings, **provenance()}, indent=1))


if __name__ == "__main__":
    main()
