"""Would graders gain from DisMix if its generator were perfect?

    python benchmarks/oracle_mixes.py [--train 1000] [--epochs 20] [--seeds 3] [--methods ce,cloc]
        [--ways none,mixup,interpolating,...] [--output results/mixing/oracle]

Drawn pictures have known factors, so a mix of two of them can be drawn instead of decoded: the
severity that the policy asks for, with the looks it asks for, sharp and exactly as severe as it
says. What is left is the method itself: policies, labels, mixes in place of images. Ways:

- ``none``, ``mixup``, ``cutmix``: as they are.
- ``interpolating``, ``preserving``, ``combined``: perfect mixes, labels of the votes as DisMix has.
- ``...:rank``: the same, labelled by the whole ranks that the sources truly have.
- ``...:true``: the same, labelled by the severity that was drawn, a law on its two nearest ranks.
- ``again``: the anchor itself drawn again, labelled by its votes: what replacing costs, nothing.
- ``new``: pictures of other persons with votes of their own, the most that can be hoped for.
- ``decoded-interpolating`` and so on: mixes of a generator, `--run`, trained on the same pictures
  and encoded: ``build_phantom(PhantomSpec(subject="knee", num_ranks=5, size=64, seed=41, ...))``;
  options of DisMix behind colons, as in ``decoded-combined:reach=0.5:detail=1``.

With --output every training leaves a JSON file, and those that are there are not run again.
"""

import argparse
import json
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graders_phantom import RANKS, SIZE, as_split
from torch import Tensor

from dismix import DisMix, atomic
from dismix.accelerators import make_accelerator
from dismix.data.phantom import PhantomSpec, render
from dismix.data.phantom.factors import Factors
from dismix.data.phantom.plan import PlannedImage, plan_images
from dismix.data.transforms import augment, draw_augment
from dismix.generator.images import SplitImages
from dismix.graders.base import Grader
from dismix.graders.evaluation import evaluate
from dismix.graders.registry import create_grader
from dismix.graders.settings import choose_settings
from dismix.graders.training import Training, run_training
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, Mixer, ModelAccess
from dismix.mixing.info import Mixed, MixInfo
from dismix.mixing.partner_index import PartnerIndex
from dismix.mixing.policies import mix_targets
from dismix.mixing.policy_draws import (
    GENERATE_AND_MIX,
    NONORDINAL_MIX,
    ORDER_SWAP,
    draw_numbers,
    named_policies,
    policy_draws,
)
from dismix.mixing.registry import create_mixer
from dismix.provenance import provenance

#: How often a drawn mix is used, as in the pilots with a generator.
REUSE = 2


class DrawnMixes(Mixer):
    """Puts ready pictures in place of images, each of them turned anew.

    Args:
        pictures: (N, channels, H, W) uint8.
        target: Their N labels.
        p: Share of images that are replaced.
        seed: Of the own generator.
    """

    method = "drawn"
    needs_partner = False

    def __init__(self, pictures: Tensor, target: OrdinalTarget, p: float, seed: int) -> None:
        super().__init__(target.num_ranks, p=p, seed=seed)
        self.pictures, self.target, self.used = pictures, target, 0

    def draw(self, images: Tensor, target: OrdinalTarget) -> Draws:
        """Choose the images to replace, and the next pictures in turn."""
        rows = self.draw_rows(len(images))
        taken = (self.used + torch.arange(len(rows))) % len(self.pictures)
        self.used += len(rows)
        return Draws(rows, taken, torch.ones(len(rows)), torch.zeros(len(rows), dtype=torch.bool))

    def replay(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Mixed:
        """Put them there."""
        turns = draw_augment(len(draws), self.generator, flips=(0.5, 0.5), max_degrees=20.0)
        shown = augment(self.pictures[draws.partner], turns).to(images.dtype)
        probs = target.probs.index_copy(0, draws.rows, self.target.probs[draws.partner])
        made = OrdinalTarget(probs, target.clean.index_fill(0, draws.rows, False))
        info = replace(MixInfo.unchanged(self.method, target), target=made)
        return Mixed(images.index_copy(0, draws.rows, shown), made, info)


def blend_looks(one: Factors, two: Factors, lam: float) -> Factors:
    """Return looks between two: numbers interpolated, what cannot be from the nearer one."""
    near = one if lam >= 0.5 else two
    numbers = {
        field.name: lam * getattr(one, field.name) + (1 - lam) * getattr(two, field.name)
        for field in fields(one)
        if isinstance(getattr(one, field.name), float)
    }
    return replace(near, **numbers)


def perfect_mixes(
    planned: list[PlannedImage], way: str, count: int, seed: int
) -> tuple[Tensor, OrdinalTarget]:
    """Draw mixes of training images, and their labels.

    Args:
        planned: The N training images.
        way: Policies, and behind a colon the labels.
        count: How many.
        seed: Decides all.
    """
    name, _, labels = way.partition(":")
    votes = OrdinalTarget.from_votes(torch.tensor([image.votes for image in planned]), RANKS)
    rng = torch.Generator().manual_seed(seed)
    index = PartnerIndex(votes.hard, RANKS)
    numbers = draw_numbers(count, rng, 6)
    anchor = index.anchors(numbers[:, -1])
    draws = policy_draws(numbers, votes.hard[anchor], index, named_policies(name), rows=anchor)
    made, severity = [], []
    for place in range(count):
        one = planned[int(anchor[place])].factors
        two = planned[int(draws.partner[place])].factors
        policy, lam = int(draws.policy[place]), float(draws.lam[place])
        swapped = bool(draws.from_partner[place])
        if policy == GENERATE_AND_MIX:
            two = replace(one, severity=float(draws.asked[place]))
        giver, other = (two, one) if swapped else (one, two)
        if policy == NONORDINAL_MIX:
            asked, looks = giver.severity, blend_looks(one, two, lam)
        elif policy == ORDER_SWAP:
            asked, looks = giver.severity, other
        else:
            asked, looks = lam * one.severity + (1 - lam) * two.severity, giver
        severity.append(asked)
        made.append(render(replace(looks, severity=asked), SIZE))
    if labels == "true":
        return _stacked(made), OrdinalTarget.from_rank(torch.tensor(severity), RANKS)
    if labels == "rank":
        votes = OrdinalTarget.from_labels([image.factors.rank for image in planned], RANKS)
    return _stacked(made), mix_targets(draws, votes[anchor], votes[draws.partner])


def _stacked(pictures: list[Any]) -> Tensor:
    pixels = torch.from_numpy(np.stack(pictures))
    return (pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)).contiguous()


