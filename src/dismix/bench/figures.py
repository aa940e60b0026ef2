"""Figures that need images: drawn once where the images are, kept beside the records.

Each is a small JSON file in ``figures/`` of a benchmark folder, with PNG files where there are
pictures. The report shows what it finds there and never needs the images again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dismix import atomic
from dismix.errors import DisMixError
from dismix.graders.metrics import on_own_scale

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from torch import Tensor

    from dismix.generator.images import SplitImages
    from dismix.graders.backbones import Backbone
    from dismix.mixing.engine import MixEngine
    from dismix.progress import Progress

    Group = tuple[Tensor, Tensor]

FIGURES = "figures"
FORMAT = 1
ORIGINAL = "original"
#: Those of the paper's first figure that can be made here, and the stand-in for DiffuseMix.
MIXERS = ("mixup", "comixup", "filtermix", "dismix")
_SAMPLES = 6
_BATCH = 32


def make_feature_map(
    folder: str | Path,
    groups: "Mapping[str, Group]",
    num_ranks: int,
    *,
    backbone: "str | Backbone" = "vgg16",
    weights: str | Path = "auto",
    device: "torch.device | str" = "cpu",
    seed: int = 0,
    name: str = "feature_map",
    data: str = "",
    ranks: Sequence[str] = (),
) -> Path:
    """Write the paper's first figure: images of all mixers in one map of their features.

    Args:
        folder: The benchmark's folder.
        groups: "original" and mixers -> images (n, channels, H, W) in [-1, 1] and their
            ranks (n,), fractions for mixes.
        num_ranks: C.
        backbone: Whose features; the paper takes a ResNet-50, we the VGG16 at hand.
        weights: File or "auto", see `dismix.graders.backbones.create_backbone`; there is no
            map of random features.
        device: Where to compute.
        seed: Of the t-SNE.
        name: Of the files.
        data: What the images are, for the title.
        ranks: C names of the ranks, where they have any.

    Returns:
        The JSON file.
    """
    from dismix.show.plots import embed

    # paper: an ImageNet ResNet-50, whose weights are not at hand; VGG16 serves the same purpose.
    network = _trained(backbone, weights)
    features = {key: _features(network, images, device) for key, (images, _) in groups.items()}
    points = embed(np.concatenate([*features.values()]).astype(np.float64), seed)
    panels, start = [], 0
    for key, (images, places) in groups.items():
        part = points[start : start + len(images)]
        start += len(images)
        panels.append(
            {"name": key, "points": np.round(part, 2).tolist(),
             "rank": [round(float(rank), 3) for rank in places]}
        )  # fmt: skip
    sheet = _samples(groups, ranks)
    content: dict[str, Any] = {
        "kind": "feature_map", "title": "Features of mixes" + (f": {data}" if data else ""),
        "caption": f"Original and mixed training images in one t-SNE of {network.name} features."
        " Grey: the original images. Mixes that keep the order of ranks lie among originals of"
        " their own colour.",
        "backbone": network.name, "ranks": num_ranks, "panels": panels,
    }  # fmt: skip
    if ranks:
        content["names"] = [ranks[0], ranks[-1]]
    return _write(folder, name, content, sheet)


def _trained(backbone: "str | Backbone", weights: str | Path) -> "Backbone":
    from dismix.graders.backbones import TINY, create_backbone

    if not isinstance(backbone, str):
        return backbone
    if backbone == TINY or str(weights).lower() == "none":
        raise DisMixError(
            "a map of features needs a trained backbone", column="weights",
            cure="give a weight file, or 'auto' to search the weight folders",
        )  # fmt: skip
    return create_backbone(backbone, weights=weights)


def _features(network: "Backbone", images: "Tensor", device: "torch.device | str") -> Any:
    import torch

    network = network.to(device).eval()
    with torch.no_grad():
        parts = [
            network(images[start : start + _BATCH].to(device)).float().cpu()
            for start in range(0, len(images), _BATCH)
        ]
    return torch.cat(parts).numpy()


def _samples(groups: "Mapping[str, Group]", names: Sequence[str]) -> "Image.Image":
    """Draw some images of every group, low ranks to high."""
    import torch

    from dismix.generator.strips import pixels
    from dismix.show.headed_grid import headed_grid

    rows, captions = [], []
    for key, (images, ranks) in groups.items():
        order = torch.argsort(torch.as_tensor(ranks), stable=True)
        picked = order[torch.linspace(0, len(order) - 1, _SAMPLES).long()]
        rows.append(pixels(images[picked]))
        low, high = (on_own_scale(float(end), names) for end in (min(ranks), max(ranks)))
        captions.append((key, f"ranks {low:.1f} to {high:.1f}"))
    return headed_grid(rows, captions, ["low rank", *[""] * (_SAMPLES - 2), "high rank"])


def _write(
    folder: str | Path, name: str, content: Mapping[str, Any], picture: "Image.Image | None"
) -> Path:
    home = Path(folder) / FIGURES
    files = []
    if picture is not None:
        files.append(f"{name}.png")
        with atomic.replacing(home / files[0]) as temporary:
            picture.save(temporary, "PNG", optimize=True)
    atomic.write_json(home / f"{name}.json", {"format": FORMAT, **content, "files": files})
    return home / f"{name}.json"


def keep_picture(
    folder: str | Path, name: str, picture: "Image.Image", title: str, caption: str
) -> Path:
    """Keep any picture for the report: the codes' t-SNE, a grid of samples."""
    return _write(folder, name, {"kind": "picture", "title": title, "caption": caption}, picture)


