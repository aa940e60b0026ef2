"""How well each grader does on phantoms with enough data, on one CPU core.

    python benchmarks/graders_phantom.py [--methods poe,gol] [--subject fundus] [--seeds 2]
        [--set select=loss] [--output results/graders/phantom/new]

Five ranks, pictures of 64 px in the proportions of the phantom's own annotators: training and
validation on the votes, test on the true grade. The `tiny` backbone starts from nothing, the
common loop trains it, the checkpoint is chosen on validation by the default rule; nothing is
chosen on the test pictures. Every method has the same epochs, batch size and learning rate.

With --output every training leaves a JSON file, and those that are there are not run again.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dismix import atomic
from dismix.accelerators import make_accelerator
from dismix.data.phantom import PhantomSpec, render
from dismix.data.phantom.plan import PlannedImage, plan_images
from dismix.generator.images import SplitImages
from dismix.graders.base import Grader
from dismix.graders.evaluation import evaluate
from dismix.graders.registry import GRADERS, create_grader
from dismix.graders.settings import choose_settings
from dismix.graders.training import Training, run_training
from dismix.labels import OrdinalTarget
from dismix.provenance import provenance

RANKS, SIZE = 5, 64


def as_split(planned: list[PlannedImage]) -> SplitImages:
    """Draw images; the target is their votes, or for test images the true grade."""
    pixels = torch.from_numpy(np.stack([render(image.factors, SIZE) for image in planned]))
    pixels = pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)
    votes = [image.votes or (image.factors.rank,) for image in planned]
    target = OrdinalTarget.from_votes(torch.tensor(votes), RANKS)
    return SplitImages(pixels.contiguous(), target, equalize=False)


def draw_splits(options: argparse.Namespace, seed: int) -> dict[str, SplitImages]:
    """Draw the three splits."""
    spec = PhantomSpec(
        subject=options.subject, num_ranks=RANKS, size=SIZE, seed=seed,
        train=options.train, val=options.val, test=options.test,
    )  # fmt: skip
    planned = list(plan_images(spec))
    return {
        name: as_split([image for image in planned if image.split == name])
        for name in ("train", "val", "test")
    }


def train_and_test(
    method: str, splits: dict[str, SplitImages], options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Return the test metrics of one training, and its seconds of processor time."""
    changes = {
        "backbone": "tiny", "epochs": options.epochs, "batch_size": 32, "lr": options.lr,
        "size": SIZE, **dict(text.split("=", 1) for text in options.set),
    }  # fmt: skip
    settings = choose_settings(method, changes=changes)
    start = time.process_time()
    grader = create_grader(method, backbone="tiny", num_ranks=RANKS, seed=seed, **settings.hparams)
    with tempfile.TemporaryDirectory() as folder:
        run_training(
            Training(grader, settings, seed), splits["train"], splits["val"], Path(folder),
            make_accelerator(cpu=True), save_seconds=1e9,
        )  # fmt: skip
        chosen = Grader.load(folder)
    return {**evaluate(chosen, splits["test"]), "seconds": time.process_time() - start}


def result_of(
    method: str, seed: int, options: argparse.Namespace, drawn: dict[int, dict[str, SplitImages]]
) -> dict[str, Any]:
    """Return the metrics of one training, from its file when there is one."""
    path = options.output and options.output / f"{options.subject}-{method}-{seed}.json"
    asked = {k: v for k, v in vars(options).items() if k not in ("output", "methods", "seeds")}
    # Which sets a command names does not matter for one of them.
    asked = {"method": method, "set_seed": seed, **asked, "first": 0}
    if path and path.is_file():
        known: dict[str, Any] = json.loads(path.read_text())
        if known["options"] != asked:
            raise SystemExit(f"{path} is of other options; choose another --output")
        return dict(known["test"])
    if seed not in drawn:
        drawn.clear()
        drawn[seed] = draw_splits(options, seed)
    found = train_and_test(method, drawn[seed], options, seed)
    if path:
        record = {"options": asked, "test": found, "provenance": provenance()}
        atomic.write_json(path, record)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", default=",".join(GRADERS))
    parser.add_argument("--subject", default="knee", choices=("knee", "fundus"))
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--val", type=int, default=200)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seeds", type=int, default=1, help="sets drawn and trainings run")
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--set", action="append", default=[], help="any setting, name=value")
    parser.add_argument("--output", type=Path, help="folder for one JSON file a training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    origin = provenance()
    print(f"commit {origin['commit']}, {origin['date']}, {origin['hardware']} (one core used)")
    print(f"{vars(options)}\n")
    print("| method | set | accuracy | MAE | MAE of expected rank | quadratic kappa | seconds |")
    print("|---|---|---|---|---|---|---|")
    drawn: dict[int, dict[str, SplitImages]] = {}
    for seed in range(options.first, options.first + options.seeds):
        for method in options.methods.split(","):
            found = result_of(method, seed, options, drawn)
            row = f"{found['accuracy']:.1%} | {found['mae']:.3f} | {found['mae_expected']:.3f}"
            row += f" | {found['qwk']:.3f} | {found['seconds']:.0f}"
            print(f"| {method} | {seed} | {row} |", flush=True)


if __name__ == "__main__":
    main()
