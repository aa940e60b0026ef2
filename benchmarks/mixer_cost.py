"""What does each mixer add to a training step, and which part of it?

One grader, one batch size, random pictures on the device (never zeros: they compress), the same
p and p_mode for all mixers. Seconds a step are means over synchronised runs, in blocks by turns
with plain steps, so that a machine that slows down slows both. Parts are measured in runs of
their own with a synchronisation at every border, so they add up to more than the difference.
The saliency pass alone is what no solver can undercut.

    python benchmarks/mixer_cost.py --device cuda                        # H200, table of the page
    python benchmarks/mixer_cost.py --device cpu --batch 8 --size 64 --backbone resnet18 --steps 3
    python benchmarks/mixer_cost.py --device cuda --method gol --run runs/idrid --only dismix mixup

A mixer's name may carry options: ``puzzlemix:solver=exact guidedmixup:saliency=grad``.
Needs torch, timm, numpy and scipy; no network, no data.
"""

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.graders.base import Grader
from dismix.graders.registry import create_grader
from dismix.labels import OrdinalTarget
from dismix.mixing import MIXERS, Mixer, create_mixer
from dismix.mixing.editors import CachedEditor, IdentityEditor
from dismix.mixing.saliency import gradient_saliency
from dismix.provenance import provenance

RANKS = 5
DEFAULT = [
    "mixup", "cutmix", "resizemix", "guidedmixup", "guidedmixup:saliency=grad", "puzzlemix",
    "puzzlemix:solver=exact", "puzzlemix:saliency_scale=0.5", "comixup",
    "comixup:saliency_scale=0.5", "filtermix", "diffusemix", "manifold_mixup",
    "ordinal_manifold_mixup", "alignmixup", "sumix", "mixup:pairing=kernel", "dismix",
]  # fmt: skip
# Functions whose time is a part of a mixer's, by mixer.
PARTS: dict[str, list[tuple[str, str, str]]] = {
    "puzzlemix": [
        ("dismix.mixing.puzzlemix", "pair_saliency", "saliency"),
        ("dismix.mixing.puzzlemix", "PuzzleMix.best_mask", "solver"),
        ("dismix.mixing.puzzlemix", "PuzzleMix._moved", "transport"),
    ],
    "comixup": [
        ("dismix.mixing.comixup", "find_saliency", "saliency"),
        ("dismix.mixing.comixup", "CoMixup.solve", "solver"),
        ("dismix.mixing.comixup", "CoMixup.assemble", "blend"),
    ],
    "guidedmixup": [
        ("dismix.mixing.guidedmixup", "GuidedMixup.maps", "saliency"),
        ("dismix.mixing.guidedmixup", "greedy_cycle", "pairing"),
    ],
    "sumix": [("dismix.mixing.sumix", "SUMix._corrected", "passes")],
    "alignmixup": [("dismix.mixing.alignmixup", "align_features", "alignment")],
    "diffusemix": [("dismix.mixing.diffusemix", "fractal_like", "fractal")],
    "filtermix": [("dismix.mixing.diffusemix", "fractal_like", "fractal")],
}


class Bench:
    """A grader in training, with or without a mixer."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args, self.device = args, device
        self.gpu = device.type == "cuda"
        torch.manual_seed(0)
        self.grader: Grader = create_grader(
            args.method, backbone=args.backbone, weights=None, num_ranks=RANKS
        ).to(device)
        if self.gpu:
            torch.set_float32_matmul_precision("high")
            self.grader.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.grader.train()
        self.stage = self.grader.stages[-1]
        self.optimizer = torch.optim.Adam(self.grader.parameters(), 1e-5, foreach=True)
        rng = torch.Generator().manual_seed(0)
        shape = (args.batch, 3, args.size, args.size)
        # A few batches in turn; more would only fill memory.
        self.batches = [self._batch(shape, rng) for _ in range(4)]
        self.count = 0

    def _batch(self, shape: tuple[int, ...], rng: torch.Generator) -> tuple[Tensor, OrdinalTarget]:
        pixels = torch.randint(256, shape, generator=rng, dtype=torch.uint8).to(self.device)
        labels = torch.randint(RANKS, (shape[0],), generator=rng).to(self.device)
        return pixels.float() / 127.5 - 1, OrdinalTarget.from_labels(labels, RANKS)

    def autocast(self) -> Any:
        """Return the precision of training: bfloat16 on a GPU unless asked otherwise."""
        if self.gpu and self.args.precision == "bf16":
            return torch.autocast("cuda", torch.bfloat16)
        return nullcontext()

    def wait(self) -> None:
        """Wait for the device."""
        if self.gpu:
            torch.cuda.synchronize()

    def next_batch(self) -> tuple[Tensor, OrdinalTarget]:
        """Return one of the batches."""
        self.count += 1
        return self.batches[self.count % len(self.batches)]

    def step(self, mixer: Mixer | None) -> None:
        """Mix and take one step of training."""
        images, target = self.next_batch()
        if mixer is not None:
            images, target = mixer(images, target, model=self.grader)
        if self.gpu:
            images = images.contiguous(memory_format=torch.channels_last)
        with self.autocast():
            loss = self.grader.training_loss(images, target, self.stage)["loss"]
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def seconds(self, work: Callable[[], object], steps: int, warm: int) -> float:
        """Return the mean seconds of some work."""
        for _ in range(warm):
            work()
        self.wait()
        start = time.perf_counter()
        for _ in range(steps):
            work()
        self.wait()
        return (time.perf_counter() - start) / steps

    def compare(self, mixer: Mixer, steps: int, warm: int) -> dict[str, float]:
        """Return seconds of a mixed and of a plain step, by turns, and their ratio."""
        self.seconds(lambda: self.step(mixer), warm, 0)
        blocks, mixed, plain = max(1, steps // 5), [], []
        for _ in range(blocks):
            plain.append(self.seconds(lambda: self.step(None), 5, 1))
            mixed.append(self.seconds(lambda: self.step(mixer), 5, 1))
        step, beside = sum(mixed) / blocks, sum(plain) / blocks
        return {"step": step, "plain": beside, "ratio": step / beside}

    def saliency(self, rows: int) -> None:
        """Run the gradient pass of some rows alone."""
        images, target = self.next_batch()
        gradient_saliency(self.grader, images[:rows], target[:rows])


@contextmanager
def clocks(bench: Bench, name: str) -> Iterator[dict[str, float]]:
    """Add up the synchronised seconds of a mixer's parts."""
    import importlib

    spent: dict[str, float] = defaultdict(float)
    undo: list[tuple[Any, str, Any]] = []

    def timed(function: Any, part: str) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            bench.wait()
            start = time.perf_counter()
            result = function(*args, **kwargs)
            bench.wait()
            spent[part] += time.perf_counter() - start
            return result

        return run

    for module, path, part in PARTS.get(name, []):
        owner: Any = importlib.import_module(module)
        *parents, attribute = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        undo.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, timed(getattr(owner, attribute), part))
    try:
        yield spent
    finally:
        for owner, attribute, function in undo:
            setattr(owner, attribute, function)


