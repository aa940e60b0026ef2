"""All grading methods on IDRiD: several seeds, every rule of choosing a checkpoint, one table.

Each (method, seed) is a process of its own and leaves one JSON file; finished ones are skipped
and interrupted ones go on from their checkpoint, so the same command may be given again until
nothing is left. With --minutes it stops by itself, what is running included.

    DISMIX_WEIGHTS=weights python benchmarks/grader_idrid.py --data data/idrid --seeds 10 \
        --results results/graders/idrid --work runs/idrid --minutes 9
    python benchmarks/grader_idrid.py --results results/graders/idrid --table

IDRiD's published split, five simulated annotators (60/20), 15 % of train for validation, the
same for all seeds; test images are graded once, after training, by each rule's model.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ALL = ("ce", "or-cnn", "coral", "corn", "sord", "poe", "gol", "mwr", "rnc", "ord2seq", "cloc")
RULES = ("accuracy", "smoothed", "loss", "last")
SHOWN = ("accuracy", "mae", "mae_expected", "qwk", "balanced_accuracy", "rps", "ece")


def prepare(data: Path, work: Path, split_seed: int) -> Path:
    """Write the manifest with simulated votes and a validation part, once."""
    from dismix.data.annotators.simulate import simulate_annotators
    from dismix.data.manifest import write_manifest
    from dismix.data.sources import read_source
    from dismix.data.splits import split_validation

    path = work / f"manifest-{split_seed}.csv"
    if not path.is_file():
        voted, _ = simulate_annotators(read_source(data), "30", seed=split_seed)
        write_manifest(split_validation(voted, 0.15, seed=split_seed), path)
    return path


def train_one(args: argparse.Namespace, method: str, seed: int) -> None:
    """Train one seed of one method to the end and write its result."""
    from dismix import atomic
    from dismix.data.manifest import read_manifest
    from dismix.generator.images import load_split
    from dismix.graders.evaluation import evaluate
    from dismix.graders.saving import load_grader
    from dismix.graders.settings import choose_settings
    from dismix.graders.start_run import train_grader
    from dismix.graders.state import model_file
    from dismix.provenance import provenance

    changes: dict[str, Any] = {
        "backbone": args.backbone, "epochs": args.epochs, "size": args.size, "select": RULES,
        **dict(text.split("=", 1) for text in args.set),
    }  # fmt: skip
    settings = choose_settings(method, changes=changes)
    manifest = prepare(args.data, args.work, args.split_seed)
    run, start = args.work / f"{method}-{args.mix or 'none'}-{seed}", time.perf_counter()
    train_grader(
        manifest, run, settings, seed=seed, resume=True, cache=args.work / "cache", mix=args.mix,
        generator=args.generator,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    device = load_grader(run, args.device).device
    test = load_split(
        read_manifest(manifest), "test", settings.size, device=device, cache=args.work / "cache"
    )
    chosen = json.loads((run / "result.json").read_text())["rules"]
    rules = {}
    for number, rule in enumerate(settings.select):
        metrics = evaluate(load_grader(run / model_file(rule, number), device), test)
        rules[rule] = {
            "epoch": chosen[rule]["epoch"], "validation": chosen[rule]["validation"],
            "test": metrics,
        }  # fmt: skip
    lines = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    rates = sorted(line["images_per_second"] for line in lines)
    record = {
        "method": method, "seed": seed, "settings": settings.to_dict(), "rules": rules,
        "mix": args.mix, "split_seed": args.split_seed, "seconds": seconds,
        "images_per_second": rates[len(rates) // 2], "provenance": provenance(),
    }  # fmt: skip
    atomic.write_json(result_path(args, method, seed), record)
    for path in [run / "last.safetensors", *run.glob("model*.safetensors")]:
        if not args.keep:
            path.unlink(missing_ok=True)


def result_path(args: argparse.Namespace, method: str, seed: int) -> Path:
    """Return where a result goes."""
    return Path(args.results[0]) / f"{method}-{seed}.json"


def is_done(args: argparse.Namespace, method: str, seed: int) -> bool:
    """Tell whether a result is there; one of other settings is refused, not taken for it."""
    path = result_path(args, method, seed)
    if not path.is_file():
        return False
    record = json.loads(path.read_text())
    asked = {"backbone": args.backbone, "epochs": args.epochs, "size": args.size}
    found = {name: record["settings"][name] for name in asked}
    asked |= {"mix": args.mix, "split_seed": args.split_seed}
    found |= {name: record[name] for name in ("mix", "split_seed")}
    changed = [name for name, value in asked.items() if found[name] != value]
    if changed and not args.set:
        name = changed[0]
        raise SystemExit(
            f"{path} has {name} {found[name]}, not {asked[name]}; choose another --results"
        )
    return True


def run_all(args: argparse.Namespace) -> int:
    """Run what is missing, some at once, until done or out of time; return what is left."""
    jobs = [(m, s) for s in range(args.first_seed, args.first_seed + args.seeds)
            for m in args.methods]  # fmt: skip
    todo = [job for job in jobs if not is_done(args, *job)]
    prepare(args.data, args.work, args.split_seed)
    deadline = time.monotonic() + 60 * args.minutes
    running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    failed: list[tuple[str, int]] = []
    cores = str(max(1, (os.cpu_count() or 1) // args.at_once))
    while (todo or running) and time.monotonic() < deadline:
        while todo and len(running) < args.at_once:
            method, seed = todo.pop(0)
            command = [sys.executable, __file__, *sys.argv[1:], "--one", method, str(seed)]
            running[method, seed] = subprocess.Popen(
                command, env={"OMP_NUM_THREADS": cores, **os.environ}
            )
        time.sleep(0.5)
        for job, process in list(running.items()):
            if process.poll() is not None:
                del running[job]
                done = result_path(args, *job).is_file()
                failed += [] if done else [job]
                print(*job, "done" if done else f"failed ({process.returncode})", flush=True)
    for job, process in running.items():
        process.kill()
        process.wait()
        print(*job, "stopped, goes on next time", flush=True)
    return len(todo) + len(running) + len(failed)


def pooled(groups: list[list[float]]) -> float:
    """Return the standard deviation within groups, all groups together."""
    within = [statistics.variance(group) * (len(group) - 1) for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in groups)
    return math.sqrt(sum(within) / freedom) if freedom else math.nan


def table(args: argparse.Namespace) -> str:
    """Return Markdown: means and 95 % intervals by method and rule, and the rules' spreads."""
    from dismix.graders.seeds import summarise

    files = sorted(file for folder in args.results for file in Path(folder).glob("*-*.json"))
    records = [json.loads(file.read_text()) for file in files]
    methods = [m for m in ALL if any(r["method"] == m for r in records)]
    lines = ["| method | rule | seeds | accuracy % (95 %) | " + " | ".join(SHOWN[1:]) + " |"]
    lines.append("|" + "---|" * (len(SHOWN) + 3))
    spreads: dict[str, list[list[float]]] = {rule: [] for rule in RULES}
    for method in methods:
        for rule in RULES:
            mine = [r["rules"][rule]["test"] for r in records if r["method"] == method]
            found = summarise(mine)
            spreads[rule].append([100 * metrics["accuracy"] for metrics in mine])
            a = found["accuracy"]
            text = f"{100 * a['mean']:.1f} ({100 * a['low']:.1f} to {100 * a['high']:.1f})"
            cells = [f"{found[n]['mean']:.3f} ± {found[n]['sd']:.3f}" for n in SHOWN[1:]]
            if len(mine) == 1:  # One seed says nothing about a spread.
                text = f"{100 * a['mean']:.1f}"
                cells = [f"{found[n]['mean']:.3f}" for n in SHOWN[1:]]
            lines.append(
                f"| {method} | {rule} | {len(mine)} | {text} | " + " | ".join(cells) + " |"
            )
    lines += ["", "| rule | sd of accuracy over seeds, pooled over methods (points) |", "|---|---|"]
    lines += [f"| {rule} | {pooled(found):.2f} |" for rule, found in spreads.items() if found]
    return "\n".join(lines)


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data/idrid"), help="published folder")
    parser.add_argument(
        "--results", type=Path, nargs="+", default=[Path("results/graders/idrid")],
        help="folder of results; several make one table",
    )  # fmt: skip
    parser.add_argument("--work", type=Path, default=Path("runs/idrid"), help="checkpoints")
    parser.add_argument("--methods", nargs="+", default=[*ALL], choices=ALL)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--split-seed", type=int, default=0, help="of annotators and split")
    parser.add_argument("--backbone", default="vgg16")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--mix")
    parser.add_argument("--generator", type=Path)
    parser.add_argument("--set", action="append", default=[], help="any setting, name=value")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--device", default="cuda" if _has_gpu() else "cpu")
    parser.add_argument("--keep", action="store_true", help="keep models and checkpoints")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "SEED"))
    args = parser.parse_args()
    if args.table:
        print(table(args))
    elif args.one:
        train_one(args, args.one[0], int(args.one[1]))
    else:
        left = run_all(args)
        print(f"{left} left" if left else "all done")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