def draw_run_figures(
    folder: str | Path,
    run: str | Path,
    *,
    manifest: str | Path | None = None,
    mixers: Sequence[str] = MIXERS,
    per_rank: int = 40,
    backbone: "str | Backbone" = "vgg16",
    weights: str | Path = "auto",
    device: str = "cpu",
    cache: Path | None = None,
    seed: int = 0,
    data: str = "",
    progress: "Progress | None" = None,
) -> list[Path]:
    """Draw all figures of one generator: the feature map, the codes, and a grid of samples.

    Args:
        folder: The benchmark's folder.
        run: Run folder of the generator.
        manifest: Data; what the run was trained on by default.
        mixers: To be mapped beside the original images.
        per_rank: Training images of each rank, at most.
        backbone: See `make_feature_map`.
        weights: See `make_feature_map`.
        device: Where to compute.
        cache: Folder of the image stores.
        seed: Decides which images, and what is mixed.
        data: Name of the data set, for titles and file names.
        progress: Called while images are read and encoded.
    """
    import torch

    from dismix.data.manifest import read_manifest
    from dismix.generator.images import load_split
    from dismix.mixing.encoding import encode_split, run_manifest
    from dismix.mixing.engine import MixEngine
    from dismix.mixing.showing import draw_figure

    # Before any work: weights that are missing should be told at once.
    network = _trained(backbone, weights)
    table = read_manifest(manifest or run_manifest(run))
    store = encode_split(run, manifest, device=device, cache=cache, progress=progress)
    engine = MixEngine.load(run, store.folder, device=device)
    train = load_split(
        table, "train", engine.model.image_size, device=torch.device("cpu"), cache=cache
    )
    train = replace(train, target=train.target.to("cpu"))
    groups = mixed_groups(engine, train, mixers, per_rank=per_rank, seed=seed)
    # Data sets may have any name, files may not.
    plain = "".join(c if c.isalnum() else "-" for c in data.lower())
    tail = f"_{plain}" if data else ""
    made = [
        make_feature_map(
            folder, groups, engine.num_ranks, backbone=network, device=device, seed=seed,
            name=f"feature_map{tail}", data=data, ranks=table.meta.ranks,
        ),
        draw_codes(folder, engine, train, table.meta.ranks, name=f"codes{tail}", data=data),
    ]  # fmt: skip
    rank = min(1, engine.num_ranks - 2)
    grid = draw_figure(
        run, "mixers", rank=rank, manifest=manifest, seed=seed, device=device, cache=cache
    )
    title = "Samples of every mixer" + (f": {data}" if data else "")
    low, high = table.meta.ranks[rank : rank + 2]
    caption = f"The same pairs of ranks {low} and {high} under every mixer, lam 0.5."
    return [*made, keep_picture(folder, f"samples{tail}", grid, title, caption)]


