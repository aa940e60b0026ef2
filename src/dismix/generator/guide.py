"""A guide: a grader of the training split that tells a decoding whether it shows the asked rank.

The discriminator's own rank head learns beside the generator and is content with a tint. A
guide is trained before, never sees a made picture, and reads details alone (the local mean
colour is taken away), turned, shifted, zoomed and noisy at random, so that neither a tint nor
a pixel pattern earns anything. It takes part in training, so it is no judge of the result;
`dismix.generator.judge` is another network.

The same network that sees the whole picture is the *reader* from which the ordinal trunk
starts: what an image without a label shows may well be told by its colour.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.data.batches import Batches
from dismix.generator.images import SplitImages
from dismix.generator.losses import sor
from dismix.generator.seeding import seeded
from dismix.generator.trunk import LITE0, ConvTrunk, blurred, details, start_lite0, without_colour
from dismix.layout import lay_out
from dismix.progress import Progress, steps_of
from dismix.transfer import onto

GuideKind = Literal["conv", "lite0"]
# Layers of the small trunk up to its maps of 16 x 16 for pictures of 64 pixels.
FINE = 11


def match_colour(images: Tensor, like: Tensor) -> Tensor:
    """Give each image the channel means and spreads of its partner.

    Args:
        images: (B, channels, H, W).
        like: (B, channels, H, W).

    Example:
        >>> x = torch.rand(2, 3, 8, 8)
        >>> bool((match_colour(0.5 * x + 0.2, x) - x).abs().max() < 1e-2)
        True
    """
    like = like.float()
    mean = like.mean(dim=(2, 3), keepdim=True)
    spread = (like - mean).square().mean(dim=(2, 3), keepdim=True).add(1e-4).sqrt()
    return without_colour(images) * spread + mean


@dataclass(frozen=True)
class ViewDraws:
    """Random views of B images.

    Attributes:
        matrix: (B, 2, 3) sampling matrices: turn, zoom, shift.
        noise: (B,) deviation of the noise.
        seed: Seed of the noise itself.
        field: (B, channels, H, W) that noise, standard normal, once it is drawn.
    """

    matrix: Tensor
    noise: Tensor
    seed: int
    field: Tensor | None = None

    def first(self, count: int) -> "ViewDraws":
        """Return the views of the first ``count`` images."""
        return self._part(slice(count))

    def last(self, count: int) -> "ViewDraws":
        """Return the views of the last ``count`` images."""
        return self._part(slice(-count, None))

    def to(self, device: torch.device) -> "ViewDraws":
        """Move to a device."""
        field = None if self.field is None else onto(self.field, device)
        return ViewDraws(onto(self.matrix, device), onto(self.noise, device), self.seed, field)

    def filled(self, shape: torch.Size, device: torch.device) -> "ViewDraws":
        """Draw the noise for images of a shape (B, channels, H, W), on their device."""
        return replace(self, field=_noise(self.seed, shape, device))

    def _part(self, rows: slice) -> "ViewDraws":
        field = None if self.field is None else self.field[rows]
        return ViewDraws(self.matrix[rows], self.noise[rows], self.seed, field)


def draw_views(batch: int, generator: torch.Generator, noise_to: float = 0.2) -> ViewDraws:
    """Draw turns up to 25 degrees, zooms of 0.85 to 1.15, shifts of 8 % and noise."""
    turn, zoom, dx, dy, noise = torch.rand(5, batch, generator=generator)
    angle, scale = (2 * turn - 1) * math.radians(25), 0.85 + 0.3 * zoom
    cos, sin = scale * angle.cos(), scale * angle.sin()
    dx, dy = (0.16 * (2 * shift - 1) for shift in (dx, dy))
    matrix = torch.stack([torch.stack([cos, -sin, dx], 1), torch.stack([sin, cos, dy], 1)], 1)
    seed = int(torch.randint(2**31, (), generator=generator))
    return ViewDraws(matrix, noise_to * noise, seed)


def view(images: Tensor, draws: ViewDraws) -> Tensor:
    """Return random views of images (B, channels, H, W)."""
    images = images.float()
    where = F.affine_grid(draws.matrix.to(images), list(images.shape), align_corners=False)
    seen = F.grid_sample(images, where, padding_mode="reflection", align_corners=False)
    field = _noise(draws.seed, seen.shape, seen.device) if draws.field is None else draws.field
    return seen + draws.noise.to(seen)[:, None, None, None] * field


def _noise(seed: int, shape: torch.Size, device: torch.device) -> Tensor:
    rng = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=rng, device=device)


class Guide(nn.Module):
    """A grader of the details of pictures.

    Args:
        num_ranks: C.
        kind: "lite0" is EfficientNet-Lite0, "conv" a few convolutions
            for small pictures on a CPU (which sees all but the mean colour).
        channels: Channels of the images; only "conv" needs them.
        whole: Let "lite0" see the whole picture.
        blur: Deviation, in pixels, of the blur through which it sees pictures. Decoded ones are
            smooth where photographs have texture, and a guide that reads texture is pleased with
            streaks; what it does not see it does not ask for.

    Example:
        >>> Guide(5, "conv", channels=1)(torch.rand(2, 1, 64, 64)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        num_ranks: int,
        kind: GuideKind = "lite0",
        channels: int = 3,
        *,
        whole: bool = False,
        blur: float = 0.0,
    ) -> None:
        super().__init__()
        self.whole, self.blur = whole, blur
        self.trunk = ConvTrunk(channels) if kind == "conv" else None
        self.backbone: nn.Module | None = None
        self.dropout = nn.Dropout(0.0 if kind == "conv" else 0.3)
        if self.trunk is not None:
            self.head = nn.Linear(self.trunk.out_channels, num_ranks - 1)
            return
        from dismix._compat import import_torchvision

        import_torchvision()
        import timm

        backbone = timm.create_model(LITE0, num_classes=0)
        self.backbone = backbone
        self.head = nn.Linear(backbone.num_features, num_ranks - 1)

    def maps(self, images: Tensor) -> list[Tensor]:
        """Return what it sees at two depths: maps (B, F, h, w) of images (B, 1 or 3, H, W).

        Example:
            >>> guide = Guide(5, "conv", channels=1)
            >>> [tuple(m.shape) for m in guide.maps(torch.rand(1, 1, 64, 64))]
            [(1, 32, 16, 16), (1, 32, 8, 8)]
        """
        images = blurred(images, self.blur)
        if self.trunk is not None:
            fine = self.trunk.layers[:FINE](without_colour(images))
            return [fine, self.trunk.layers[FINE:](fine)]
        seen = (images if self.whole else 0.5 * details(images)).expand(-1, 3, -1, -1)
        maps: list[Tensor] = self.backbone.forward_intermediates(  # type: ignore[operator,union-attr]
            seen, indices=[2, 3], intermediates_only=True
        )
        return maps

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, C-1) of images (B, 1 or 3, H, W)."""
        images = blurred(images, self.blur)
        if self.trunk is not None:
            pooled = self.trunk(images, None).float().mean(dim=(2, 3))
            small: Tensor = self.head(pooled)
            return small
        assert self.backbone is not None
        seen = (images if self.whole else 0.5 * details(images)).expand(-1, 3, -1, -1)
        logits: Tensor = self.head(self.dropout(self.backbone(seen)).float())
        return logits


def train_guide(
    train: SplitImages,
    device: torch.device,
    *,
    steps: int,
    kind: GuideKind = "lite0",
    whole: bool = False,
    blur: float = 0.0,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Guide:
    """Train a guide on the training split and freeze it.

    Args:
        train: Training split.
        device: Where to train.
        steps: About how many, in whole passes.
        kind: See `Guide`.
        whole: See `Guide`.
        blur: See `Guide`.
        lr: Adam's largest learning rate; None is 3e-4 for a pretrained guide, else 8e-3.
        batch_size: Images a step; None is 32 for a pretrained guide, else 48.
        seed: Seed of head, order and views.
        progress: Called after each step.
    """
    channels = train.images(torch.zeros(1, dtype=torch.long), "cpu").shape[1]
    with seeded(seed):
        guide = Guide(train.target.num_ranks, kind, channels, whole=whole, blur=blur).to(device)
    if guide.backbone is not None:
        start_lite0(guide.backbone)
    lay_out(guide, device)
    lr = lr or (3e-4 if kind == "lite0" else 8e-3)
    batch_size = batch_size or (32 if kind == "lite0" else 48)
    batches = Batches(
        train.source, train.target, batch_size, seed=seed, equalize=train.equalize, device=device,
        # Turning is the views' part.
        flips=(0.5, 0.0), max_degrees=1e-3,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(guide.parameters(), lr, weight_decay=0.02)
    epochs = max(1, round(steps / len(batches)))
    total = epochs * len(batches)
    # Not "training", by which a study tells the steps of generators and graders.
    told = steps_of(progress, f"teaching the {'reader' if whole else 'guide'}", total)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=total)
    rng = torch.Generator().manual_seed(seed)
    # A guide must not earn from pixel patterns; a reader only ever sees images as they are,
    # and noise would hide small lesions from it.
    noise_to = 0.0 if whole else 0.2
    # Dropout draws from torch's own state.
    with seeded(seed, device):
        for epoch in range(epochs):
            batches.set_epoch(epoch)
            guide.train()
            for batch in batches:
                assert batch.target is not None
                seen = view(batch.images, draw_views(len(batch), rng, noise_to).to(device))
                with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                    logits = guide(seen)
                loss = sor(logits, batch.target.levels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                told()
    return guide.eval().requires_grad_(False)
