"""A run folder with an untrained generator and a small phantom set: mixing needs no more."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from dismix import atomic
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator

#: Every form in which codes are stored.
FORMS: dict[str, dict[str, Any]] = {
    "indices": {},
    "rank_only": {"rank_only": True, "null_label": "predicted", "ordinal_grid": 2},
    "soft": {"attention": "soft", "ordinal_dim": 3},
    "soft_rank_only": {"attention": "soft", "rank_only": True, "null_label": "predicted"},
    "single": {"codebooks": "single"},
    "shared": {"projections": "shared"},
    "unconditioned": {"conditioned": False},
    "odd_start": {
        "rank_only": True,
        "null_label": "predicted",
        "ordinal_grid": 1,
        "nonordinal_codes": 300,
    },
    "many_codes": {"nonordinal_codes": 70000, "ordinal_codes": 300},
}


def toy_generator(seed: int = 0, **changes: Any) -> Generator:
    """Return a generator whose codes differ from image to image."""
    settings = {
        "num_ranks": 5, "nonordinal_codes": 64, "ordinal_codes": 16, "in_channels": 1, **changes,
    }  # fmt: skip
    config = GeneratorConfig(arch="tiny", image_size=32, **settings)
    model = Generator.seeded(config, seed).eval()
    _spread(model)
    return model


@torch.no_grad()
def _spread(model: Generator) -> None:
    """Let codes and pictures of an untrained generator differ from image to image."""
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(16, model.in_channels, 6, 6, generator=rng) * 2 - 1
    images = F.interpolate(images, (model.image_size, model.image_size), mode="bilinear")
    latents = model.latents(images)
    for conv, z in (
        (model.quant_conv, latents.nonordinal),
        (model.quant_conv_ordinal, latents.ordinal),
    ):
        if conv is not None:
            spread, mean = z.std(dim=(0, 2, 3)), z.mean(dim=(0, 2, 3))
            conv.weight.div_(spread.view(-1, 1, 1, 1))
            conv.bias.copy_((conv.bias - mean) / spread)
    size = model.quantize.embedding.weight.shape
    model.quantize.embedding.weight.copy_(torch.randn(size, generator=rng))
    model.post_quant_conv.weight.mul_(3)
    pictures = model.decode(model.encode(images))
    *_, last = (m for m in model.decoder.modules() if isinstance(m, torch.nn.Conv2d))
    last.weight.mul_(0.4 / pictures.std())
    # What follows the last convolution is affine: one step finds the offset.
    codes, start = model.encode(images), last.bias.clone()
    before = model.decode(codes).mean()
    last.bias.add_(1)
    after = model.decode(codes).mean()
    last.bias.copy_(start - before / (after - before))


def make_run(folder: Path, model: Generator | None = None, *, train: int = 30) -> Path:
    """Write ``folder/data`` and ``folder/run``; return the latter."""
    build_phantom(PhantomSpec(train=train, val=10, test=5, size=32), folder / "data")
    (model or toy_generator()).save(folder / "run")
    atomic.write_json(folder / "run" / "run.json", {"manifest": str(folder / "data")})
    return folder / "run"
