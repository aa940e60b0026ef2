"""A judge: a plain grader that took no part in training the generator.

The generator's own discriminator is content with a tint; whether a decoded picture really
shows the asked rank is for somebody else to say. Two kinds:

- ``vgg16``: VGG16 features (ImageNet), mean pooling and one linear layer.
- ``conv``: four convolutions from nothing, for small pictures on a CPU.

Both learn by soft cross-entropy on the clean training images. Two judges trained alike still
read a little differently, so a judge can be saved and read several runs.
"""

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dismix import atomic
from dismix.data.batches import Batches
from dismix.errors import DisMixError
from dismix.generator.images import SplitImages
from dismix.generator.perceptual import WEIGHTS, vgg16_features
from dismix.generator.saving import DIGEST_KEY, digest, fill, load_tensors
from dismix.generator.seeding import seeded
from dismix.generator.weights import load_weights, require_weights
from dismix.labels import OrdinalTarget
from dismix.progress import Progress

JudgeKind = Literal["conv", "vgg16"]
#: Its file beside the runs that it reads.
JUDGE_FILE = "judge.safetensors"
#: Side up to which a judge without pretraining is strong enough, and VGG16 sees too little.
SMALL = 96
#: Images a judge sees in training, by default: 12 to 100 passes.
_SEEN: dict[JudgeKind, int] = {"conv": 30_000, "vgg16": 40_000}
_LR: dict[JudgeKind, float] = {"conv": 8e-3, "vgg16": 1e-4}
_WIDTHS = (12, 24, 48, 48)


class Judge(nn.Module):
    """Features, mean pooling, dropout, one linear layer.

    Args:
        num_ranks: C.
        kind: See the module.
        pretrained: Start "vgg16" from ImageNet; False leaves it random, to be filled.
        weights: File with ``features.N.*``; None searches the weight folders.

    Attributes:
        notes: How it was trained; travels with the saved file.

    Example:
        >>> Judge(5, "conv").eval().expected_rank(torch.zeros(2, 1, 64, 64)).shape
        torch.Size([2])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        num_ranks: int,
        kind: JudgeKind = "vgg16",
        *,
        pretrained: bool = True,
        weights: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.kind, self.num_ranks = kind, num_ranks
        self.notes: dict[str, Any] = {}
        if kind == "conv":
            self.features, width = _small_features(), _WIDTHS[-1]
        else:
            self.features, width = vgg16_features(), 512
            if pretrained:
                self._start_from_imagenet(weights)
        self.head = nn.Linear(width, num_ranks)
        self.dropout = nn.Dropout(0.0 if kind == "conv" else 0.5)
        statistics = {"mean": (0.485, 0.456, 0.406), "deviation": (0.229, 0.224, 0.225)}
        for name, values in statistics.items():
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def _start_from_imagenet(self, weights: str | Path | None) -> None:
        state, prefix = load_weights(weights or require_weights(WEIGHTS)), "features."
        self.features.load_state_dict(
            {k.removeprefix(prefix): v.float() for k, v in state.items() if k.startswith(prefix)}
        )

    def pooled(self, images: Tensor) -> Tensor:
        """Return mean features (B, F) of images (B, 1 or 3, H, W) in [-1, 1]."""
        pixels = (images.expand(-1, 3, -1, -1) + 1) / 2
        features: Tensor = self.features((pixels - self.mean) / self.deviation)
        return features.float().mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C) of images (B, 1 or 3, H, W) in [-1, 1]."""
        logits: Tensor = self.head(self.dropout(self.pooled(images)))
        return logits

    def require_ranks(self, num_ranks: int, file: str | Path | None = None) -> None:
        """Raise unless it reads as many ranks as the data have."""
        if self.num_ranks != num_ranks:
            raise DisMixError(
                f"the judge reads {self.num_ranks} ranks, the data have {num_ranks}",
                file=file,
                cure="give the judge of these data, or none to train one",
            )

    def warn_of_others(self, target: OrdinalTarget, file: str | Path | None = None) -> None:
        """Warn where it knows that it learned other images or labels.

        Args:
            target: Of the training images at hand.
            file: Where it was read from.
        """
        if self.notes.get("labels") not in (None, _labels(target)):
            where = "" if file is None else f"{file}: "
            warnings.warn(
                f"{where}this judge was trained on other images or labels than the training split"
                " here; it may have seen those that are held out, or never any like them",
                stacklevel=4,
            )

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> Tensor:
        """Return the chances (B, C) of the ranks of images (B, channels, H, W) in [-1, 1]."""
        return torch.cat([self(part).float().softmax(1) for part in torch.split(images, 64)])

    def expected_rank(self, images: Tensor) -> Tensor:
        """Return the expected rank (B,) of images (B, channels, H, W) in [-1, 1]."""
        probs = self.probabilities(images)
        return (probs * torch.arange(probs.shape[1], device=probs.device)).sum(1)

    def rank_logits(self, images: Tensor) -> Tensor:
        """Return logits (B, C-1) of the levels, as `mixing_accuracy` asks a reader for.

        Example:
            >>> judge, images = Judge(3, "conv").eval(), torch.zeros(1, 1, 64, 64)
            >>> read = judge.rank_logits(images).sigmoid().sum(1)
            >>> torch.allclose(read, judge.expected_rank(images), atol=1e-4)
            True
        """
        above = self.probabilities(images).flip(1).cumsum(1).flip(1)[:, 1:]
        return torch.logit(above, eps=1e-6)

    def save(self, path: str | Path) -> None:
        """Write the judge as safetensors, atomically, with what is needed to build it again."""
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.state_dict().items()}
        notes = {**self.notes, "kind": self.kind, "num_ranks": self.num_ranks}
        metadata = {DIGEST_KEY: digest(tensors), "judge": json.dumps(notes)}
        with atomic.replacing(path) as temporary:
            save_file(tensors, temporary, metadata=metadata)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> "Judge":
        """Read a judge that `save` wrote, in evaluation mode."""
        tensors = load_tensors(path)
        with safe_open(str(path), framework="pt") as file:
            written = (file.metadata() or {}).get("judge")
        if written is None:
            raise DisMixError("is not a judge", file=path, cure="give a file that --judge wrote")
        notes: dict[str, Any] = json.loads(written)
        judge = cls(notes.pop("num_ranks"), notes.pop("kind"), pretrained=False)
        fill(judge, tensors, path, cure="give a file that --judge wrote")
        judge.notes = notes
        return judge.to(device).eval()


