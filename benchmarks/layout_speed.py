"""What channels-last convolutions gain on one CPU core (`dismix.layout`).

    OMP_NUM_THREADS=1 python benchmarks/layout_speed.py [--rounds 3] [--output FILE]

Both layouts take turns, round by round, and the fastest round of each counts; seconds are those of
the process, so other work on the machine disturbs less.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from dismix import atomic
from dismix.generator.architectures import ARCHITECTURES, build_autoencoder
from dismix.graders.backbones import create_backbone
from dismix.provenance import provenance

BATCH = 16


def rate(step: Callable[[], object], steps: int) -> float:
    """Return images a second of process time."""
    step()
    start = time.process_time()
    for _ in range(steps):
        step()
    return BATCH * steps / (time.process_time() - start)


def rates(network: nn.Module, size: int, channels: int, rounds: int, *, learn: bool) -> list[float]:
    """Return images a second in the usual layout and with channels last."""
    images = torch.randn(BATCH, channels, size, size)
    best = [0.0, 0.0]

    def step() -> None:
        if learn:
            network(images).square().mean().backward()
            return
        with torch.inference_mode():
            network(images)

    for _ in range(rounds):
        for place, layout in enumerate((torch.contiguous_format, torch.channels_last)):
            network.to(memory_format=layout)  # type: ignore[call-overload]
            best[place] = max(best[place], rate(step, 4 if size < 100 else 2))
    return best


def main() -> None:
    """Print a row for each network, size and use."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    autoencoder = build_autoencoder(ARCHITECTURES["tiny"])
    both = nn.Sequential(autoencoder.encoder, autoencoder.decoder)
    cases: list[tuple[str, nn.Module, int, int]] = [("tiny autoencoder", both, 64, 1)]
    cases += [
        (name, create_backbone(name, weights=None), size, 3)
        for name, size in (("tiny", 64), ("tf_efficientnet_lite0", 128), ("vgg16", 64))
    ]
    rows = []
    print("| network | px | use | usual | channels last | factor |\n|---|---|---|---|---|---|")
    for name, network, size, channels in cases:
        for use, learn in (("training", True), ("forward only", False)):
            network.train(learn)
            usual, last = rates(network, size, channels, options.rounds, learn=learn)
            print(f"| {name} | {size} | {use} | {usual:.0f} | {last:.0f} | {last / usual:.2f} |")
            rows.append({"network": name, "px": size, "use": use, "usual": usual, "last": last})
    about = provenance()
    print(about)
    if options.output:
        atomic.write_json(options.output, {"rows": rows, "provenance": about})


if __name__ == "__main__":
    main()
