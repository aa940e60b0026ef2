"""Mixes of stored images: what the pool, the offline writer and the figures share."""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from dismix.data.transforms import from_unit
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.agreement import Agreement
from dismix.mixing.details import DetailWith
from dismix.mixing.engine import MixEngine
from dismix.mixing.likeness import alike_partners
from dismix.mixing.partner_index import DisMixPairing, PartnerIndex
from dismix.mixing.policies import majority_target, mix_targets
from dismix.mixing.policy_draws import (
    NUMBERS,
    PolicyDraws,
    draw_numbers,
    named_policies,
    policy_draws,
)
from dismix.mixing.pool import Pooled
from dismix.mixing.records import Sources
from dismix.mixing.severity import Severity
from dismix.seeds import rng_of

#: Mixes made at once. On a GPU more, so that the few that are generated first fill a batch.
CHUNK, CHUNK_ON_GPU = 64, 256


@dataclass(frozen=True)
class MixSettings:
    """What decides about mixes beside the random numbers.

    Attributes:
        policies: A policy, a group ("combined", "preserving", "interpolating") or several.
        alpha: lam follows Beta(alpha, alpha); 1 is uniform.
        labels: "majority" mixes the sources' whole ranks (the paper), "votes" their laws.
        ranks: What pairs by and counts as a stored image's rank: "majority" (the paper) or
            "consensus" (Dawid and Skene).
        balanced: Anchors are drawn rank by rank and the ranks of partners are equally likely,
            so rare grades get more mixes.
        pairing: Partners have a neighbouring rank ("adjacent", the paper) or that of the anchor
            or a neighbouring one ("near"), see `dismix.mixing.partner_index`.
        detail: Share of what the codes leave out of the images that mixes get back, 0 to 1; see
            `dismix.mixing.details`.
        alike: Partners drawn for a mix, of which the one that looks most like the anchor is taken;
            1 takes any, as the paper does, and so do anchors that are not stored. See
            `dismix.mixing.likeness`.
        reach: Largest share of the partner in what is interpolated, above 0 and up to 1; below 1
            all else is the anchor's. See `dismix.mixing.policy_draws.policy_draws`.
        detail_with: Detail goes with the sources' look ("look") or with their part in the label
            ("rank").
        severity: Sources show what their labels say ("label", the paper) or what the generator
            reads in them ("image"); see `dismix.mixing.severity`.
    """

    policies: str | tuple[str, ...] = "combined"
    alpha: float = 1.0
    labels: Literal["majority", "votes"] = "majority"
    ranks: Literal["majority", "consensus"] = "majority"
    balanced: bool = False
    pairing: DisMixPairing = "adjacent"
    detail: float = 0.0
    alike: int = 1
    reach: float = 1.0
    detail_with: DetailWith = "look"
    severity: Severity = "label"

    def __post_init__(self) -> None:
        # Before anything is encoded, which may take an hour.
        named_policies(self.policies)
        if not self.alpha > 0:
            raise DisMixError(f"alpha is {self.alpha:g}", cure="give a number above 0")
        if not 0 <= self.detail <= 1:
            raise DisMixError(f"detail is {self.detail:g}", cure="give a share, 0 to 1")
        if not 0 < self.reach <= 1:
            raise DisMixError(f"reach is {self.reach:g}", cure="give a share above 0, up to 1")
        if self.alike < 1:
            raise DisMixError(f"alike is {self.alike}", cure="give a whole number above 0")
        for name, known in (
            ("labels", ("majority", "votes")),
            ("ranks", ("majority", "consensus")),
            ("pairing", get_args(DisMixPairing)),
            ("detail_with", get_args(DetailWith)),
            ("severity", get_args(Severity)),
        ):
            value = getattr(self, name)
            if value not in known:
                raise DisMixError(f"unknown {name} '{value}'", cure="choose " + " or ".join(known))


@dataclass(frozen=True)
class StoredMixes:
    """Choices of B mixes whose anchors are stored images too.

    Attributes:
        anchor: (B,) rows of the store.
        choices: All other choices.
    """

    anchor: Tensor
    choices: PolicyDraws

    def __len__(self) -> int:
        return len(self.anchor)

    def __getitem__(self, index: Tensor | slice) -> "StoredMixes":
        return StoredMixes(self.anchor[index], self.choices[index])