def draw_study_figures(folder: str | Path, **options: Any) -> list[Path]:
    """Draw the figures of every data set of a benchmark, with the generators kept in it.

    Args:
        folder: The benchmark's folder, with ``generators`` and the data still in place.
        **options: See `draw_run_figures`.
    """
    from dismix.bench.report_study import read_study

    study = read_study(Path(folder))
    made = []
    for data in study.data():
        ours = [r for k, rs in study.groups.items() for r in rs if k.condition == study.base]
        ours = [r for r in ours if (r.data, r.mixer) == (data, "dismix")]
        names = {str((r.content["config"].get("generator") or {}).get("id")) for r in ours}
        runs = [
            run for name in sorted(names) if (run := Path(folder) / "generators" / name).is_dir()
        ]
        if runs:
            made += draw_run_figures(folder, runs[0], data=study.data_name(data), **options)
    if not made:
        raise DisMixError(
            "no generator of a DisMix run is here", file=Path(folder) / "generators",
            cure="draw the figures where the runs were made",
        )  # fmt: skip
    return made


def mixed_groups(
    engine: "MixEngine", train: "SplitImages", mixers: Sequence[str], *, per_rank: int, seed: int
) -> "dict[str, Group]":
    """Return original images, and each mixer's mixes of them, with their ranks."""
    import torch

    from dismix.labels import OrdinalTarget
    from dismix.mixing.pairwise import local_contrast
    from dismix.mixing.registry import create_mixer

    rng = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(train), generator=rng)
    ranks = train.target.hard
    rows = torch.cat([order[ranks[order] == r][:per_rank] for r in range(engine.num_ranks)])
    rows = rows[torch.randperm(len(rows), generator=rng)]
    images, target = train.images(rows, "cpu"), train.target[rows]
    groups: dict[str, Group] = {ORIGINAL: (images, target.rank)}
    for name in mixers:
        options: dict[str, Any] = {"p": 1.0, "seed": seed}
        extra = {"engine": engine, "turn": False} if name == "dismix" else {
            "saliency_fn": local_contrast
        }  # fmt: skip
        mix = create_mixer(name, engine.num_ranks, **options, **extra)
        # Small batches: Co-Mixup's labelling grows with the square of the batch.
        parts = [slice(start, start + _BATCH) for start in range(0, len(rows), _BATCH)]
        # A generator goes where the images are: these must not take it from a GPU.
        seen = images.to(engine.device) if name == "dismix" else images
        made = [mix(seen[part], target[part]) for part in parts]
        laws = [OrdinalTarget.coerce(law, engine.num_ranks).rank.cpu() for _, law in made]
        groups[name] = (torch.cat([batch.cpu() for batch, _ in made]), torch.cat(laws))
    return groups


def draw_codes(
    folder: str | Path,
    engine: "MixEngine",
    split: "SplitImages",
    names: Sequence[str],
    *,
    name: str = "codes",
    data: str = "",
) -> Path:
    """Draw the t-SNE of both codes of a generator, coloured by rank."""
    from dismix.generator.probes import encode_split, some_rows
    from dismix.generator.report import MOST_POINTS
    from dismix.show.plots import embed, rank_scatter

    rows = some_rows(len(split), MOST_POINTS)
    codes = encode_split(engine.model, split, rows)
    ranks = split.target.hard.cpu().numpy()[rows.numpy()]
    panels = {
        "ordinal z_o": embed(codes.ordinal.numpy().astype(np.float64)),
        "non-ordinal z_n": embed(codes.nonordinal.numpy().astype(np.float64)),
    }
    title = "The two codes" + (f": {data}" if data else "")
    caption = "t-SNE of training images, encoded without labels. The left should be ordered."
    return keep_picture(folder, name, rank_scatter(panels, ranks, names), title, caption)
