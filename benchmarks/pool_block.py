"""Where the time of a block of DisMix's pool goes.

    python benchmarks/pool_block.py --device cuda                  # light, 256 px, blocks of 256
    python benchmarks/pool_block.py --arch tiny --size 64 --block 16

Times blocks of decoded mixes (untrained generator, which costs the same), prints the operations
that take most of one, and how many pictures the decoder alone gives in a second.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from mixing_overhead import untrained_run
from torch.profiler import ProfilerActivity, profile

from dismix.generator.codes import Codes
from dismix.mixing.dismix import DisMix
from dismix.mixing.engine import MixEngine


def timed(device: str, action: Callable[[], object]) -> float:
    """Return the seconds that a call takes, with all that it started on a GPU."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


def main() -> None:
    """Print blocks, operations and the decoder's rate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arch", default="light")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--block", type=int, default=256)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = untrained_run(Path(folder), args.arch, args.size, args.device)
        engine = MixEngine.load(run, device=args.device)
        mix = DisMix(engine=engine, p=0.5, pool=args.block)
        for block in range(4):
            took = timed(args.device, lambda block=block: mix.pool_block(1, block))
            print(f"block of {args.block}: {1e3 * took:.1f} ms", flush=True)
        used = [ProfilerActivity.CPU]
        order = "self_cpu_time_total"
        if args.device == "cuda":
            used, order = [*used, ProfilerActivity.CUDA], "self_cuda_time_total"
        with profile(activities=used) as found:
            mix.pool_block(1, 9)
        print(found.key_averages().table(sort_by=order, row_limit=12, max_name_column_width=60))
        model, count = engine.model, min(64, args.block)
        side, ordinal = model.latent_size, model.config.ordinal_width
        shapes = ((count, ordinal, side, side), (count, model.config.code_dim, side, side))
        codes = Codes(*(torch.randn(*shape, device=args.device) for shape in shapes))
        engine.decode(codes)
        took = timed(args.device, lambda: [engine.decode(codes) for _ in range(10)])
        print(f"decoder alone: {10 * count / took:.0f} images/s")


if __name__ == "__main__":
    main()
