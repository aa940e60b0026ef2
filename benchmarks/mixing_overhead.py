"""What DisMix costs in training: vanilla, its pool, its direct path, and every other mixer.

    python benchmarks/mixing_overhead.py --device cuda --graders ce gol      # 256 px, batch 64
    python benchmarks/mixing_overhead.py --device cpu --arch tiny --size 64 --batch 16 --steps 8

One grader (VGG16 features by default), the same p for all mixers, everything in one process and in
turn: each round times every variant over the same number of steps, and the table holds the median
over rounds of the ratio to vanilla in the same round. Blocks of the pool last about one round, so
their decoding is inside the timed steps; "decoded" and "used" say how many mixes were.

With --run a trained generator and its latent store are used; without it an untrained generator of
--arch with the codes of drawn pictures, which costs the same. Pictures of the training batches are
random. Needs torch, timm, numpy and scipy; no network.
"""

import argparse
import json
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dismix import atomic
from dismix.background import background
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator
from dismix.graders.registry import create_grader
from dismix.labels import OrdinalTarget
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.registry import create_mixer
from dismix.provenance import provenance

OTHERS = [
    "mixup", "cutmix", "resizemix", "guidedmixup", "puzzlemix", "puzzlemix:saliency_scale=0.5",
    "comixup", "comixup:saliency_scale=0.5",
]  # fmt: skip


def untrained_run(folder: Path, arch: str, size: int, device: str) -> Path:
    """Make a run folder that costs what a trained one does."""
    subject = "knee" if arch == "tiny" else "fundus"
    spec = PhantomSpec(subject=subject, train=64, val=0, test=0, size=size, num_ranks=5)
    build_phantom(spec, folder / "data")
    channels = 1 if arch == "tiny" else 3
    # The structure of the default recipe: the ordinal code says the rank alone.
    config = GeneratorConfig(
        num_ranks=5, arch=arch, image_size=size, in_channels=channels, rank_only=True,
        null_label="predicted",
    )  # fmt: skip
    Generator.seeded(config, 0).save(folder / "run")
    atomic.write_json(folder / "run" / "run.json", {"manifest": str(folder / "data")})
    encode_split(folder / "run", device=device, cache=folder / "cache")
    return folder / "run"


class Trainer:
    """One grader and the steps it takes."""

    def __init__(self, method: str, args: argparse.Namespace, engine: MixEngine) -> None:
        self.args, self.device = args, torch.device(args.device)
        self.gpu = self.device.type == "cuda"
        torch.manual_seed(0)
        self.grader = create_grader(
            method, num_ranks=engine.num_ranks, backbone=args.backbone, weights=None
        ).to(self.device)
        if self.gpu:
            self.grader.backbone.to(memory_format=torch.channels_last)
        self.grader.train()
        self.stage = self.grader.stages[-1]
        self.optimizer = torch.optim.Adam(self.grader.parameters(), 1e-5, fused=self.gpu)
        rng = torch.Generator().manual_seed(0)
        self.batches = [self._batch(engine, rng) for _ in range(4)]
        self.count = 0

    def _batch(
        self, engine: MixEngine, rng: torch.Generator
    ) -> tuple[Tensor, OrdinalTarget, Tensor]:
        shape = (self.args.batch, 3, self.args.size, self.args.size)
        pixels = torch.randint(256, shape, generator=rng, dtype=torch.uint8).to(self.device)
        rows = torch.randint(len(engine.store), (self.args.batch,), generator=rng)
        target = engine.store.target[rows].to(self.device)
        return pixels.float() / 127.5 - 1, target, rows

    def step(self, mixer: Any, *, with_rows: bool) -> None:
        """Mix and take one step of training."""
        self.count += 1
        images, target, rows = self.batches[self.count % len(self.batches)]
        if mixer is not None:
            options: dict[str, Any] = {"rows": rows} if with_rows else {"model": self.grader}
            images, target = mixer(images, target, **options)
        if self.gpu:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16) if self.gpu else nullcontext():
            loss = self.grader.training_loss(images, target, self.stage)["loss"]
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def seconds(self, mixer: Any, steps: int, *, with_rows: bool) -> float:
        """Return the seconds of some steps, synchronised at both ends."""
        self.wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step(mixer, with_rows=with_rows)
        # What the pool began within these steps is paid for within them.
        background().submit(int).result()
        self.wait()
        return (time.perf_counter() - start) / steps

    def wait(self) -> None:
        """Wait for the device."""
        if self.gpu:
            torch.cuda.synchronize()


