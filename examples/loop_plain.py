"""DisMix in a plain training loop: two lines.

    python examples/loop_plain.py RUN

RUN is a trained generator whose training split was encoded (`dismix mix encode RUN`).
"""

import sys
from itertools import islice

import torch
import torch.nn.functional as F

from dismix import DisMix, read_manifest
from dismix.data.batches import Batches
from dismix.generator.images import load_split
from dismix.mixing.encoding import run_manifest


def main(run: str, steps: int = 20) -> list[float]:
    """Train a small grader for a few steps and return its losses."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    mix = DisMix.load(run, p=0.5)  # line 1
    size = mix.engine.model.image_size
    train = load_split(read_manifest(run_manifest(run)), "train", size, device=device)
    batches = Batches(train.source, train.target, 16, equalize=train.equalize, device=device)
    model = torch.nn.Sequential(
        torch.nn.LazyConv2d(16, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(), torch.nn.LazyLinear(train.target.num_ranks),
    ).to(device)  # fmt: skip
    model(next(iter(batches)).images)  # lazy layers learn their shape
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses: list[float] = []
    for epoch in range(-(-steps // len(batches))):
        batches.set_epoch(epoch)
        for batch in islice(batches, steps - len(losses)):
            assert batch.target is not None
            # line 2; `rows` tells which stored images these are, and may be left out
            images, targets = mix(batch.images, batch.target.probs, rows=batch.index)
            loss = F.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1])[-1])  # noqa: T201