class MixMaker:
    """Draws, decodes and labels mixes.

    Args:
        engine: Generator and stored codes.
        settings: See `MixSettings`.
        chooser: Chooses and labels the mixes of a block; None keeps all as they are asked for.
    """

    def __init__(
        self,
        engine: MixEngine,
        settings: MixSettings | None = None,
        chooser: Agreement | None = None,
    ) -> None:
        self.engine, self.settings, self.chooser = engine, settings or MixSettings(), chooser
        self.policies = engine.policies(self.settings.policies)
        if self.settings.detail > 0:
            # Says at once where they are missing.
            engine.details(self.settings.severity)
        store = engine.store
        known = store.consensus if self.settings.ranks == "consensus" else store.target.hard
        self.ranks = known.cpu()
        self.partners = PartnerIndex(self.ranks, engine.num_ranks)
        self.partners.require_two_ranks(store.folder)

    def choices(self, numbers: Tensor, ranks: Tensor, rows: Tensor) -> PolicyDraws:
        """Turn uniform numbers (B, 5) into choices for anchors of given ranks and rows (B,)."""
        chosen = self.settings
        made = policy_draws(
            numbers, ranks, self.partners, self.policies,
            rows=rows, alpha=chosen.alpha, balanced=chosen.balanced,
            pairing=chosen.pairing, reach=chosen.reach,
        )  # fmt: skip
        if chosen.alike == 1:
            return made
        partner = alike_partners(
            self.partners, made.partner, rows, self.engine.likeness, chosen.alike
        )
        return replace(made, partner=partner)

    def draw(self, count: int, seeds: Sequence[int]) -> StoredMixes:
        """Draw mixes with anchors from the whole split.

        Args:
            count: How many; the first ones are the same whatever the count.
            seeds: Whole numbers that decide all.
        """
        numbers = draw_numbers(count, rng_of(*seeds), NUMBERS + 1)
        anchor = self.partners.anchors(numbers[:, -1], balanced=self.settings.balanced)
        return StoredMixes(anchor, self.choices(numbers, self.ranks[anchor], anchor))

    def pictures(self, mixes: StoredMixes, stopped: Callable[[], bool] | None = None) -> Tensor:
        """Decode mixes: (B, channels, H, W) uint8 on the engine's device.

        Args:
            mixes: How B mixes are made.
            stopped: Asked now and then; `CancelledError` is raised once it says yes.
        """
        made, chunk = [], CHUNK if self.engine.device.type == "cpu" else CHUNK_ON_GPU
        for start in range(0, len(mixes), chunk):
            if stopped is not None and stopped():
                raise CancelledError
            part = mixes[start : start + chunk]
            anchor = self.engine.stored(part.anchor, **self.as_sources)
            shown, ranks = self.shown(*self._labels_of(part)), self.ranks[part.anchor]
            made.append(from_unit(self.mixed(part.choices, anchor, shown, ranks)))
        return torch.cat(made)

    @property
    def as_sources(self) -> dict[str, Any]:
        """What is wanted of sources, for `MixEngine.stored` and `MixEngine.encode`."""
        return {"detail": self.settings.detail > 0, "severity": self.settings.severity}

    def mixed(
        self,
        choices: PolicyDraws,
        anchor: Sources,
        shown: tuple[OrdinalTarget, OrdinalTarget] | None,
        ranks: Tensor,
    ) -> Tensor:
        """Decode mixes as the settings say; see `MixEngine.mix`.

        Args:
            choices: Of B mixes.
            anchor: Their anchors, as `as_sources` says.
            shown: From `shown`.
            ranks: (B,) ranks of the anchors.
        """
        chosen = self.settings
        return self.engine.mix(
            choices, anchor, shown, detail=chosen.detail, detail_with=chosen.detail_with,
            read_from=ranks if chosen.severity == "image" else None,
        )  # fmt: skip

    def block(
        self, count: int, seeds: Sequence[int], stopped: Callable[[], bool] | None = None
    ) -> Pooled:
        """Draw, decode and label a block of mixes, and choose among them where that is asked.

        Args:
            count: How many.
            seeds: Whole numbers that decide all.
            stopped: See `pictures`.
        """
        drawn = count if self.chooser is None else self.chooser.candidates(count)
        mixes = self.draw(drawn, seeds)
        images, target = self.pictures(mixes, stopped), self.targets(mixes)
        made = Pooled(images, target.probs.to(images.device), ~mixes.choices.adjacent)
        return made if self.chooser is None else self.chooser.applied(made, count)

    def to(self, device: torch.device | str) -> None:
        """Move the generator, and who chooses."""
        self.engine.to(device)
        if self.chooser is not None:
            self.chooser.judge.to(device)

    def targets(self, mixes: StoredMixes) -> OrdinalTarget:
        """Return the labels of mixes."""
        return mix_targets(mixes.choices, *self._labels_of(mixes))

    def _labels_of(self, mixes: StoredMixes) -> tuple[OrdinalTarget, OrdinalTarget]:
        """Return what takes part in the labels, of anchors and partners."""
        target, partner = self.engine.store.target, mixes.choices.partner
        return (
            self.labels(target[mixes.anchor], mixes.anchor),
            self.labels(target[partner], partner),
        )

    def shown(
        self, own: OrdinalTarget, theirs: OrdinalTarget
    ) -> tuple[OrdinalTarget, OrdinalTarget] | None:
        """Return the labels that ordinal codes are to be conditioned on, None where they are.

        # paper: codes are conditioned on the votes, and labels are whole ranks. A picture of
        # votes {2, 2, 2, 3, 2} then shows a severity of 2.2 and is labelled 2, on phantoms an
        # error of up to a twentieth of a rank (`results/mixing`); here it shows its label.

        Args:
            own: Labels of anchors, from `labels`.
            theirs: Of partners.
        """
        return None if self.settings.labels == "votes" else (own, theirs)

    def labels(self, target: OrdinalTarget, known: Tensor) -> OrdinalTarget:
        """Return what takes part in a mix's label: whole ranks, or the laws of the votes.

        Args:
            target: Targets of B sources.
            known: (B,) their rows in the store, -1 where there is none.
        """
        if self.settings.labels == "votes":
            return target
        if self.settings.ranks == "majority":
            return majority_target(target)
        return OrdinalTarget.from_labels(self.known_ranks(target.hard, known), target.num_ranks)

    def paired_ranks(self, ranks: Tensor, known: Tensor) -> Tensor:
        """Return the ranks (B,) that pairs are made by: majorities (B,) given, or the consensus."""
        return ranks if self.settings.ranks == "majority" else self.known_ranks(ranks, known)

    def known_ranks(self, ranks: Tensor, known: Tensor) -> Tensor:
        """Return ranks (B,), replaced by the stored images' own where these are known (B,)."""
        return torch.where(known >= 0, self.ranks[known.clamp_min(0)], ranks)
