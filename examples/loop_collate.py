"""DisMix as a collate function: batches come out of the loader already mixed.

    python examples/loop_collate.py RUN

Use it with worker processes on a CPU; on a GPU mix in the loop instead, where the images are.
"""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from dismix import DisMix, read_manifest
from dismix.generator.images import load_split
from dismix.mixing.adapters import as_collate
from dismix.mixing.encoding import run_manifest


def main(run: str, workers: int = 0) -> list[float]:
    """Train a linear grader for one epoch and return its losses."""
    mix = DisMix.load(run, p=0.5)
    size = mix.engine.model.image_size
    train = load_split(read_manifest(run_manifest(run)), "train", size, device=torch.device("cpu"))
    images = train.images(torch.arange(len(train)), "cpu")
    data = TensorDataset(images, train.target.probs)
    loader = DataLoader(data, 16, shuffle=True, collate_fn=as_collate(mix), num_workers=workers)
    model = torch.nn.Linear(images[0].numel(), train.target.num_ranks)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    losses = []
    for pictures, targets in loader:
        loss = F.cross_entropy(model(pictures.flatten(1)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1], workers=2)[-1])  # noqa: T201
