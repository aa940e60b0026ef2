"""DisMix in a Lightning module: mix in `on_after_batch_transfer`, where the images are.

    python examples/loop_lightning.py RUN

The mixer is a sub-module, so its random state is part of every checkpoint, and `trainer.validate`
switches it off as `.eval()` does.
"""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from dismix import DisMix, read_manifest
from dismix._compat import import_torchvision
from dismix.generator.images import load_split
from dismix.mixing.encoding import run_manifest

import_torchvision()
try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L


class Grader(L.LightningModule):
    """A linear grader that trains on mixes."""

    def __init__(self, run: str, features: int, num_ranks: int) -> None:
        super().__init__()
        self.mix = DisMix.load(run, p=0.5)
        self.head = torch.nn.Linear(features, num_ranks)
        self.losses: list[float] = []

    def on_after_batch_transfer(self, batch, dataloader_idx):
        """Mix training batches; evaluation batches only get soft targets."""
        return self.mix(*batch)

    def training_step(self, batch, batch_idx):
        """Return the loss of soft targets."""
        images, targets = batch
        loss = F.cross_entropy(self.head(images.flatten(1)), targets)
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        """Return a plain optimizer; the generator is not among its parameters."""
        return torch.optim.SGD(self.parameters(), 1e-3)


def main(run: str) -> list[float]:
    """Train for one epoch and return the losses."""
    mixer = DisMix.load(run)
    size = mixer.engine.model.image_size
    train = load_split(read_manifest(run_manifest(run)), "train", size, device=torch.device("cpu"))
    images = train.images(torch.arange(len(train)), "cpu")
    loader = DataLoader(TensorDataset(images, train.target.probs), 8, shuffle=True)
    grader = Grader(run, images[0].numel(), train.target.num_ranks)
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(grader, loader)
    return grader.losses


if __name__ == "__main__":
    print(main(sys.argv[1])[-1])  # noqa: T201
