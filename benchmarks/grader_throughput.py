"""Does the training loop keep up with a bare forward, backward and step of the same network?

Images are on the device for both. The bare loop repeats one batch: no order, augmentation,
averaging, schedule or log. The rate of the loop is that of its own log, epochs after the first.
Of a method with several stages both take one: the last, or that of --stage.

    DISMIX_WEIGHTS=weights python benchmarks/grader_throughput.py --backbone vgg16 --method ce
    python benchmarks/grader_throughput.py --backbone tf_efficientnet_lite0 --processes 1 2 4

With --output the record is also written to a file, as a whole or not at all.

With --processes the loop runs in several processes at once, as `--seeds` does, and the sum of
their rates is compared with one alone.
"""

import argparse
import json
import multiprocessing
import queue
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from dismix import atomic
from dismix.accelerators import make_accelerator
from dismix.generator.images import SplitImages
from dismix.graders.base import Grader
from dismix.graders.plan import begin_stage, set_stage_mode
from dismix.graders.registry import create_grader
from dismix.graders.settings import TrainSettings, choose_settings
from dismix.graders.training import Training, run_training
from dismix.labels import OrdinalTarget
from dismix.provenance import provenance


def made_up(count: int, size: int, device: torch.device) -> SplitImages:
    """Return random images of five grades on the device."""
    pixels = torch.randint(256, (count, 3, size, size), dtype=torch.uint8).to(device)
    target = OrdinalTarget.from_labels([i % 5 for i in range(count)], 5)
    return SplitImages(pixels, target.to(device), False)


def build(args: argparse.Namespace, device: torch.device) -> tuple[Grader, TrainSettings]:
    """Return a grader and its settings; weights do not matter for speed."""
    settings = choose_settings(
        args.method,
        changes={"backbone": args.backbone, "weights": "none", "epochs": args.epochs,
                 "size": args.size, "batch_size": args.batch, "validate_every": 10**6},
    )  # fmt: skip
    grader = create_grader(
        args.method, backbone=args.backbone, weights=None, num_ranks=5, **settings.hparams
    )
    if args.stage is not None:
        names = [stage.name for stage in grader.stages]
        if args.stage not in names:
            raise SystemExit(f"no stage '{args.stage}', there are: {', '.join(names)}")
        grader.stages = grader.stages[: names.index(args.stage) + 1]
    # One stage, so that the bare loop and the log speak of the same work.
    grader.stages = grader.stages[-1:]
    return grader.to(device), settings


def bare_rate(args: argparse.Namespace, device: torch.device) -> float:
    """Images a second of forward, backward and step on one batch."""
    grader, settings = build(args, device)
    stage = grader.stages[-1]
    optimizer = begin_stage(grader, stage, settings)
    split = made_up(args.batch, args.size, device)
    images = split.images(torch.arange(args.batch), device)
    if stage.views > 1:
        images = images.unsqueeze(1).repeat(1, stage.views, 1, 1, 1)
    if device.type == "cuda":
        grader.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if stage.views == 1:
            images = images.contiguous(memory_format=torch.channels_last)
    set_stage_mode(grader, stage)
    grader.start_epoch(0)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = grader.training_loss(images, split.target, stage)["loss"]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(5):
        step()
    rates = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(args.steps):
            step()
        wait()
        rates.append(args.batch * args.steps / (time.perf_counter() - start))
    return max(rates)


def loop_rate(args: argparse.Namespace, device: torch.device) -> float:
    """Images a second of the training loop: the median of the epochs after the first."""
    grader, settings = build(args, device)
    split = made_up(args.batch * args.steps, args.size, device)
    with tempfile.TemporaryDirectory() as folder:
        run_training(
            Training(grader, settings), split, made_up(args.batch, args.size, device),
            Path(folder), make_accelerator(cpu=device.type == "cpu"),
        )  # fmt: skip
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return statistics.median(json.loads(line)["images_per_second"] for line in lines[1:])


def _in_process(args: argparse.Namespace, device: str, start: Any, rates: Any) -> None:
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = args.search
    build(args, torch.device(device))
    start.wait()
    rates.put(loop_rate(args, torch.device(device)))


def together(args: argparse.Namespace, device: torch.device, processes: int) -> float:
    """Sum of the rates of several processes that train at once."""
    context = multiprocessing.get_context("spawn")
    start, rates = context.Barrier(processes), context.Queue()
    children = [
        context.Process(target=_in_process, args=(args, str(device), start, rates))
        for _ in range(processes)
    ]
    for child in children:
        child.start()
    found: list[float] = []
    while len(found) < processes:
        try:
            found.append(rates.get(timeout=1.0))
        except queue.Empty:
            # Without its rate the others would be waited for until the command is killed.
            if any(child.exitcode not in (None, 0) for child in children):
                for child in children:
                    child.terminate()
                raise SystemExit(f"one of {processes} processes failed, see above") from None
    for child in children:
        child.join()
    return sum(found)


def main() -> None:
    """Print one JSON line, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="ce")
    parser.add_argument("--backbone", default="vgg16")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40, help="steps an epoch")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--search", action="store_true", help="cuDNN tries its kernels, for both")
    parser.add_argument("--processes", type=int, nargs="*", default=[])
    parser.add_argument("--stage", help="of a method with several, the last if absent")
    parser.add_argument("--output", type=Path, help="also write the record here")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = args.search
    bare, loop = bare_rate(args, device), loop_rate(args, device)
    record: dict[str, Any] = {
        "method": args.method, "backbone": args.backbone, "batch": args.batch, "size": args.size,
        "search": args.search, "bare_images_per_second": round(bare, 1),
        "loop_images_per_second": round(loop, 1), "share": round(loop / bare, 3),
    }  # fmt: skip
    if args.processes:
        record["at_once"] = {n: round(together(args, device, n), 1) for n in args.processes}
    record |= {"stage": args.stage or "last", "provenance": provenance()}
    if args.output:
        atomic.write_json(args.output, record)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