def make_way(
    way: str, planned: list[PlannedImage], options: argparse.Namespace, seed: int
) -> Mixer | None:
    """Return the mixer of a way, None for no mixing."""
    if way == "none":
        return None
    if way in ("mixup", "cutmix"):
        return create_mixer(way, RANKS, p=options.p, seed=seed)
    if way.startswith("decoded-"):
        if options.run is None:
            raise SystemExit("give --run, the folder of a generator of these pictures")
        policies, *given = way.removeprefix("decoded-").split(":")
        others = {name: float(value) for name, value in (pair.split("=") for pair in given)}
        return DisMix.load(
            options.run, p=options.p, policies=policies, labels="votes", pool=256, reuse=REUSE,
            seed=seed, **others,
        )  # fmt: skip
    count = int(options.p * options.epochs * len(planned) / REUSE)
    if way == "again":
        rng = np.random.default_rng(seed)
        split = as_split([planned[i] for i in rng.integers(len(planned), size=len(planned))])
    elif way == "new":
        spec = PhantomSpec(
            subject=options.subject, num_ranks=RANKS, size=SIZE, seed=1000 + seed,
            train=count, val=0, test=0,
        )  # fmt: skip
        split = as_split(list(plan_images(spec)))
    else:
        return DrawnMixes(*perfect_mixes(planned, way, count, seed), options.p, seed)
    return DrawnMixes(split.source, split.target, options.p, seed)


def train_and_test(
    way: str, method: str, planned: dict[str, list[PlannedImage]],
    splits: dict[str, SplitImages], options: argparse.Namespace, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the test metrics of one training."""
    changes = {
        "backbone": "tiny", "epochs": options.epochs, "batch_size": 16, "size": SIZE,
    }  # fmt: skip
    settings = choose_settings(method, preset="dismix", changes=changes)
    grader = create_grader(method, backbone="tiny", num_ranks=RANKS, seed=seed, **settings.hparams)
    mixer = make_way(way, planned["train"], options, seed)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run_training(
            Training(grader, settings, seed, mixer=mixer), splits["train"], splits["val"],
            Path(folder), make_accelerator(cpu=True), save_seconds=1e9,
        )  # fmt: skip
        chosen = Grader.load(folder)
    return {**evaluate(chosen, splits["test"]), "seconds": time.process_time() - start}


def main() -> None:
    """Train every way, and print a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subject", default="knee", choices=("knee", "fundus"))
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--val", type=int, default=200)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--set-seed", type=int, default=41, help="of the drawn set")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--p", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default="ce")
    parser.add_argument(
        "--ways", default="none,again,new,mixup,cutmix,combined,interpolating,preserving,"
        "interpolating:rank,interpolating:true",
    )  # fmt: skip
    parser.add_argument("--run", type=Path, help="a generator, for the ways decoded-...")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    spec = PhantomSpec(
        subject=options.subject, num_ranks=RANKS, size=SIZE, seed=options.set_seed,
        train=options.train, val=options.val, test=options.test,
    )  # fmt: skip
    planned: dict[str, list[PlannedImage]] = {"train": [], "val": [], "test": []}
    for image in plan_images(spec):
        planned[image.split].append(image)
    splits = {name: as_split(images) for name, images in planned.items()}
    asked = {
        k: v for k, v in vars(options).items() if k not in ("output", "ways", "methods", "run")
    }
    for method in options.methods.split(","):
        for way in options.ways.split(","):
            found = []
            for seed in range(options.seeds):
                name = f"{options.subject}-{options.train}-{options.epochs}-{method}"
                path = options.output and options.output / f"{name}-{way}-{seed}.json".replace(
                    ":", "_"
                )
                if path and path.is_file():
                    found.append(json.loads(path.read_text())["test"])
                    continue
                test = train_and_test(way, method, planned, splits, options, seed)
                found.append(test)
                if path:
                    made = {"asked": {**asked, "method": method, "way": way, "seed": seed}}
                    atomic.write_json(path, {**made, "test": test, "provenance": provenance()})
            each = ", ".join(f"{100 * test['accuracy']:.1f}" for test in found)
            accuracy, error, score = (
                np.mean([test[metric] for test in found]) for metric in ("accuracy", "mae", "rps")
            )
            print(
                f"| {method} | {way} | {100 * accuracy:.1f} | {error:.3f} | {score:.3f} | {each} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