def build(text: str, args: argparse.Namespace, cache: str) -> Mixer:
    """Make a mixer from ``name:option=value,...``."""
    name, _, options = text.partition(":")
    settings: dict[str, Any] = dict(pair.split("=", 1) for pair in options.split(",") if pair)
    if "saliency_scale" in settings:
        settings["saliency_scale"] = float(settings["saliency_scale"])
    if name == "dismix":
        settings |= {"run": args.run, "pool": 256 if args.pool else 0}
    if name == "diffusemix":
        settings["editor"] = CachedEditor(IdentityEditor(), cache)
    return create_mixer(name, RANKS, p=args.p, p_mode=args.p_mode, **settings)


def parts_of(bench: Bench, text: str, mixer: Mixer, steps: int) -> dict[str, float]:
    """Return seconds a step of the call to the mixer, and of its parts."""
    name = text.partition(":")[0]
    with clocks(bench, name) as spent:
        bench.step(mixer)
        spent.clear()
        mixing = 0.0
        for _ in range(steps):
            images, target = bench.next_batch()
            bench.wait()
            start = time.perf_counter()
            mixer(images, target, model=bench.grader)
            bench.wait()
            mixing += time.perf_counter() - start
            if name == "alignmixup":
                # Its work is done in the pass that follows.
                with bench.autocast():
                    bench.grader.training_loss(images, target, bench.stage)
    found = {part: value / steps for part, value in spent.items()}
    inside = sum(v for k, v in found.items() if k != "alignment")
    return {"call": mixing / steps, **found, "rest": max(mixing / steps - inside, 0.0)}


def measure(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Return the rows of the table for one device."""
    bench, steps = Bench(args, device), args.steps
    plain = bench.seconds(lambda: bench.step(None), steps, args.warm)
    half = max(1, round(args.p * args.batch))
    alone = {
        "all rows": bench.seconds(lambda: bench.saliency(args.batch), steps, args.warm),
        f"{half} rows": bench.seconds(lambda: bench.saliency(half), steps, args.warm),
    }
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for text in args.only or DEFAULT:
            if text.partition(":")[0] == "dismix" and not args.run:
                continue
            try:
                mixer = build(text, args, cache)
                rows[text] = bench.compare(mixer, steps, args.warm)
                rows[text] |= parts_of(bench, text, mixer, steps)
                show(text, rows[text])
            except DisMixError as error:
                # A grader whose predictions need a reference set cannot serve sumix, say.
                print(f"{text:<28} left out: {error}", flush=True)
    return {"plain": plain, "saliency alone": alone, "mixers": rows}


def show(text: str, row: dict[str, float]) -> None:
    """Print one row."""
    parts = ", ".join(
        f"{k} {v * 1e3:.2f}" for k, v in row.items() if k not in ("step", "plain", "ratio")
    )
    print(f"{text:<28} {row['step'] * 1e3:9.2f} ms  {row['ratio']:5.2f} x   ({parts})", flush=True)


def main() -> None:
    """Print a table for each device, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", nargs="+", default=[auto])
    parser.add_argument("--method", default="ce", help="grader whose loss is trained")
    parser.add_argument("--backbone", default="vgg16")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--p", type=float, default=0.5)
    parser.add_argument("--p-mode", default="sample", choices=["sample", "batch"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "tf32"])
    parser.add_argument("--only", nargs="*", help=f"of {', '.join(MIXERS)}")
    parser.add_argument("--run", help="generator run with its store, for dismix")
    parser.add_argument("--pool", action="store_true", help="let dismix use its pool")
    args = parser.parse_args()
    found = {}
    for name in args.device:
        print(f"# {name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads", flush=True)
        table = measure(args, torch.device(name))
        found[name] = table
        alone = ", ".join(f"{k} {v * 1e3:.2f} ms" for k, v in table["saliency alone"].items())
        print(f"plain step {table['plain'] * 1e3:.2f} ms; saliency pass alone: {alone}")
    print(json.dumps({**vars(args), "found": found, "provenance": provenance()}))


if __name__ == "__main__":
    main()
