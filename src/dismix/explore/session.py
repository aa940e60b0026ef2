"""All that the explorer computes; no page, no server.

A picture is encoded once and remembered, so that moving a slider costs one decoding. Everything
made is a pure function of the run and a `Recipe`.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dismix.data.transforms import from_unit, to_unit
from dismix.errors import DisMixError
from dismix.explore.library import Library
from dismix.explore.opinion import NearestReal, Opinion
from dismix.explore.recipe import Recipe
from dismix.explore.subject import UPLOAD, Subject, modal_rank
from dismix.explore.uploads import read_upload
from dismix.generator.codes import Codes
from dismix.generator.fast_decode import FastDecoder
from dismix.generator.model import Generator
from dismix.labels import OrdinalTarget
from dismix.laws import monotone_levels, probs_from_levels
from dismix.mixing.inference import inference
from dismix.mixing.policies import lerp
from dismix.mixing.records import conditions

#: Uploads, encodings and made pictures that are remembered; older ones are forgotten.
UPLOADS_KEPT, CODES_KEPT, MADE_KEPT = 32, 64, 64


@dataclass(frozen=True)
class Encoded:
    """What is remembered of a picture.

    Attributes:
        codes: Codes (1, ...) that mixes are made of, labelled where `Subject.levels` says so.
        z: (1, D_o, h, w), to ask for another rank.
        reading: (C,) what the generator itself reads, without being told a grade.
        rank: Whole rank: the annotators' majority, else the reading's.
    """

    codes: Codes
    z: Tensor
    reading: tuple[float, ...]
    rank: int


@dataclass(frozen=True)
class Made:
    """A made picture.

    Attributes:
        recipe: How it was made.
        pixels: (channels, H, W) uint8 on the CPU.
        rank: The rank that a model would be taught for it.
        law: That rank as C shares.
    """

    recipe: Recipe
    pixels: Tensor
    rank: float
    law: tuple[float, ...]


class Session:
    """A run that can be looked at.

    Args:
        model: Generator; frozen here.
        library: Images to choose from; may be empty.
        run: Run folder, for provenance.
        opinion: A grader to ask, or None.
        nearest: Finds training images near a picture, or None without data.

    Attributes:
        can_ask: Whether the generator can be asked for a rank.
    """

    def __init__(
        self,
        model: Generator,
        library: Library,
        run: Path | None = None,
        *,
        opinion: Opinion | None = None,
        nearest: NearestReal | None = None,
    ) -> None:
        if len(library.ranks) != model.config.num_ranks:
            raise DisMixError(
                f"the data have {len(library.ranks)} ranks, the generator {model.config.num_ranks}",
                cure="give the manifest it was trained on",
            )
        self.model, self.library, self.run = model.eval().requires_grad_(False), library, run
        self.ranks, self.num_ranks = library.ranks, len(library.ranks)
        self.can_ask = conditions(model)
        self.opinion, self.nearest = opinion, nearest
        self._decoder = FastDecoder(model, compiled=False)
        self._lock = threading.Lock()
        self._uploads: OrderedDict[str, Subject] = OrderedDict()
        self._codes: OrderedDict[str, Encoded] = OrderedDict()
        self._made: OrderedDict[Recipe, Made] = OrderedDict()

    @property
    def device(self) -> torch.device:
        """Where the generator is."""
        return self.model.post_quant_conv.weight.device

    def upload(self, data: bytes) -> Subject:
        """Take in a file that somebody sent; see `read_upload`."""
        subject = read_upload(data, self.library)
        with self._lock:
            self._uploads[subject.key] = subject
            # One that is sent again is new again.
            self._uploads.move_to_end(subject.key)
            while len(self._uploads) > UPLOADS_KEPT:
                self._forget(self._uploads.popitem(last=False)[0])
        return subject

    def _forget(self, key: str) -> None:
        self._codes.pop(key, None)
        for recipe in [r for r in self._made if key in (r.start, r.partner)]:
            del self._made[recipe]

    def subject(self, key: str) -> Subject:
        """Return a picture by its key."""
        if not key.startswith(UPLOAD + "/"):
            return self.library.subject(key)
        with self._lock:
            found = self._uploads.get(key)
        if found is None:
            raise DisMixError("this upload is no longer kept", cure="upload it again")
        return found

    def encoded(self, key: str) -> Encoded:
        """Return what is remembered of a picture, after encoding it where necessary."""
        with self._lock:
            if key in self._codes:
                self._codes.move_to_end(key)
                return self._codes[key]
        found = self._encode(self.subject(key))
        with self._lock:
            self._codes[key] = found
            while len(self._codes) > CODES_KEPT:
                self._codes.popitem(last=False)
        return found

    def _encode(self, subject: Subject) -> Encoded:
        model, levels = self.model, subject.levels
        image = to_unit(subject.pixels[None].to(self.device))
        with inference(self.device):
            free = model.latents(image)
            ordinal, nonordinal = model.quantized(free)
            reading = self._reading(ordinal.codes)
            codes = Codes(ordinal.codes.float(), nonordinal.codes.float())
            if levels is not None:
                told = model.encode(image, levels.to(self.device))
                codes = Codes(told.ordinal.float(), told.nonordinal.float())
        rank = subject.rank
        return Encoded(
            codes, free.ordinal.float(), reading, modal_rank(reading) if rank is None else rank
        )

    def _reading(self, ordinal: Tensor) -> tuple[float, ...]:
        logits = self.model.ordinal_classifier(ordinal).float()
        probs = probs_from_levels(monotone_levels(torch.sigmoid(logits)))[0]
        return tuple((probs / probs.sum()).tolist())

    def make(self, *recipes: Recipe) -> list[Made]:
        """Make pictures, decoded together; the last ones are remembered."""
        with self._lock:
            found = {recipe: self._made[recipe] for recipe in recipes if recipe in self._made}
        missing = [recipe for recipe in dict.fromkeys(recipes) if recipe not in found]
        if missing:
            found |= dict(zip(missing, self._make(missing), strict=True))
        with self._lock:
            for recipe in recipes:
                self._made[recipe] = found[recipe]
                self._made.move_to_end(recipe)
            while len(self._made) > MADE_KEPT:
                self._made.popitem(last=False)
        return [found[recipe] for recipe in recipes]

    def _make(self, recipes: list[Recipe]) -> list[Made]:
        with inference(self.device):
            parts = [self._mixed(recipe) for recipe in recipes]
            pixels = self.decode(Codes.cat(parts))
        ranks = [self.label_rank(recipe) for recipe in recipes]
        laws = OrdinalTarget.from_rank(torch.tensor(ranks), self.num_ranks).probs.tolist()
        return [
            Made(recipe, picture, rank, tuple(law))
            for recipe, picture, rank, law in zip(recipes, pixels, ranks, laws, strict=True)
        ]

    def decode(self, codes: Codes) -> Tensor:
        """Decode codes into (B, channels, H, W) uint8 on the CPU."""
        with inference(self.device):
            return from_unit(self._decoder(codes)).cpu()

    def _mixed(self, recipe: Recipe) -> Codes:
        start = self.encoded(recipe.start)
        ordinal, nonordinal = start.codes.ordinal, start.codes.nonordinal
        if recipe.severity > 0:
            weight = torch.tensor([1 - recipe.severity], device=self.device)
            ordinal = lerp(ordinal, self._giver(recipe, start), weight)
        if recipe.appearance > 0 and recipe.partner is not None:
            weight = torch.tensor([1 - recipe.appearance], device=self.device)
            partner = self.encoded(recipe.partner).codes.nonordinal
            nonordinal = lerp(nonordinal, partner, weight)
        return Codes(ordinal, nonordinal)

    def _giver(self, recipe: Recipe, start: Encoded) -> Tensor:
        """Return the ordinal code that severity moves towards."""
        if recipe.rank is None:
            assert recipe.partner is not None
            return self.encoded(recipe.partner).codes.ordinal
        if not self.can_ask:
            raise DisMixError("this generator cannot be asked for a grade", cure="use a partner")
        levels = self._levels(recipe.rank)
        asked = self.model.quantized_ordinal(start.z, levels).codes.float()
        if not recipe.regenerated:
            return asked
        picture = self._decoder(Codes(asked, start.codes.nonordinal)).clamp(-1, 1)
        return self.model.encode(picture, levels).ordinal.float()

    def _levels(self, rank: float) -> Tensor:
        if not 0 <= rank <= self.num_ranks - 1:
            raise DisMixError(f"there is no grade {rank:g}", cure=f"0 to {self.num_ranks - 1}")
        return OrdinalTarget.from_rank([rank], self.num_ranks).levels.to(self.device)

    def label_rank(self, recipe: Recipe) -> float:
        """Return the rank that a model would be taught: severity's share between the givers'.

        As in the paper the givers count with their whole (majority) ranks.
        """
        own = self.encoded(recipe.start).rank
        if recipe.severity == 0:
            return float(own)
        other = recipe.rank
        if other is None:
            assert recipe.partner is not None
            other = self.encoded(recipe.partner).rank
        return (1 - recipe.severity) * own + recipe.severity * other

    def strip(self, key: str, partner: str | None = None) -> list[Made]:
        """Return the film strip: one picture from the lowest to the highest severity.

        A generator that cannot be asked for a rank moves towards the partner instead.

        Args:
            key: The picture.
            partner: Giver, for generators that need one.
        """
        if self.can_ask:
            return self.make(*(Recipe(key, rank=r, severity=1.0) for r in self.strip_ranks()))
        if partner is None:
            raise DisMixError("this generator cannot be asked for a grade", cure="use a partner")
        shares = [k / 6 for k in range(7)]
        return self.make(*(Recipe(key, partner, severity=share) for share in shares))

    def strip_ranks(self) -> list[float]:
        """Return the ranks of the film strip: half steps while they are few, else whole ones."""
        step = 0.5 if self.num_ranks <= 6 else 1.0
        return [k * step for k in range(round((self.num_ranks - 1) / step) + 1)]

    def swap(self, first: str, second: str) -> tuple[Made, Made]:
        """Exchange the ordinal codes of two pictures; each keeps its appearance."""
        made = self.make(Recipe(first, second, severity=1.0), Recipe(second, first, severity=1.0))
        return made[0], made[1]

    def policies(self, start: str, partner: str, share: float) -> dict[str, Made]:
        """Apply every policy to one pair.

        What is not interpolated is the start's; order swap takes the partner's severity.

        Args:
            start: The anchor.
            partner: Its partner.
            share: Share of the partner in what is interpolated, within (0, 1).
        """
        recipes = {
            "ordinal_mix": Recipe(start, partner, severity=share),
            "nonordinal_mix": Recipe(start, partner, appearance=share),
            "order_swap": Recipe(start, partner, severity=1.0),
        }
        if self.can_ask:
            asked = self.neighbour(start, self.encoded(partner).rank)
            recipes["generate_and_mix"] = Recipe(
                start, rank=float(asked), severity=share, regenerated=True
            )
        return dict(zip(recipes, self.make(*recipes.values()), strict=True))

    def neighbour(self, start: str, towards: int) -> int:
        """Return the rank next to the start's, on the side of another rank."""
        own = self.encoded(start).rank
        step = 1 if towards >= own else -1
        return own + step if 0 <= own + step < self.num_ranks else own - step

    def partner_for(self, start: str, seed: int = 0) -> str | None:
        """Return a picture of a neighbouring rank, as mixing chooses one; None without data."""
        own = self.encoded(start).rank
        for distance in (1, 0, *range(2, self.num_ranks)):
            for rank in (own + distance, own - distance):
                keys = [k for k in self.library.browse("train", rank) if k != start] if (
                    "train" in self.library.shelves) else []  # fmt: skip
                if keys:
                    draws = torch.Generator().manual_seed(seed)
                    return keys[int(torch.randint(len(keys), (1,), generator=draws))]
        return None
