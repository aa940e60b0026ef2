"""Figures of mixes: every policy on one pair, strips along lam, mixers side by side.

All pictures are decoded from training images, as mixing does it; nothing is picked by its looks:
the seed decides which images are shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from dismix.data.manifest import read_manifest
from dismix.data.rank_names import rank_position
from dismix.errors import DisMixError
from dismix.generator.images import SplitImages, load_split
from dismix.generator.strips import pixels
from dismix.generator.transitions import draw_transitions
from dismix.labels import OrdinalTarget
from dismix.mixing.encoding import encode_split, run_manifest, training_rows
from dismix.mixing.engine import MixEngine
from dismix.mixing.pairwise import mixer_pictures
from dismix.mixing.policy_draws import POLICIES, PolicyDraws
from dismix.progress import Progress
from dismix.registry import near_names
from dismix.show.headed_grid import Pixels, headed_grid


@dataclass(frozen=True)
class Studio:
    """What the figures are drawn from.

    Attributes:
        engine: Generator and stored codes.
        train: The encoded images themselves.
        seed: Decides which images are shown.
        names: (C) what the ranks are called in captions.
    """

    engine: MixEngine
    train: SplitImages
    seed: int
    names: tuple[str, ...]

    def pairs(self, rank: int, count: int) -> tuple[Tensor, Tensor]:
        """Return rows (count,) of a rank and rows of the next higher one."""
        ranks = self.engine.store.target.hard
        found = []
        for wanted in (rank, rank + 1):
            rows = torch.nonzero(ranks == wanted).flatten()
            if len(rows) == 0:
                raise DisMixError(
                    f"no training image has rank {self.names[wanted]}", column="--rank",
                    cure="choose a rank whose neighbour above has images too",
                )  # fmt: skip
            rng = torch.Generator().manual_seed(self.seed)
            order = rows[torch.randperm(len(rows), generator=rng)]
            found.append(order.repeat(-(-count // len(order)))[:count])
        return found[0], found[1]

    def images(self, rows: Tensor) -> list[Pixels]:
        """Return stored images as pixels."""
        return pixels(self.train.images(rows, "cpu"))

    def mixes(self, policy: str, anchor: int, partner: int, lams: Tensor) -> list[Pixels]:
        """Mix one pair over shares (R,) of the anchor; what is kept comes from the anchor."""
        count = len(lams)
        ranks = self.engine.store.target.hard
        # Order swap shows something new only with the partner's severity.
        from_partner = torch.full((count,), policy == "order_swap")
        draws = PolicyDraws(
            policy=torch.full((count,), POLICIES.index(policy)),
            lam=lams.clamp(0, 1),
            from_partner=from_partner,
            partner=torch.full((count,), partner),
            asked=torch.full((count,), int(ranks[partner])),
            adjacent=torch.ones(count, dtype=torch.bool),
        )
        stored = self.engine.stored(torch.full((count,), anchor))
        # As labels of whole ranks say, which stand beside the pictures.
        own, theirs = (
            OrdinalTarget.from_labels(ranks[row].repeat(count), self.engine.num_ranks)
            for row in (anchor, partner)
        )
        return pixels(self.engine.mix(draws, stored, (own, theirs)))


def draw_policies(studio: Studio, rank: int) -> Image.Image:
    """Draw one pair under every policy, lam from 1 (the anchor) to 0."""
    first, second = (int(rows[0]) for rows in studio.pairs(rank, 1))
    ends = studio.images(torch.tensor([first, second]))
    lams = torch.linspace(1, 0, 6)
    names = studio.engine.policies("combined")
    low, high = studio.names[rank], studio.names[rank + 1]
    labels = {
        "ordinal_mix": f"rank {low} to {high}",
        "nonordinal_mix": f"rank stays {low}",
        "order_swap": f"rank {high} throughout",
        "generate_and_mix": f"rank {low} to {high}",
    }
    rows = [[ends[0], *studio.mixes(name, first, second, lams), ends[1]] for name in names]
    headers = [f"anchor: {low}", *_lams(lams), f"partner: {high}"]
    return headed_grid(rows, [(name, labels[name]) for name in names], headers)


def draw_lam_strip(studio: Studio, rank: int) -> Image.Image:
    """Draw ordinal mixes of several pairs, from one rank to the next."""
    first, second = studio.pairs(rank, 5)
    lams = torch.linspace(1, 0, 6)
    rows = []
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        ends = studio.images(torch.tensor([i, j]))
        rows.append([ends[0], *studio.mixes("ordinal_mix", i, j, lams), ends[1]])
    low, high = studio.names[rank], studio.names[rank + 1]
    headers = [f"rank {low}", *_lams(lams), f"rank {high}"]
    captions = [("ordinal_mix", f"rank {low} to {high}")] * len(rows)
    return headed_grid(rows, captions, headers)


def draw_mixers(studio: Studio, rank: int) -> Image.Image:
    """Draw the same pairs under every mixer, at lam = 0.5."""
    first, second = studio.pairs(rank, 4)
    half = torch.tensor([0.5])
    low, high = studio.names[rank], studio.names[rank + 1]
    rows, headers = [], [f"rank {low}", f"rank {high}"]
    for number, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        both = torch.tensor([i, j])
        images, target = studio.train.images(both, "cpu"), studio.train.target[both]
        made = mixer_pictures(images, target.to("cpu"), 0.5, studio.seed + number)
        row = [*pixels(images), *(pixels(picture[None])[0] for picture in made.values())]
        policies = studio.engine.policies("combined")
        row += [studio.mixes(name, i, j, half)[0] for name in policies]
        headers = [*headers[:2], *made, *policies]
        rows.append(row)
    captions = [("same pair", f"rank {low} and {high}, lam 0.5")] * len(rows)
    return headed_grid(rows, captions, headers)


def _lams(lams: Tensor) -> list[str]:
    return [f"lam {lam:.1f}" for lam in lams.tolist()]


FIGURES: dict[str, Callable[[Studio, int], Image.Image]] = {
    "policies": draw_policies,
    "strip": draw_lam_strip,
    "mixers": draw_mixers,
}


def draw_figure(
    run: str | Path,
    figure: str = "policies",
    *,
    rank: int | str | None = None,
    manifest: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Image.Image:
    """Draw a figure of a run.

    Args:
        run: Run folder; its training split is encoded first when that was not done yet.
        figure: "policies" (one pair, every policy, lam from 1 to 0), "strip" (several pairs from
            one rank to the next), "mixers" (the same pairs under every mixer) or "transition"
            (the paper's figure: codes of a mild and of a severe picture, on held-out images).
        rank: Rank of the anchors: its position from 0, or as text its name or number, which
            scales from 1 to 5 have of their own. None is the second, the first of two; for
            "transition", whose images the seed does not choose, the lowest that two images have.
        manifest: Data; what the run was trained on by default.
        seed: Decides which images are shown.
        device: Where to decode.
        cache: Folder of the image stores.
        progress: Called while images are read and encoded.
    """
    if figure not in (*FIGURES, "transition"):
        raise DisMixError(
            f"unknown figure '{figure}'", cure=near_names(figure, [*FIGURES, "transition"])
        )
    data = read_manifest(manifest or run_manifest(run))
    names = data.meta.ranks
    # Of two ranks the second has no neighbour above.
    usual = min(1, len(names) - 2)
    asked, rank = rank, _position(usual if rank is None else rank, names)
    store = encode_split(run, manifest, device=device, cache=cache, progress=progress)
    engine = MixEngine.load(run, store.folder, device=device)
    training_rows(engine.model, data)
    if figure == "transition":
        present = {*data.table["split"]}
        held_out = next(name for name in ("test", "val", "train") if name in present)
        split = load_split(
            data, held_out, engine.model.image_size, device=torch.device(device), cache=cache,
            progress=progress,
        )  # fmt: skip
        return draw_transitions(engine.model, split, None if asked is None else rank)
    if rank == engine.num_ranks - 1:
        raise DisMixError(
            f"rank {names[rank]} has no neighbour above", column="--rank",
            cure=f"choose {names[0]} to {names[-2]}" if names[2:] else f"choose {names[0]}",
        )  # fmt: skip
    split = load_split(
        data, "train", engine.model.image_size, device=torch.device("cpu"), cache=cache
    )
    return FIGURES[figure](
        Studio(engine, replace(split, target=split.target.to("cpu")), seed, names), rank
    )


def _position(rank: int | str, names: Sequence[str]) -> int:
    try:
        if isinstance(rank, str):
            return rank_position(rank, names)
        return rank_position(str(rank), [str(k) for k in range(len(names))])
    except DisMixError as error:
        raise DisMixError(error.problem, column="--rank", cure=error.cure) from None
