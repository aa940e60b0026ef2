r"""What a judge taught on other patients reads off pictures decoded at every rank.

    python benchmarks/koa_few.py KOA/manifest.csv -o few.csv --rest rest.csv
    python benchmarks/few_judge.py rest.csv few.csv RUN ... --judge JUDGE.safetensors -o F.json

The judge is EfficientNet-Lite0 from ImageNet, whole pictures without noise, 1250 steps of 16 images
at the pictures' size. Its own worth is measured on the held-out knees of few.csv; the validation
knees of few.csv, which no generator learned from, are decoded at every rank by each generator.
With ``--blur 1.5`` it sees all pictures, real ones too, behind a blur: what it then still reads is
no texture.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dismix import atomic
from dismix.data.manifest import read_manifest
from dismix.generator.codes import Codes
from dismix.generator.guide import Guide, train_guide
from dismix.generator.images import SplitImages, load_split
from dismix.generator.model import Generator
from dismix.generator.read_order import read_order
from dismix.labels import OrdinalTarget
from dismix.progress import bar
from dismix.provenance import provenance

CPU = torch.device("cpu")


def ready_judge(path: Path, rest: Path, size: int, *, steps: int, seed: int) -> Guide:
    """Return the judge in a file, taught and written there first where it is not."""
    data = read_manifest(rest)
    if not path.is_file():
        with bar() as progress:
            train = load_split(data, "train", size, device=CPU, progress=progress)
            made = train_guide(
                train, CPU, steps=steps, whole=True, lr=1e-3, batch_size=16, seed=seed,
                progress=progress,
            )  # fmt: skip
        state = {name: tensor.contiguous() for name, tensor in made.state_dict().items()}
        with atomic.replacing(path) as temporary:
            save_file(state, temporary)
    judge = Guide(data.num_ranks, "lite0", whole=True)
    judge.load_state_dict(load_file(path))
    return judge.eval().requires_grad_(False)


def rank_read(judge: Guide, images: Tensor) -> Tensor:
    """Return the expected ranks (B,) of images (B, channels, H, W)."""
    parts = [judge(part).sigmoid().sum(1) for part in torch.split(images, 64)]
    return torch.cat(parts)


@torch.no_grad()
def worth(judge: Guide, split: SplitImages) -> dict[str, Any]:
    """Return how well a judge reads real images."""
    images, hard = split.images(torch.arange(len(split)), CPU), split.target.hard
    read = rank_read(judge, images)
    return {
        "images": len(split),
        "accuracy": round(float(((read + 0.5).floor() == hard).float().mean()), 4),
        "rank_correlation": round(read_order(judge, images, split.target), 4),
        "by_majority": [
            round(float(read[hard == rank].mean()), 3) for rank in range(split.target.num_ranks)
        ],
    }


@torch.no_grad()
def followed(judge: Guide, model: Generator, split: SplitImages) -> dict[str, Any]:
    """Return what a judge reads when the images of a split are decoded at every rank."""
    images, ranks = split.images(torch.arange(len(split)), CPU), split.target.num_ranks
    latents, read = model.latents(images), []
    for rank in range(ranks):
        asked = OrdinalTarget.from_labels(torch.full((len(images),), rank), ranks)
        ordinal, nonordinal = model.quantized(latents, asked.levels)
        pictures = model.decode(Codes(ordinal.codes, nonordinal.codes))
        read.append(rank_read(judge, pictures.float().clamp(-1, 1)))
    readings = torch.stack(read, 1)
    steps = torch.arange(ranks, dtype=torch.float32) - (ranks - 1) / 2
    slopes = (readings * steps).sum(1) / steps.square().sum()
    return {
        "read_at_ranks": [round(float(mean), 3) for mean in readings.mean(0)],
        "slope": round(float(slopes.mean()), 4),
        "monotone": round(float((readings.diff(dim=1) > 0).all(1).float().mean()), 4),
    }


def main() -> None:
    """Teach or read a judge, and print and write what it reads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rest", type=Path)
    parser.add_argument("few", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--judge", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1250)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--blur", type=float, default=0.0, help="deviation in pixels")
    args = parser.parse_args()
    torch.set_num_threads(1)
    models = {run: Generator.load(run).eval() for run in args.runs}
    (size,) = {model.image_size for model in models.values()}
    judge = ready_judge(args.judge, args.rest, size, steps=args.steps, seed=args.seed)
    judge.blur = args.blur
    few = read_manifest(args.few)
    splits = {name: load_split(few, name, size, device=CPU) for name in ("val", "test")}
    guides: dict[str, Any] = {}
    for run, model in models.items():
        recipe = json.loads((run / "run.json").read_text(encoding="utf-8"))["recipe"]
        guide = Guide(
            few.num_ranks, recipe["guide_kind"], model.in_channels,
            blur=recipe.get("guide_blur", 0.0),
        )  # fmt: skip
        guide.load_state_dict(load_file(run / "guide.safetensors"))
        guides[run.name] = {
            "kind": recipe["guide_kind"], "guide": worth(guide.eval(), splits["test"]),
            **followed(judge, model, splits["val"]),
        }  # fmt: skip
    record = {
        "judge": worth(judge, splits["test"]), "real_val": worth(judge, splits["val"]),
        "runs": guides, "provenance": provenance("cpu"),
    }  # fmt: skip
    atomic.write_json(args.output, record)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
