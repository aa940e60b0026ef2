"""What the generator minimises in a step; `dismix.generator.critics` is the other side.

Both are modules whose ``forward`` returns a dict with ``loss`` and named parts, so the loop
knows no term by name and DDP can wrap them. Random choices come in as `StepDraws`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.generator.codes import Codes
from dismix.generator.critics import Critics
from dismix.generator.discriminator import Discriminator
from dismix.generator.guide import Guide, match_colour, view
from dismix.generator.losses import (
    UnitSumWeights,
    combine,
    lsgan_generator,
    sor,
)
from dismix.generator.model import Analysis, Generator
from dismix.generator.perceptual import LPIPS
from dismix.generator.recipe import Recipe
from dismix.generator.step_draws import StepDraws, cropped
from dismix.generator.terms import ONE_CODEBOOK, PHASE_TERMS, TERMS, Phase
from dismix.laws import levels_of_ranks

CONTROL_TERMS = (
    "control", "guide", "control_realism", "cycle_nonordinal", "cycle_ordinal", "keep", "stay",
)  # fmt: skip
MIX_TERMS = ("mix", "mix_realism", "mix_keep")
# Cells a side whose mean colour a decoding at another rank is to keep.
KEPT = 16


class GeneratorObjective(nn.Module):
    """The generator's terms.

    Args:
        model: The generator that learns.
        critics: Judges of this step; their parameters are not registered here.
        recipe: Weights and strengths.
        perceptual: LPIPS, or None to leave that term out.
        guide: Frozen grader, or None to leave that term out.
        prior: (C-1,) mean levels of the training split, what a blind adversary would say.
    """

    prior: Tensor

    def __init__(
        self,
        model: Generator,
        critics: Critics,
        recipe: Recipe,
        perceptual: LPIPS | None,
        prior: Tensor,
        guide: Guide | None = None,
    ) -> None:
        super().__init__()
        self.model, self.recipe = model, recipe
        # In a list, so that they are neither this module's parameters nor in its state.
        self._judges: list[nn.Module] = [critics]
        self._perceptual = [perceptual]
        self._guide = [guide]
        self.register_buffer("prior", prior, persistent=False)
        absent = {"perceptual": perceptual is None}
        absent |= dict.fromkeys(("guide", "mix", "seen"), guide is None)
        reads = model.config.conditioned and model.config.null_label == "predicted"
        absent |= {"rank_predicted": not reads}
        self.names = [
            name for name in TERMS if recipe.weight(name) > 0 and not absent.get(name, False)
        ]
        ordinal = model.quantize_ordinal
        if ordinal is None or not model.config.conditioned:
            # Nothing is conditioned, so no rank can be asked for.
            self.names = [name for name in self.names if name not in CONTROL_TERMS]
        if ordinal is None:
            # One codebook: the two quantization terms are one.
            gone = ("similarity", "quantize_ordinal", "rank_unlabelled", "rank_predicted")
            names = [ONE_CODEBOOK if n == "quantize_nonordinal" else n for n in self.names]
            self.names = [n for n in names if n not in (*gone, *MIX_TERMS)]
        self.weigh = UnitSumWeights(self.names) if recipe.learned_weights else None

    @property
    def guide(self) -> Guide | None:
        """The frozen grader, if there is one."""
        return self._guide[0]

    @property
    def controls(self) -> bool:
        """Whether any term asks for a second decoding, at another rank."""
        return any(name in self.names for name in CONTROL_TERMS)

    def forward(
        self,
        images: Tensor,
        levels: Tensor,
        draws: StepDraws,
        reversal: Tensor,
        realism: Tensor,
        phase: Phase = "part",
    ) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """Return the loss dict and, for the critics, made images, their levels and z_n.

        Args:
            images: (B, channels, H, W) in [-1, 1].
            levels: (B, C-1).
            draws: Random choices of the step.
            reversal: 0-d, strength of the push against rank in z_n.
            realism: 0-d, scale of the realism terms, 0 before the discriminator joins.
            phase: What the epoch is for, see `Recipe.phase`.
        """
        critics = self._judges[0]
        assert isinstance(critics, Critics)
        plain = phase == "plain"
        # Polishing takes the codes as they are.
        with torch.set_grad_enabled(torch.is_grad_enabled() and phase != "polish"):
            out = self.model(
                images, levels, draws.uncond,
                reversal=reversal if self.recipe.adversary == "reversal" else 0.0,
            )  # fmt: skip
            terms = out.terms(levels)
            self._unlabelled(terms, out, levels)
            if len(critics.adversaries) and not plain:
                prior = self.prior.expand_as(levels)
                terms["rank_nonordinal"] = reversal * critics.read(out.nonordinal.codes, prior)
            asked, shown = self._asked(out, levels, draws, plain)
        # All pictures of the step in one call: small batches leave a card waiting.
        pictures = self.model.decode(Codes.cat([*asked.values()]))
        made = dict(
            zip(asked, torch.split(pictures, [len(c) for c in asked.values()]), strict=True)
        )
        self._fidelity(terms, images, made["own"], draws)
        if "control" in made:
            self._control(terms, images, out, made["control"], shown["control"])
        if "mix" in made and "mix_keep" in self.names:
            terms["mix_keep"] = self._mix_keep(images, made["mix"], draws)
        self._guided(terms, made, shown, draws)
        targets = torch.cat([*shown.values()])
        if not plain:
            self._judge(terms, critics.discriminator, images, made, pictures, targets, realism)
        fixed = {name: self.recipe.weight(name) for name in self.names}
        if ONE_CODEBOOK in fixed:
            fixed[ONE_CODEBOOK] = self.recipe.weight("quantize_nonordinal")
        names = [name for name in self.names if name in PHASE_TERMS[phase]]
        parts = combine({name: terms[name] for name in names}, self.weigh or fixed)
        return parts, (pictures.detach(), targets, out.nonordinal.codes.detach())

    def _asked(
        self, out: Analysis, levels: Tensor, draws: StepDraws, plain: bool
    ) -> tuple[dict[str, Codes], dict[str, Tensor]]:
        """Return the codes to decode, and the levels (b, C-1) that each should show.

        "own" is the images themselves; "control" the same images at another rank; "mix" with
        the z_n of the batch neighbour mixed in, which the rank must not follow.
        """
        own, drawn = out.codes, draws.perturbation
        if drawn is not None:
            own = Codes(own.ordinal, drawn(own.nonordinal))
        asked, shown = {"own": own}, {"own": levels}
        if plain:
            return asked, shown
        if self.controls:
            count = max(1, math.ceil(self.recipe.control_share * len(levels)))
            z = out.latents.ordinal[:count]
            if self.recipe.detach_control:
                z = z.detach()
            ranks = draws.asked[:count]
            shown["control"] = levels_of_ranks(ranks, self.model.config.num_ranks)
            ordinal = self.model.quantized_ordinal(z, shown["control"])
            asked["control"] = Codes(ordinal.codes, out.nonordinal.codes[:count])
        if any(name in self.names for name in MIX_TERMS):
            # From the end, so that control and mix do not always share their images.
            count = max(1, math.ceil(self.recipe.mix_share * len(levels)))
            lam, codes = draws.lam[-count:, None, None, None], out.nonordinal.codes
            blend = lam * codes[-count:] + (1 - lam) * codes.roll(draws.shift, 0)[-count:]
            shown["mix"] = levels[-count:]
            asked["mix"] = Codes(out.ordinal.codes[-count:], blend)
        return asked, shown

    def _fidelity(
        self, terms: dict[str, Tensor], images: Tensor, rebuilt: Tensor, draws: StepDraws
    ) -> None:
        """Add the terms of the reconstruction."""
        terms["reconstruct"] = F.mse_loss(rebuilt.float(), images)
        perceptual = self._perceptual[0]
        if perceptual is not None and "perceptual" in self.names:
            crop = self.recipe.perceptual_crop
            pair = (cropped(x, crop, draws.crop) for x in (rebuilt, images))
            terms["perceptual"] = perceptual(*pair).mean()
        guide = self._guide[0]
        if guide is not None and "seen" in self.names:
            with torch.no_grad():
                wanted = guide.maps(images)
            apart = [
                (a.float() - b.float()).square().mean() / b.float().var().clamp_min(1e-6)
                for a, b in zip(guide.maps(rebuilt), wanted, strict=True)
            ]
            terms["seen"] = torch.stack(apart).mean()

    def _unlabelled(self, terms: dict[str, Tensor], out: Analysis, levels: Tensor) -> None:
        """Add the terms on z_o as held-out images are encoded: without a label."""
        branch = self.model.quantize_ordinal
        if branch is None:
            return
        if "rank_unlabelled" in self.names:
            blind = branch(out.latents.ordinal)
            terms["rank_unlabelled"] = sor(self.model.ordinal_classifier(blind.codes), levels)
            terms["quantize_ordinal"] = 0.5 * (terms["quantize_ordinal"] + blind.loss)
        if "rank_predicted" in self.names and branch.condition is not None:
            logits = branch.condition.predicted_logits(out.latents.ordinal.float())
            assert logits is not None
            terms["rank_predicted"] = sor(logits, levels)

    def _control(
        self,
        terms: dict[str, Tensor],
        images: Tensor,
        out: Analysis,
        made: Tensor,
        asked: Tensor,
    ) -> None:
        """Add the terms of decodings at another rank, other than who reads them."""
        count = len(made)
        images = images[:count]
        if "keep" in self.names:
            coarse, wanted = (F.adaptive_avg_pool2d(x.float(), KEPT) for x in (made, images))
            terms["keep"] = F.mse_loss(coarse, wanted)
        if "stay" in self.names:
            terms["stay"] = (made.float() - images).abs().mean()
        if "cycle_nonordinal" in self.names:
            # Both are pulled, so that z_n forgets what the asked rank changes; the picture
            # itself is given, or the decoder would hide z_n in it.
            again = self.model.nonordinal_latent(made.detach())
            first = out.latents.nonordinal[:count]
            spread = first.detach().float().var(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)
            terms["cycle_nonordinal"] = ((again - first).float().square() / spread).mean()
        if "cycle_ordinal" in self.names:
            read = self.model.codes_of(made).ordinal
            terms["cycle_ordinal"] = sor(self.model.ordinal_classifier(read), asked)

    def _mix_keep(self, images: Tensor, made: Tensor, draws: StepDraws) -> Tensor:
        """Return how far mixes are from the coarse look of those whose z_n they show.

        A spatial ordinal code could otherwise carry the look as well.
        """
        count = len(made)
        lam, coarse = draws.lam[-count:, None, None, None], F.adaptive_avg_pool2d(images, KEPT)
        wanted = lam * coarse[-count:] + (1 - lam) * coarse.roll(draws.shift, 0)[-count:]
        return F.mse_loss(F.adaptive_avg_pool2d(made.float(), KEPT), wanted)

    def _guided(
        self,
        terms: dict[str, Tensor],
        made: dict[str, Tensor],
        shown: dict[str, Tensor],
        draws: StepDraws,
    ) -> None:
        """Let the guide read decodings at another rank and mixes, in one call."""
        guide, read_as = self._guide[0], {"control": "guide", "mix": "mix"}
        views = {"control": draws.views.first, "mix": draws.views.last}
        read = [n for n in made if n in read_as and read_as[n] in self.names]
        if guide is None or not read:
            return
        logits = guide(torch.cat([view(made[n], views[n](len(made[n]))) for n in read]))
        for name, part in zip(read, logits.split([len(made[n]) for n in read]), strict=True):
            terms[read_as[name]] = sor(part, shown[name])

    def _judge(
        self,
        terms: dict[str, Tensor],
        discriminator: Discriminator,
        images: Tensor,
        made: dict[str, Tensor],
        pictures: Tensor,
        targets: Tensor,
        realism: Tensor,
    ) -> None:
        """Add the discriminator's terms on all pictures of the step."""
        judged = discriminator(pictures, targets)
        sizes = [len(part) for part in made.values()]
        real = dict(zip(made, torch.split(judged.realism, sizes), strict=True))
        named = {"own": "realism", "control": "control_realism", "mix": "mix_realism"}
        for name, part in real.items():
            if name in named:
                terms[named[name]] = realism * lsgan_generator(part)
        count = len(images)
        terms["rank_fake"] = sor(judged.rank_logits[:count], targets[:count])
        if "control" in self.names and "control" in made:
            count = len(made["control"])
            read = dict(zip(made, torch.split(judged.rank_logits, sizes), strict=True))
            asked = dict(zip(made, torch.split(targets, sizes), strict=True))["control"]
            logits = read["control"]
            if self.recipe.match_colour:
                # A tint is the cheapest way to please a reader of rank.
                logits = discriminator(match_colour(made["control"], images[:count])).rank_logits
            terms["control"] = sor(logits, asked)
