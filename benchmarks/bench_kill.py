"""Kill a study again and again, finish it, and compare its records with an undisturbed one.

    python benchmarks/bench_kill.py                     # 40 runs, five kills
    python benchmarks/bench_kill.py --kills 10 --seed 3 --folder runs/kill

Phantom knees of 32 px, the tiny backbone, no mixing, Mixup, CutMix and DisMix with a generator of
its own, in one process on the CPU. The study is started, gets SIGKILL at a random moment after at
least one new run has started (or while its generator trains), is started again, and so on; the
last start runs to the end. Records must be equal in ids, metrics, predictions and all but times,
memory and provenance, and no finished run may have been run again.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dismix.bench.folder import BenchFolder
from dismix.bench.plan import read_plan
from dismix.provenance import provenance

#: Fields that differ from time to time and from machine to machine.
VOLATILE = ("wall_s", "generator_s", "peak_memory_mib", "provenance")


def write_plan(path: Path, seeds: int, epochs: int) -> None:
    """Write a plan of 8 x seeds runs."""
    content = read_plan("smoke").to_dict()
    content["title"] = "Killed again and again"
    content["factors"] = {
        "grader": ["ce", "cloc"], "mixer": ["none", "mixup", "cutmix", "dismix"],
        "seed": [*range(seeds)],
    }  # fmt: skip
    content["settings"] |= {"epochs": epochs}
    path.write_text(json.dumps(content))


def start(plan: Path, output: Path, cache: Path) -> "subprocess.Popen[bytes]":
    """Start the study in a process of its own."""
    command = [sys.executable, "-m", "dismix", "bench", "run", str(plan), "-o", str(output)]
    environment = {**os.environ, "DISMIX_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "-q", "--cpu"], env=environment, stdout=subprocess.DEVNULL)


def kill_once(
    plan: Path, output: Path, cache: Path, rng: random.Random, most: float
) -> dict[str, Any]:
    """Start the study and kill it at a random moment; say how far it had come."""
    bench = BenchFolder(output)
    before = len(bench.log())
    process = start(plan, output, cache)
    while len(bench.log()) == before and process.poll() is None:
        time.sleep(0.02)
    time.sleep(rng.uniform(0.0, most))
    ended = process.poll()
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = bench.log()
    return {
        "done": sum(line["event"] == "done" for line in lines), "last": lines[-1]["event"],
        "too_late": ended is not None,
    }  # fmt: skip


def lasting(output: Path) -> dict[str, Any]:
    """Return all records by id, without what differs from time to time."""
    return {
        record["id"]: {k: v for k, v in record.items() if k not in VOLATILE}
        for record in BenchFolder(output).records()
    }


def main() -> int:
    """Print the outcome as JSON; the exit code is 0 when the records agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5, help="eight runs each")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, help="kept when given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        plan, cache = folder / "kill.json", folder / "cache"
        write_plan(plan, args.seeds, args.epochs)
        begun = time.perf_counter()
        if start(plan, folder / "undisturbed", cache).wait():
            print("the undisturbed study failed")
            return 1
        taken = time.perf_counter() - begun
        rng, kills = random.Random(args.seed), []
        for _ in range(args.kills):
            most = taken / (args.kills + 1)
            kills.append(kill_once(plan, folder / "killed", cache, rng, most))
        code = start(plan, folder / "killed", cache).wait()
        first, second = lasting(folder / "undisturbed"), lasting(folder / "killed")
        lines = BenchFolder(folder / "killed").log()
        done = Counter(line["id"] for line in lines if line["event"] == "done")
        starts = sum(line["event"] == "started" for line in lines)
        outcome = {
            "runs": len(first), "kills": kills, "undisturbed_s": round(taken, 1),
            "exit_code": code, "same_ids": {*first} == {*second},
            "different": sorted(k for k in first if first[k] != second.get(k)),
            "finished_twice": sorted(name for name, count in done.items() if count > 1),
            "started_again": starts - len(first), **provenance(),
        }  # fmt: skip
    print(json.dumps(outcome, indent=2))
    late = any(kill["too_late"] for kill in kills)
    return int(code != 0 or first != second or bool(outcome["finished_twice"]) or late or not first)


if __name__ == "__main__":
    sys.exit(main())
