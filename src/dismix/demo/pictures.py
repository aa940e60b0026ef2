"""Pictures of the demo's page."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from dismix.data.manifest import Manifest, read_manifest
from dismix.data.phantom import PhantomSpec, draw_factors, measured_severity, render
from dismix.data.phantom.spec import Subject
from dismix.data.rank_names import rank_numbers
from dismix.data.transforms import from_unit
from dismix.generator.images import load_split
from dismix.generator.strips import pixels, spread_rows
from dismix.generator.traverse import nonordinal_traverse, ordinal_traverse
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.pairwise import mix_pairs
from dismix.mixing.quality import Readings, draw_rank_pairs, read_method
from dismix.mixing.showing import Studio, draw_policies
from dismix.show.headed_grid import headed_grid

SUBJECTS: tuple[Subject, ...] = ("knee", "fundus")
#: Mixers of the figure, and those whose mixes are measured: pixels first, codes behind.
PIXELS = ("mixup", "cutmix", "resizemix", "puzzlemix")
MEASURED = ("mixup", "cutmix", "ordinal_mix", "generate_and_mix", "order_swap", "nonordinal_mix")
PRESERVING = ("order_swap", "nonordinal_mix")
LAMS = (0.875, 0.625, 0.375, 0.125)
PAIRS = 40
_GAP, _TOP = 4, 26


def two_factors(size: int = 112, subjects: tuple[Subject, ...] = SUBJECTS) -> Image.Image:
    """Draw severity alone moving, then appearance alone moving; a row a subject.

    Args:
        size: Side of a picture.
        subjects: Rows.

    Example:
        >>> two_factors(32, ("knee",)).size
        (340, 62)
    """
    width = 9 * (size + _GAP) + 4 * _GAP
    sheet = Image.new("RGB", (width, _TOP + len(subjects) * (size + _GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    draw.text((2, 4), "severity moves, appearance stays", "black", font)
    draw.text((5 * (size + _GAP) + 4 * _GAP, 4), "appearance moves, severity stays", "black", font)
    for row, subject in enumerate(subjects):
        for column, made in enumerate(_two_factors(subject, size)):
            left = column * (size + _GAP) + (4 * _GAP if column >= 5 else 0)
            picture = Image.fromarray(made).convert("RGB")
            sheet.paste(picture, (left, _TOP + row * (size + _GAP)))
    return sheet


def _two_factors(subject: Subject, size: int) -> list[NDArray[np.uint8]]:
    spec = PhantomSpec(subject=subject)
    person = draw_factors(spec, 2, np.random.default_rng(11))
    made = [render(replace(person, severity=float(s), rank=s), size) for s in range(5)]
    for seed in (3, 5, 8, 14):
        other = draw_factors(spec, 2, np.random.default_rng(seed))
        made.append(render(replace(other, severity=2.0), size))
    return made


@dataclass(frozen=True)
class Room:
    """What the pictures are drawn from.

    Attributes:
        studio: Generator, codes and training images.
        data: All images.
        subject: What the phantoms show.
    """

    studio: Studio
    data: Manifest
    subject: Subject

    @classmethod
    def open(cls, run: Path, manifest: Path, subject: Subject) -> "Room":
        """Open a trained generator with its data."""
        store = encode_split(run)
        engine, data = MixEngine.load(run, store.folder), read_manifest(manifest)
        train = load_split(data, "train", engine.model.image_size, device=torch.device("cpu"))
        # The page speaks of ranks by their numbers.
        names = tuple(str(number) for number in rank_numbers(data.meta.ranks))
        return cls(Studio(engine, train, 0, names), data, subject)

    def strip(self) -> Image.Image:
        """Draw test pictures: made again, at every rank, and with other appearances."""
        model, ranks = self.studio.engine.model, self.data.num_ranks
        test = load_split(self.data, "test", model.image_size, device=torch.device("cpu"))
        rows = spread_rows(test, min(5, len(test)))
        images = test.images(rows, "cpu")
        with torch.no_grad():
            again = model.decode(model.encode(images)).float()
        shares = torch.tensor([0.33, 0.67, 1.0])
        columns = [
            images, again, *ordinal_traverse(model, images, torch.arange(ranks).float()),
            *nonordinal_traverse(model, images, images.flip(0), None, shares),
        ]  # fmt: skip
        shown = [pixels(column) for column in columns]
        grid = [[column[i] for column in shown] for i in range(len(rows))]
        names = ["original", "made again", *(f"at rank {rank}" for rank in range(ranks))]
        names += [f"{100 * share:.0f} % other" for share in shares.tolist()]
        truth = test.target.hard[rows].tolist()
        return headed_grid(grid, [(f"grade {rank}", "test picture") for rank in truth], names)

    def policies(self) -> Image.Image:
        """Draw one pair of training pictures under every policy."""
        return draw_policies(self.studio, 1)

    def mixers(self) -> Image.Image:
        """Draw the same pairs under mixers of pixels and of codes, half and half."""
        studio, half = self.studio, torch.tensor([0.5])
        rows, notes = [], []
        policies = studio.engine.policies("combined")
        for rank in (1, 2):
            first, second = studio.pairs(rank, 1)
            both = torch.cat([first, second])
            images, target = studio.train.images(both, "cpu"), studio.train.target[both]
            made = [mix_pairs(name, images[:1], images[1:], target, half)[0] for name in PIXELS]
            row = [*pixels(images), *(pixels(picture)[0] for picture in made)]
            row += [studio.mixes(name, int(first), int(second), half)[0] for name in policies]
            rows.append(row)
            notes.append((f"ranks {rank}, {rank + 1}", "half and half"))
        headers = ["one", "other", *PIXELS, *policies]
        return headed_grid(rows, notes, headers)

    def measured(self) -> dict[str, Readings]:
        """Measure the severity that mixes of neighbouring ranks show, by method."""
        studio, count = self.studio, self.data.num_ranks

        def severity(images: Tensor) -> NDArray[np.float64]:
            shown: Any = measured_severity(from_unit(images).numpy(), self.subject, count)
            return np.asarray(shown, np.float64)

        pairs = draw_rank_pairs(studio.engine.store.target.hard, PAIRS, seed=0)
        return {
            name: read_method(studio.engine, studio.train, name, pairs, severity, lams=LAMS)
            for name in MEASURED
        }
