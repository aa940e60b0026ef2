"""From choices to pictures: gather codes, mix them, decode once.

Only ``generate_and_mix`` needs more than one decoding: the anchor is decoded at the asked rank
and that picture is encoded again, as in the paper. Where the ordinal code says the rank alone,
the generated picture's ordinal code is known without looking at it, so it is made only for the
mixes that take their non-ordinal code from it; the result is the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.codes import Codes, Latents
from dismix.generator.fast_decode import FastDecoder
from dismix.generator.model import Generator
from dismix.generator.trained_on import read_trained_on
from dismix.labels import OrdinalTarget
from dismix.laws import levels_of_ranks
from dismix.mixing.details import Details, DetailWith, detail_of, look_shares, rank_shares
from dismix.mixing.encoding import generator_digest, open_store
from dismix.mixing.fixed_sizes import B, in_fixed_sizes
from dismix.mixing.inference import inference
from dismix.mixing.latents import LatentStore
from dismix.mixing.likeness import Likeness
from dismix.mixing.policies import mix_codes
from dismix.mixing.policy_draws import GENERATE_AND_MIX, PolicyDraws, named_policies
from dismix.mixing.records import Sources, conditions, needs_z
from dismix.mixing.severity import (
    Severity,
    as_read,
    asked_from_read,
    conditioned,
)
from dismix.transfer import onto


class MixEngine:
    """A frozen generator and the codes of its training split.

    Args:
        model: Generator; put into evaluation mode and frozen.
        store: Codes of its training split.
        compiled: Compile the decoder (its weights are bfloat16 on a GPU either way).
        trained_on: Digests of the images that the generator was trained on, as far as known.
        run: The generator's folder, if it has one.

    Example:
        ``MixEngine.load("runs/idrid")`` opens a run with the store beside it.
    """

    def __init__(
        self,
        model: Generator,
        store: LatentStore,
        *,
        compiled: bool = False,
        trained_on: frozenset[str] = frozenset(),
        run: Path | None = None,
    ) -> None:
        self.model, self.store = model.eval().requires_grad_(False), store
        store.require_generator(generator_digest(model), model)
        if store.target.num_ranks != model.config.num_ranks:
            raise DisMixError(
                f"has {store.target.num_ranks} ranks, the generator {model.config.num_ranks}",
                file=store.folder,
                cure="encode the training split again",
            )
        self.compiled, self.trained_on, self.run = compiled, trained_on, run
        self._decode: Callable[[Codes], Tensor] | None = None
        self._details: dict[Severity, Details] = {}
        self._likeness: Likeness | None = None
        self._lay_out()

    @classmethod
    def load(
        cls,
        run: str | Path,
        store: str | Path | None = None,
        *,
        device: torch.device | str = "cpu",
        compiled: bool = False,
    ) -> "MixEngine":
        """Open a run.

        Args:
            run: Run folder of a trained generator.
            store: Folder of its latent store; the one beside the run by default.
            device: Where to put the generator.
            compiled: Compile the decoder.
        """
        model = Generator.load(run, device)
        found = open_store(run, model) if store is None else LatentStore(store)
        seen = read_trained_on(run)
        return cls(model, found, compiled=compiled, trained_on=seen, run=Path(run))

    @property
    def device(self) -> torch.device:
        """Where the generator is."""
        return self.model.post_quant_conv.weight.device

    @property
    def num_ranks(self) -> int:
        """C."""
        return self.model.config.num_ranks

    def to(self, device: torch.device | str) -> None:
        """Move the generator; nothing happens where it is there already."""
        if self.device != torch.empty(0, device=device).device:
            self.model.to(device)
            self._decode = None
            self._lay_out()

    def _lay_out(self) -> None:
        """Give convolutions the layout in which a GPU is fast; pictures follow the weights."""
        if self.device.type == "cuda":
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def policies(self, names: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
        """Return the named policies that this generator can apply.

        A generator that never looks at labels cannot be asked for a rank: groups leave
        ``generate_and_mix`` out, its own name is an error.
        """
        found = named_policies(names)
        if self.can_ask:
            return found
        asked = names if isinstance(names, str) else " ".join(names)
        kept = tuple(name for name in found if name != "generate_and_mix")
        if "generate_and_mix" in asked or not kept:
            raise DisMixError(
                "this generator cannot be asked for a rank", column="generate_and_mix",
                cure="choose another policy, or a generator with conditioned=true",
            )  # fmt: skip
        return kept

    def encode(
        self,
        images: Tensor,
        target: OrdinalTarget,
        *,
        detail: bool = False,
        severity: Severity = "label",
    ) -> Sources:
        """Encode images on the fly.

        Args:
            images: (B, channels, H, W) in [-1, 1].
            target: Their own labels.
            detail: Also return what the codes leave out of them.
            severity: What the codes show; see `dismix.mixing.severity`.
        """
        with inference(self.device):
            levels = target.levels.to(self.device)
            images = images.to(self.device).float()
            latents = self._latents(images)
            ordinal, nonordinal = self.model.quantized(latents, levels)
            z = latents.ordinal.float() if needs_z(self.model) else None
            found = Sources(Codes(ordinal.codes, nonordinal.codes), z)
            if self.can_ask:
                # As precise as a stored one.
                read = self.model.levels_read(latents.ordinal).half().float()
                found = replace(found, read=read)
            if severity == "image":
                found = as_read(found, self.model)
            left = detail_of(images, self.decode(found.codes)) if detail else None
            return replace(found, detail=left)

    def stored(
        self, rows: Tensor, *, detail: bool = False, severity: Severity = "label"
    ) -> Sources:
        """Return codes (B) of stored images, and what they leave out of them where asked.

        Args:
            rows: (B,) long.
            detail: Whether it is asked for.
            severity: What the codes show; see `dismix.mixing.severity`.
        """
        found = self.store.sources(rows, self.model)
        if severity == "image":
            with inference(self.device):
                found = as_read(found, self.model)
        if not detail:
            return found
        return replace(found, detail=self.details(severity).read(rows, self.device))

    @property
    def can_ask(self) -> bool:
        """Whether the generator can be asked for a rank."""
        return conditions(self.model)

    def details(self, severity: Severity = "label") -> Details:
        """Return what the codes leave out of the stored images, opened on first use."""
        if severity not in self._details:
            self._details[severity] = Details(self.store, self.model, severity)
        return self._details[severity]

    @property
    def likeness(self) -> Likeness:
        """How alike the stored images are in appearance, looked at on first use."""
        if self._likeness is None:
            self._likeness = Likeness.of(self)
        return self._likeness

    def showing(self, sources: Sources, target: OrdinalTarget) -> Sources:
        """Return B sources whose ordinal codes are conditioned on B labels instead of their own.

        Those of a generator that never looks at labels stay what they are.
        """
        if not self.can_ask:
            return sources
        with inference(self.device):
            return conditioned(sources, self.model, target.levels)

    def mix(
        self,
        draws: PolicyDraws,
        anchor: Sources,
        shown: tuple[OrdinalTarget, OrdinalTarget] | None = None,
        *,
        detail: float = 0.0,
        detail_with: DetailWith = "look",
        read_from: Tensor | None = None,
    ) -> Tensor:
        """Decode mixes.

        Args:
            draws: Choices of B mixes, on the CPU.
            anchor: Codes of the B anchors.
            shown: Labels (B) of anchors and of partners that take part in the mixes' labels,
                where these are not the votes that the codes were conditioned on.
            detail: Share of the sources' details that mixes get back; anchors must have theirs.
            detail_with: Whether they go with the sources' look or with their part in the label.
            read_from: (B,) ranks of the anchors by label, where sources show what is read in
                them (``severity="image"``, which the anchors' codes must be of); None where
                they show their labels.

        Returns:
            (B, channels, H, W) float32 within [-1, 1].
        """
        with inference(self.device):
            severity: Severity = "label" if read_from is None else "image"
            theirs = self.stored(draws.partner, detail=detail > 0, severity=severity)
            if shown is not None and severity == "label":
                anchor, theirs = self.showing(anchor, shown[0]), self.showing(theirs, shown[1])
            partner = theirs.codes
            rows = (draws.policy == GENERATE_AND_MIX).nonzero().flatten()
            generated = None
            if len(rows):
                where = onto(rows, self.device)
                asked = draws.asked[rows]
                if read_from is not None and anchor.read is not None:
                    ranks = read_from[rows]
                    asked = asked_from_read(anchor.read[where], ranks, asked, self.num_ranks)
                made = self.generated(anchor[where], asked, draws.from_partner[rows])
                generated = Codes(
                    partner.ordinal.index_copy(0, where, made.ordinal),
                    partner.nonordinal.index_copy(0, where, made.nonordinal),
                )
            draws = draws.to(self.device)
            pictures = self.decode(mix_codes(draws, anchor.codes, partner, generated))
            if anchor.detail is None or theirs.detail is None or detail == 0:
                return pictures
            shares = (look_shares if detail_with == "look" else rank_shares)(draws)
            own, other = (detail * share.view(-1, 1, 1, 1) for share in shares)
            return (pictures + own * anchor.detail + other * theirs.detail).clamp(-1, 1)

    def generated(self, anchor: Sources, asked: Tensor, looked_at: Tensor | None = None) -> Codes:
        """Return the codes of anchors generated at other ranks: decoded, then encoded again.

        Args:
            anchor: Codes of B images.
            asked: (B,) ranks, whole or between two.
            looked_at: (B,) bool, where the non-ordinal code will be used; where it is not, a
                rank-only generator saves itself the way through the picture.
        """
        model = self.model
        levels = onto(levels_of_ranks(asked, self.num_ranks), self.device)
        with inference(self.device):
            z = anchor.codes.ordinal if anchor.z is None else anchor.z
            ordinal = model.quantized_ordinal(z, levels).codes
            own = anchor.codes.nonordinal
            if not model.config.rank_only:
                pictures = self.decode(Codes(ordinal, own))
                again, nonordinal = model.quantized(self._latents(pictures), levels)
                return Codes(again.codes, nonordinal.codes)
            rows = torch.arange(len(asked)) if looked_at is None else looked_at.nonzero().flatten()
            if len(rows) == 0:
                return Codes(ordinal, own)
            rows = onto(rows, self.device)
            pictures = self.decode(Codes(ordinal[rows], own[rows]))
            seen = model.quantize(
                self._by_parts(lambda part: [model.nonordinal_latent(part)], pictures)[0]
            ).codes
            return Codes(ordinal, own.index_copy(0, rows, seen.to(own.dtype)))

    def decode(self, codes: Codes) -> Tensor:
        """Decode codes into pictures (B, channels, H, W), float32 within [-1, 1]."""
        if self._decode is None:
            self._decode = FastDecoder(self.model, compiled=self.compiled)
        fast = self._decode
        with inference(self.device):
            # Without indices, which would be picked for nothing.
            plain = Codes(codes.ordinal, codes.nonordinal)
            pictures = self._by_parts(lambda part: [fast(part)], plain)[0]
            return pictures.float().clamp(-1, 1)

    def _latents(self, images: Tensor) -> Latents:
        """Encode pictures on the generator's device, before quantization."""

        def run(part: Tensor) -> Sequence[Tensor]:
            found = self.model.latents(part)
            return [found.ordinal, found.nonordinal]

        return Latents(*self._by_parts(run, images))

    def _by_parts(self, run: Callable[[B], Sequence[Tensor]], batch: B) -> Sequence[Tensor]:
        """Run a batch as it is on a CPU, in fixed sizes elsewhere."""
        fixed = self.device.type != "cpu" or self.compiled
        return in_fixed_sizes(run, batch, self.device) if fixed and len(batch) else run(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decode": None, "_details": {}, "_likeness": None}
