"""A judge: a plain grader that took no part in training the generator.

The generator's own discriminator is content with a tint; whether a decoded picture really
shows the asked rank is for somebody else to say. VGG16 features (ImageNet), mean pooling and
one linear layer, trained with soft cross-entropy on the clean training images.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.data.batches import Batches
from dismix.generator.images import SplitImages
from dismix.generator.perceptual import WEIGHTS, vgg16_features
from dismix.generator.weights import load_weights, require_weights


class Judge(nn.Module):
    """VGG16 features, mean pooling, dropout, one linear layer.

    Args:
        num_ranks: C.
        weights: File with ``features.N.*``; None searches the weight folders.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, num_ranks: int, weights: str | Path | None = None) -> None:
        super().__init__()
        self.features = vgg16_features()
        state = load_weights(weights or require_weights(WEIGHTS))
        prefix = "features."
        self.features.load_state_dict(
            {k.removeprefix(prefix): v.float() for k, v in state.items() if k.startswith(prefix)}
        )
        self.head = nn.Linear(512, num_ranks)
        self.dropout = nn.Dropout(0.5)
        statistics = {"mean": (0.485, 0.456, 0.406), "deviation": (0.229, 0.224, 0.225)}
        for name, values in statistics.items():
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) of images (B, 1 or 3, H, W) in [-1, 1]."""
        pixels = (images.expand(-1, 3, -1, -1) + 1) / 2
        features = self.features((pixels - self.mean) / self.deviation)
        logits: Tensor = self.head(self.dropout(features.float().mean(dim=(2, 3))))
        return logits

    @torch.no_grad()
    def expected_rank(self, images: Tensor) -> Tensor:
        """Return the expected rank (B,) of images (B, channels, H, W) in [-1, 1]."""
        probs = torch.cat([self(part).float().softmax(1) for part in torch.split(images, 64)])
        return (probs * torch.arange(probs.shape[1], device=probs.device)).sum(1)


def train_judge(
    train: SplitImages,
    device: torch.device,
    *,
    epochs: int,
    lr: float = 1e-4,
    batch_size: int = 64,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Judge:
    """Train a judge on clean training images; the last epoch's weights are kept.

    Args:
        train: Training split.
        device: Where to train.
        epochs: Passes.
        lr: Adam's first learning rate, cosine down to zero.
        batch_size: Images a step.
        seed: Seed of head, order and augmentation.
        weights: See `Judge`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        judge = Judge(train.target.num_ranks, weights).to(device)
    batches = Batches(
        train.source, train.target, batch_size, seed=seed, equalize=train.equalize, device=device
    )
    optimizer = torch.optim.Adam(judge.parameters(), lr)
    total = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for batch in batches:
            assert batch.target is not None
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = judge(batch.images)
            loss = F.cross_entropy(logits.float(), batch.target.probs)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return judge.eval()
