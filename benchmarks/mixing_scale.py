"""Latent store of a large set: size, rate of encoding, memory while encoding and while mixing.

    python benchmarks/mixing_scale.py --images 100000 --folder DIR [--run RUN] [--device cuda]

Draws phantom knees of 64 px (kept in --folder and used again), encodes them with the generator of
--run, or an untrained one of --arch, and then mixes batches of 64 through the store, with partners
from the whole split. Peak memory of each part is that of a process of its own; --images 10000
beside --images 100000 shows whether it grows.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import torch

from dismix import atomic
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.progress import bar
from dismix.provenance import provenance


def prepare(args: argparse.Namespace) -> Path:
    """Draw the pictures and make the run folder."""
    data, run = args.folder / f"knees{args.images}", args.folder / f"run{args.images}"
    with bar() as progress:
        spec = PhantomSpec(train=args.images, val=0, test=0, size=64, annotators=1)
        build_phantom(spec, data, progress=progress)
    if args.run:
        Generator.load(args.run).save(run)
    else:
        structure: dict[str, Any] = {"nonordinal_codes": 1024} if args.arch == "tiny" else {}
        if args.rank_only:
            structure |= {"rank_only": True, "null_label": "predicted"}
        config = GeneratorConfig(
            num_ranks=5, arch=args.arch, image_size=64, in_channels=1, **structure
        )
        Generator.seeded(config, 0).save(run)
    atomic.write_json(run / "run.json", {"manifest": str(data)})
    return run


def peak() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def encode(run: Path, args: argparse.Namespace, answer: Any) -> None:
    """Encode, in a process of its own."""
    torch.set_num_threads(args.threads)
    cache = args.folder / "cache"
    start = peak()
    marks: dict[str, float] = {}

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "encoding":
            marks.setdefault("start", time.perf_counter())
            marks["stop"], marks["done"] = time.perf_counter(), done

    begun = time.perf_counter()
    store = encode_split(
        run, device=args.device, batch_size=args.batch, cache=cache, progress=progress
    )
    rate = (marks["done"] - args.batch) / (marks["stop"] - marks["start"]) if marks else 0.0
    found = {
        "images": len(store), "bytes_an_image": store.record_bytes,
        "store_mib": round(store.nbytes / 2**20, 1), "encode_images_per_s": round(rate, 1),
        "total_seconds": round(time.perf_counter() - begun, 1),
        "peak_mib_before_and_after": [round(start), round(peak())],
    }  # fmt: skip
    answer.put(found)


def mix(run: Path, args: argparse.Namespace, answer: Any) -> None:
    """Mix, in a process of its own; memory is read several times."""
    torch.set_num_threads(args.threads)
    mixer = DisMix.load(run, p=0.5)
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(args.batch, 1, 64, 64, generator=rng) * 2 - 1
    count, peaks = len(mixer.engine.store), []
    begun = time.perf_counter()
    for step in range(args.steps):
        rows = torch.randint(count, (args.batch,), generator=rng)
        mixer(images, mixer.engine.store.target[rows], rows=rows)
        if step in {args.steps // 10, args.steps // 2, args.steps - 1}:
            peaks.append(round(peak()))
    seconds = time.perf_counter() - begun
    answer.put(
        {"steps": args.steps, "mixes_per_s": round(mixer.made / seconds, 1), "peak_mib": peaks}
    )


def apart(work: Any, run: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run a part in a process of its own and return what it found."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=work, args=(run, args, answer))
    process.start()
    found: dict[str, Any] = answer.get()
    process.join()
    return found


def main() -> None:
    """Run all parts and print one JSON record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, required=True, help="large files go here")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--arch", default="tiny")
    parser.add_argument("--rank-only", action="store_true", help="of the untrained generator")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    run = prepare(args)
    record = {"encode": apart(encode, run, args), "mix": apart(mix, run, args)}
    print(json.dumps({**record, **provenance()}, indent=1))


if __name__ == "__main__":
    main()
