"""DisMix: mixes of severity and appearance, each on its own (the paper's method).

    mix = DisMix.load("runs/idrid", p=0.5)
    images, targets = mix(images, targets)

A frozen generator splits an image into an ordinal code (severity) and a non-ordinal one
(appearance); one of four policies combines the codes of an image with those of a partner of a
neighbouring rank, drawn from the whole training split, and decodes the result. The paper's
images come as they are and leave as pictures; here the codes of the split are encoded once, and
with ``pool`` the pictures are decoded ahead of time.

Mixes made from stored codes are turned and flipped after decoding, as training images are before
they come here; mixes of images that had to be encoded on the fly carry the caller's augmentation.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from dismix.data.transforms import augment, draw_augment, to_unit
from dismix.errors import DisMixError
from dismix.generator.judge import Judge
from dismix.given_numbers import given_numbers
from dismix.labels import OrdinalTarget
from dismix.mixing.agreement import load_agreement, reads_mixes
from dismix.mixing.base import Draws, ModelAccess, Targets
from dismix.mixing.details import DetailWith
from dismix.mixing.dismix_draws import DisMixDraws, laid_over, placed, turned
from dismix.mixing.engine import MixEngine
from dismix.mixing.fitting import Normalisation
from dismix.mixing.info import Mixed, MixInfo
from dismix.mixing.maker import MixMaker, MixSettings
from dismix.mixing.partner_index import DisMixPairing
from dismix.mixing.policies import label_shares, mix_targets
from dismix.mixing.policy_draws import draw_numbers
from dismix.mixing.pooled_mixer import PooledMixer
from dismix.mixing.records import Sources
from dismix.mixing.serving import PoolService
from dismix.mixing.severity import Severity
from dismix.mixing.stored_ranks import StoredRanks
from dismix.mixing.uncompiled import uncompiled
from dismix.transfer import onto


class DisMix(PooledMixer):
    """Order-aware mixing with a trained generator.

    Args:
        num_ranks: C; the generator's when left out.
        run: Run folder of a generator whose training split was encoded.
        engine: An open generator with its store, instead of ``run``.
        store: Folder of the latent store; the one beside the run when left out.
        policies: A policy, a group ("combined", "preserving", "interpolating") or a list.
        alpha: lam follows Beta(alpha, alpha); 1 is uniform.
        labels: "majority" mixes the sources' majority ranks (the paper), "votes" their laws.
        ranks: What pairs by and counts as the stored images' rank: "majority" (the paper) or
            "consensus" (Dawid and Skene).
        balanced: Anchors of the pool are drawn rank by rank, and the ranks of partners are
            equally likely, so rare grades get more mixes.
        pairing: Partners have a neighbouring rank ("adjacent", the paper) or that of the anchor
            or a neighbouring one ("near"), so that mixes have nearly the images' ranks
            (`dismix.mixing.partner_index`).
        detail: Share of what the codes leave out of the images that mixes get back, 0 to 1
            (`dismix mix encode RUN --details` first); see `dismix.mixing.details`.
        alike: Partners drawn for a mix, of which the one that looks most like the anchor is taken
            (`dismix.mixing.likeness`); 1 takes any, as the paper does, and so do anchors without
            ``rows``.
        reach: Largest share of the partner in what is interpolated; below 1 all else is the
            anchor's, so a mix stays near it. ``order_swap`` interpolates nothing and is the same
            whatever the reach. 1 is the paper's.
        detail_with: Detail goes with the sources' look ("look") or with their part in the label
            ("rank").
        severity: Sources show what their labels say ("label", the paper) or what the generator
            reads in them, told no label ("image"); see `dismix.mixing.severity`.
        blend: Largest share of the replaced image itself that is laid over a mix, as in Mixup, with
            its label; the share is uniform up to it. 0 is the paper's. See
            `dismix.mixing.dismix_draws.laid_over`.
        turn: Flip and rotate mixes made from stored codes.
        flips: Chances of horizontal and vertical flips.
        max_degrees: Rotations stay strictly below.
        mean: Of the caller's normalisation, on a scale of 0 to 1; 0.5 with std 0.5 is [-1, 1].
        std: Likewise.
        pool: Mixes of a block of the rotating pool; 0 decodes in the step itself. Mixes of the
            pool have anchors drawn from the split, not from the batch.
        reuse: How often a mix of the pool is used at most.
        pool_dir: Keep the pool in files below this folder instead of on the device.
        keep: Share of the pool's decoded mixes that is kept: those that a judge reads as they are
            labelled (`dismix.mixing.agreement`); 1 keeps all.
        judged: Share of what the judge reads in the labels of the pool's mixes; 0 labels them by
            their sources alone.
        judge: That judge or its file; None is ``judge.safetensors`` in the run folder.
        compiled: Compile the decoder.
        **options: See :class:`~dismix.mixing.base.Mixer`.

    Attributes:
        made: Mixes made so far.
        fallbacks: How many of them had no partner of a neighbouring rank.
    """

    method = "dismix"
    needs_partner = False
    takes_rows = True
    channels = (1, 3)

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        run: str | Path | None = None,
        engine: MixEngine | None = None,
        store: str | Path | None = None,
        policies: str | Sequence[str] = "combined",
        alpha: float = 1.0,
        labels: Literal["majority", "votes"] = "majority",
        ranks: Literal["majority", "consensus"] = "majority",
        balanced: bool = False,
        pairing: DisMixPairing = "adjacent",
        detail: float = 0.0,
        alike: int = 1,
        reach: float = 1.0,
        detail_with: DetailWith = "look",
        severity: Severity = "label",
        blend: float = 0.0,
        turn: bool = True,
        flips: tuple[float, float] = (0.5, 0.5),
        max_degrees: float = 20.0,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        pool: int = 0,
        reuse: int = 4,
        pool_dir: str | Path | None = None,
        keep: float = 1.0,
        judged: float = 0.0,
        judge: str | Path | Judge | None = None,
        compiled: bool = False,
        **options: Any,
    ) -> None:
        _check_turning(flips, max_degrees)
        if not 0 <= blend <= 1:
            raise DisMixError(f"is {blend}", column="blend", cure="give a share from 0 to 1")
        asked = {"keep": keep, "judged": judged}
        if reads_mixes(asked) and not pool:
            raise DisMixError(
                "only mixes of the pool are read by a judge",
                column="keep" if keep != 1 else "judged",
                cure="give pool=1024",
            )
        if engine is None:
            if run is None:
                raise DisMixError(
                    "DisMix needs a trained generator", cure="give run=, the folder of a run"
                )
            engine = MixEngine.load(run, store, compiled=compiled)
        given = policies if isinstance(policies, str) else tuple(policies)
        settings = MixSettings(
            policies=given, alpha=alpha, labels=labels, ranks=ranks, balanced=balanced,
            pairing=pairing, detail=detail, alike=alike, reach=reach, detail_with=detail_with,
            severity=severity,
        )  # fmt: skip
        super().__init__(_same_ranks(num_ranks, engine), pairing=pairing, **options)
        chooser = None
        if reads_mixes(asked):
            chooser = load_agreement(judge, engine.run, engine.store.target, **asked)
        self._maker = [MixMaker(engine, settings, chooser)]
        self.blend = blend
        self.turn, self.flips, self.max_degrees = turn, flips, max_degrees
        self.norm = Normalisation(mean, std)
        self.served = PoolService(pool, reuse, pool_dir, self._drawn_seed())
        self._given_rows: Tensor | None = None
        self._ranks_in_store = StoredRanks()
        self._turning = True
        self.made, self.fallbacks = 0, 0

    @classmethod
    def load(cls, run: str | Path, **options: Any) -> "DisMix":
        """Open a run whose training split was encoded (`dismix mix encode RUN`).

        Args:
            run: Run folder.
            **options: See the class; unknown ones are named, with near ones.
        """
        from dismix.mixing.registry import check_options

        return cls(run=run, **check_options(cls.method, options))

    @property
    def engine(self) -> MixEngine:
        """The generator and the stored codes."""
        return self._maker[0].engine

    @property
    def trained_on(self) -> frozenset[str]:
        """Digests of the images that the generator was trained on, as far as known."""
        return self.engine.trained_on

    def __call__(self, images: Tensor, targets: Targets, **options: Any) -> Any:
        """Mix a batch, see :meth:`forward`."""
        return super().__call__(images, targets, **options)

    def forward(
        self,
        images: Tensor,
        targets: Targets,
        *,
        rows: Tensor | Sequence[int] | None = None,
        augmented: bool = True,
        **options: Any,
    ) -> Any:
        """Return mixed images and targets; see :meth:`Mixer.forward`.

        Args:
            images: (B, 1 or 3, H, W), floating point, normalised as the constructor says.
            targets: Whole numbers (B,), probabilities (B, C) or an ``OrdinalTarget``.
            rows: (B,) positions of the images in the encoded training split, -1 where they are
                not in it. Anchors are then taken from the store instead of being encoded.
            augmented: Whether these images were flipped and turned; mixes of stored codes then
                are too. False where that comes after mixing, or never.
            **options: ``return_info`` and what other mixers take.
        """
        if rows is not None:
            rows = _checked_rows(given_numbers(rows, "rows"), len(images))
            # The pool brings its own anchors: asking a GPU for rows would make it wait.
            rows = None if self.pool_size else rows.cpu().long()
        if rows is not None:
            self.engine.store.require_rows(rows, least=-1)
        self._given_rows, self._turning = rows, augmented
        try:
            return super().forward(images, targets, **options)
        finally:
            self._given_rows, self._turning = None, True

    def rows_of(self, digests: Sequence[str], target: OrdinalTarget | None = None) -> Tensor:
        """Return rows of the store by content; see :meth:`Mixer.rows_of`."""
        return self.engine.store.rows_of(digests, target)

    def draw(self, images: Tensor, target: OrdinalTarget) -> DisMixDraws:
        """Draw which images are replaced, and how."""
        rows = self.draw_rows(len(images))
        known = torch.full_like(rows, -1)
        if self._given_rows is not None:
            known = self._given_rows[rows]
        count = len(rows)
        turns = None
        if self.turn:
            turns = draw_augment(
                count, self.generator, flips=self.flips, max_degrees=self.max_degrees
            )
            # Drawn all the same: what comes after does not depend on it.
            turns = turns if self._turning else None
        own = None
        if self.blend:
            own = self.blend * torch.rand(count, dtype=torch.float32, generator=self.generator)
        outside = torch.full_like(rows, -1)
        if self.pool_size:
            pooled = self.pool(images.device).take(count)
            share = torch.zeros(count, dtype=torch.float32) if own is None else own
            return DisMixDraws(
                rows, outside, share, pooled.fell_back, known, None, turns, pooled, own
            )
        # Already on the CPU, where pairs are found: no GPU waits for the comparison.
        given = target.hard.cpu()
        if self._given_rows is not None:
            stored = self.engine.store.target.hard
            self._ranks_in_store.compare(self._given_rows, given, stored)
        ranks = self.maker.paired_ranks(given[rows], known)
        choices = self.maker.choices(draw_numbers(count, self.generator), ranks, known)
        share = label_shares(choices)
        share = share if own is None else own + (1 - own) * share
        return DisMixDraws(
            rows, outside, share, ~choices.adjacent, known, choices, turns, None, own
        )

    # A compiled training step would try to trace the store's files and the decoder.
    @uncompiled
    def replay(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Mixed:
        """Decode the mixes and put them in place of the drawn images."""
        assert isinstance(draws, DisMixDraws)
        if len(draws) == 0:
            return Mixed(images, target, MixInfo.unchanged(self.method, target))
        self.engine.to(images.device)
        if draws.pooled is not None:
            mixes, probs = draws.pooled.images, draws.pooled.probs
            mixes = to_unit(mixes) if draws.turns is None else augment(mixes, draws.turns)
        else:
            mixes, probs = self._direct(images, target, draws)
            mixes = turned(mixes, draws.turns, draws.known >= 0)
        self.made += len(draws)
        self.fallbacks += int(draws.fell_back.sum())
        mixes = self.norm.restored(mixes, images)
        mixes, probs = laid_over(images, target, draws, mixes, probs)
        return placed(self.method, images, target, draws, mixes, probs)

    def _direct(
        self, images: Tensor, target: OrdinalTarget, draws: DisMixDraws
    ) -> tuple[Tensor, Tensor]:
        assert draws.choices is not None
        rows = onto(draws.rows, images.device)
        anchor = self._sources(images[rows], target[rows], draws.known)
        partner = draws.choices.partner
        here = target[rows].to("cpu")
        own, ranks = (
            self.maker.labels(here, draws.known),
            self.maker.paired_ranks(here.hard, draws.known),
        )
        theirs = self.maker.labels(self.engine.store.target[partner], partner)
        mixes = self.maker.mixed(draws.choices, anchor, self.maker.shown(own, theirs), ranks)
        return mixes, onto(mix_targets(draws.choices, own, theirs).probs, images.device)

    def _sources(self, images: Tensor, target: OrdinalTarget, known: Tensor) -> Sources:
        """Return the anchors' codes: from the store where it has them, else encoded now."""
        unknown, wanted = (known < 0).nonzero().flatten(), self.maker.as_sources
        if len(unknown) == 0:
            return self.engine.stored(known, **wanted)
        here = onto(unknown, images.device)
        fitted = self.norm.for_generator(images[here], self.engine.model)
        fresh = self.engine.encode(fitted, target[here], **wanted)
        if len(unknown) == len(known):
            return fresh
        stored = self.engine.stored(known[known >= 0], **wanted)
        order = torch.argsort(torch.cat([(known >= 0).nonzero().flatten(), unknown]))
        return Sources.cat([stored, fresh])[onto(order, images.device)]

    def extra_repr(self) -> str:
        """Show the settings."""
        pool = f", pool={self.served.size} x {self.served.reuse}" if self.pool_size else ""
        return (
            f"num_ranks={self.num_ranks}, p={self.p:g}, policies={', '.join(self.maker.policies)},"
            f" pairing={self.pairing}, stored={len(self.engine.store)}{pool}"
        )