class CountingDisMix(DisMix):
    """Counts the mixes that its pool decodes."""

    decoded = 0

    def pool_block(self, *place: Any) -> Any:
        """Make a block and count it."""
        made = super().pool_block(*place)
        self.decoded += len(made)
        return made


def variants(args: argparse.Namespace, engine: MixEngine) -> dict[str, Any]:
    """Return every mixer by what the table calls it; None is vanilla."""
    found: dict[str, Any] = {"vanilla": None}
    for text in args.mixers if args.mixers is not None else OTHERS:
        name, _, scale = text.partition(":saliency_scale=")
        options = {"saliency_scale": float(scale)} if scale else {}
        found[text] = create_mixer(name, engine.num_ranks, p=args.p, **options)
    common = {"engine": engine, "p": args.p}
    size = args.pool or max(4, round(args.steps * args.batch * args.p / args.reuse))
    found[f"dismix pool {size} x {args.reuse}"] = CountingDisMix(
        **common, pool=size, reuse=args.reuse
    )
    found["dismix direct, stored anchors"] = DisMix(**common)
    found["dismix direct, encoded anchors"] = DisMix(**common)
    if args.compiled:
        fast = MixEngine(engine.model, engine.store, compiled=True)
        found["dismix direct, compiled"] = DisMix(engine=fast, p=args.p)
        found["dismix pool, compiled"] = CountingDisMix(
            engine=fast, p=args.p, pool=size, reuse=args.reuse
        )
    return found


def measure(method: str, args: argparse.Namespace, engine: MixEngine) -> dict[str, Any]:
    """Return the rows of one grader's table."""
    trainer, mixers = Trainer(method, args, engine), variants(args, engine)
    times: dict[str, list[float]] = {name: [] for name in mixers}
    used: dict[str, int] = {}
    for round_number in range(-1, args.rounds):
        for name, mixer in mixers.items():
            dismix = isinstance(mixer, DisMix)
            with_rows = dismix and "encoded" not in name
            steps = args.steps if round_number >= 0 else max(2, args.warm)
            if dismix and round_number == 0:
                used[name] = mixer.made
                if isinstance(mixer, CountingDisMix):
                    mixer.decoded = 0
            seconds = trainer.seconds(mixer, steps, with_rows=with_rows)
            if round_number >= 0:
                times[name].append(seconds)
    rows = {}
    for name, seen in times.items():
        ratios = [a / b for a, b in zip(seen, times["vanilla"], strict=True)]
        rows[name] = {"ms": 1e3 * statistics.median(seen), "ratio": statistics.median(ratios)}
        rows[name]["images_per_s"] = args.batch / statistics.median(seen)
        mixer = mixers[name]
        if isinstance(mixer, DisMix):
            rows[name]["used"] = mixer.made - used[name]
            if isinstance(mixer, CountingDisMix):
                rows[name]["decoded"] = mixer.decoded
            mixer.close()
    return rows


def main() -> None:
    """Print a table for each grader, then one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="trained generator with its latent store")
    parser.add_argument("--arch", default="light", help="of the untrained one")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graders", nargs="+", default=["ce"])
    parser.add_argument("--backbone", default="vgg16")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--p", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=64, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--pool", type=int, default=0, help="mixes of a block; 0 fits a round")
    parser.add_argument("--reuse", type=int, default=4)
    parser.add_argument("--compiled", action="store_true", help="also the compiled decoder")
    parser.add_argument("--search", action="store_true", help="let cuDNN try its algorithms")
    parser.add_argument("--mixers", nargs="*", help=f"others beside it; default {OTHERS}")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = args.search
    record: dict[str, Any] = {"settings": {k: str(v) for k, v in vars(args).items()}}
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or untrained_run(Path(folder), args.arch, args.size, args.device)
        engine = MixEngine.load(run, device=args.device)
        for method in args.graders:
            rows = measure(method, args, engine)
            record[method] = rows
            print(f"\n{method}, {args.backbone}, batch {args.batch}, {args.size} px, p {args.p}")
            for name, row in rows.items():
                extra = (
                    f"  {row['decoded']} decoded, {row['used']} used" if "decoded" in row else ""
                )
                print(
                    f"{name:<34}{row['ms']:9.1f} ms {row['images_per_s']:9.1f} images/s"
                    f" {row['ratio']:7.3f} x{extra}"
                )
    print(json.dumps({**record, "threads": torch.get_num_threads(), **provenance()}))


if __name__ == "__main__":
    main()