def _small_features() -> nn.Sequential:
    layers: list[nn.Module] = []
    before = 3
    for index, width in enumerate(_WIDTHS):
        # Batch normalisation also takes out each picture set's brightness and contrast.
        layers += [nn.Conv2d(before, width, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if index < len(_WIDTHS) - 1 else []
        before = width
    return nn.Sequential(*layers)


def default_epochs(kind: JudgeKind, images: int) -> int:
    """Return passes over so many images: small sets need more.

    Example:
        >>> default_epochs("vgg16", 351), default_epochs("conv", 1000), default_epochs("conv", 9000)
        (100, 30, 12)
    """
    return min(100, max(12, round(_SEEN[kind] / images)))


def train_judge(
    train: SplitImages,
    device: torch.device,
    *,
    epochs: int | None = None,
    kind: JudgeKind = "vgg16",
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    weights: str | Path | None = None,
    progress: Progress | None = None,
) -> Judge:
    """Train a judge on clean training images; the last epoch's weights are kept.

    Args:
        train: Training split.
        device: Where to train.
        epochs: Passes; None is `default_epochs`.
        kind: See the module.
        lr: Adam's largest learning rate; None is 1e-4 for a pretrained judge, else 8e-3.
        batch_size: Images a step; None is 64 for a pretrained judge, else 50.
        seed: Seed of head, order and augmentation.
        weights: See `Judge`.
        progress: Called after each step.
    """
    epochs, lr = epochs or default_epochs(kind, len(train)), lr or _LR[kind]
    small = kind == "conv"
    with seeded(seed, device):
        judge = Judge(train.target.num_ranks, kind, weights=weights).to(device)
    judge.notes = {
        "epochs": epochs,
        "seed": seed,
        "images": len(train),
        "labels": _labels(train.target),
    }
    batches = Batches(
        train.source, train.target, batch_size or (50 if small else 64), seed=seed,
        equalize=train.equalize, device=device,
        # So small a network spends its strength on turned pictures.
        flips=(0.5, 0.0) if small else (0.5, 0.5), max_degrees=1e-3 if small else 20.0,
    )  # fmt: skip
    # Dropout draws from torch's own state.
    with seeded(seed + 1, device):
        _learn(judge, batches, epochs, lr, progress)
    return judge.eval()


def ready_judge(
    file: str | Path | None,
    train: SplitImages,
    size: int,
    *,
    kind: JudgeKind | None = None,
    epochs: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Judge:
    """Read a judge from its file when that is there; else train one, and keep it there.

    Args:
        file: Where it is or will be; None keeps no file.
        train: Training split; the judge computes where its targets are.
        size: Pixels a side.
        kind: See the module; by default by the size.
        epochs: Passes of its training; None is `default_epochs`.
        seed: Of its training.
        progress: Called while it trains.
    """
    device = train.target.probs.device
    if file is not None and Path(file).is_file():
        known = Judge.load(file, device)
        known.require_ranks(train.target.num_ranks, file)
        known.warn_of_others(train.target, file)
        return known
    # The guide has the training's seed; a judge must not be its twin.
    judge = train_judge(
        train, device, epochs=epochs, kind=kind or ("conv" if size <= SMALL else "vgg16"),
        seed=seed + 1000, progress=progress,
    )  # fmt: skip
    if file is not None:
        judge.save(file)
    return judge


def _labels(target: OrdinalTarget) -> str:
    """Return a short digest of the training labels, by which a judge knows its data again."""
    return digest({"probs": target.probs.cpu()})[:16]


def _learn(
    judge: Judge, batches: Batches, epochs: int, lr: float, progress: Progress | None
) -> None:
    total, small = epochs * len(batches), judge.kind == "conv"
    optimizer = torch.optim.AdamW(judge.parameters(), lr, weight_decay=1e-2 if small else 0.0)
    schedule: torch.optim.lr_scheduler.LRScheduler
    if small:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=total)
    else:
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    on = judge.mean.device
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for step, batch in enumerate(batches, start=1):
            assert batch.target is not None
            with torch.autocast(on.type, torch.bfloat16, enabled=on.type == "cuda"):
                logits = judge(batch.images)
            loss = F.cross_entropy(logits.float(), batch.target.probs)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if progress is not None:
                # Not "training", by which a study tells the steps of generators and graders.
                progress("teaching the judge", epoch * len(batches) + step, total)