def _checked_rows(rows: Tensor, batch: int) -> Tensor:
    """Return rows (B,), or say that they count no images; a mask would name rows 0 and 1."""
    if rows.shape != (batch,) or rows.is_floating_point() or rows.dtype == torch.bool:
        raise DisMixError(
            f"rows must be whole numbers ({batch},), got {rows.dtype} {tuple(rows.shape)}",
            cure="give the position of each image in the training split, -1 where it is not in it",
        )
    return rows


def _check_turning(flips: Any, max_degrees: float) -> None:
    """Refuse what is no chance and no angle before the first batch."""
    numbers = isinstance(flips, Sequence) and all(isinstance(x, int | float) for x in flips)
    if not numbers or len(flips) != 2 or not all(0 <= x <= 1 for x in flips):
        raise DisMixError(f"is {flips!r}", column="flips", cure="give two chances, as (0.5, 0.5)")
    if not max_degrees >= 0:
        raise DisMixError(f"is {max_degrees}", column="max_degrees", cure="give 0 or more")


def _same_ranks(num_ranks: int | None, engine: MixEngine) -> int:
    if num_ranks is not None and num_ranks != engine.num_ranks:
        raise DisMixError(
            f"the generator grades {engine.num_ranks} ranks, not {num_ranks}",
            cure="use a generator trained on the same ranks",
        )
    return engine.num_ranks
