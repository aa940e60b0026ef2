"""Does training need more memory, or more time an image, when there are ten times the images?

    python benchmarks/generator_memory.py [--images 800] [--arch tiny] [--factor 10]

Each size is trained for one epoch in a process of its own, on phantom fundi, with every term of
the recipe; memory is sampled while the loop runs. Mapped pages of the image store count as
resident until they are given back (at most 64 MiB at a time) but belong to the system's file
cache, so anonymous memory is shown as well. On a GPU its peak is shown too. Time an image is the
loop's, by the wall clock and, since other work may share the machine, by the processor's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from dismix.provenance import provenance


class Sampler(threading.Thread):
    """Samples this process's memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = {"VmRSS": 0, "RssAnon": 0}
        self.done = threading.Event()

    def run(self) -> None:
        """Sample until told to stop."""
        while not self.done.wait(0.02):
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(":")
                if name in self.peak:
                    self.peak[name] = max(self.peak[name], int(value.split()[0]))


def train(data: Path, run: Path, arch: str, size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one epoch and return memory in MiB and milliseconds an image."""
    import torch

    from dismix.generator.recipe_choice import choose_recipe
    from dismix.generator.run_log import read_metrics
    from dismix.generator.start_run import train_generator

    sampler, seen = Sampler(), []

    def note(text: str, done: int, total: int) -> None:
        if text.startswith("training"):
            seen.append((done, time.process_time()))

    sampler.start()
    train_generator(
        data, run, arch=arch, size=size, cache=run.parent / "cache",
        settings={"epochs": 1, "guide_steps": 1, "strip_every": 0, **settings}, progress=note,
    )  # fmt: skip
    sampler.done.set()
    sampler.join()
    (first, start), (last, stop) = seen[0], seen[-1]
    images = (last - first) * choose_recipe("default", arch, settings).batch_size
    found = {
        "peak_rss_mib": round(sampler.peak["VmRSS"] / 1024),
        "peak_anonymous_mib": round(sampler.peak["RssAnon"] / 1024),
        "ms_an_image": round(1000 / read_metrics(run)[0]["images_per_second"], 1),
        "processor_ms_an_image": round(1000 * (stop - start) / images, 1),
    }
    if torch.cuda.is_available():
        found["peak_gpu_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return found


def measured(folder: Path, images: int, options: argparse.Namespace) -> dict[str, Any]:
    """Draw the pictures, then train in a fresh process."""
    from dismix.data.phantom import PhantomSpec, build_phantom

    data = folder / f"data{images}"
    spec = PhantomSpec(subject="fundus", train=images, val=64, test=0, size=options.size)
    build_phantom(spec, data)
    command = [sys.executable, __file__, "--child", str(data), "--arch", options.arch]
    command += ["--size", str(options.size), *(f"--set={text}" for text in options.set)]
    start = time.perf_counter()
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(result.stdout.splitlines()[-1])
    store = images * 3 * options.size**2 / 2**20
    return {
        "images": images, "store_mib": round(store), **found,
        "seconds_in_all": round(time.perf_counter() - start),
    }  # fmt: skip


def main() -> None:
    """Print a table and one JSON record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--images", type=int, default=800)
    parser.add_argument("--factor", type=int, default=10)
    parser.add_argument("--arch", default="tiny")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        settings = dict(text.split("=", 1) for text in options.set)
        run = options.child.with_name(f"{options.child.name}_run")
        print(json.dumps(train(options.child, run, options.arch, options.size, settings)))
        return
    with tempfile.TemporaryDirectory() as folder:
        counts = (options.images, options.factor * options.images)
        rows = [measured(Path(folder), count, options) for count in counts]
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")
    print(json.dumps({"arch": options.arch, "rows": rows, **provenance()}))


if __name__ == "__main__":
    main()
