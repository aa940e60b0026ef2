"""What training minimises: the generator's step and the critics' step.

Both are modules whose ``forward`` returns a dict with ``loss`` and named parts, so the loop
knows no term by name and DDP can wrap them. Random choices come in as `StepDraws`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.generator.codes import Codes
from dismix.generator.discriminator import Discriminator
from dismix.generator.guide import Guide, match_colour, view
from dismix.generator.heads import RankClassifier
from dismix.generator.losses import (
    UnitSumWeights,
    combine,
    lsgan_discriminator,
    lsgan_generator,
    sor,
)
from dismix.generator.model import Generator, GeneratorOutput
from dismix.generator.perceptual import LPIPS
from dismix.generator.recipe import TERMS, Recipe
from dismix.generator.step_draws import StepDraws, cropped, levels_of_ranks

CONTROL_TERMS = (
    "control", "guide", "control_realism", "cycle_nonordinal", "cycle_ordinal", "keep", "stay",
)  # fmt: skip
MIX_TERMS = ("mix", "mix_realism")
# Cells a side whose mean colour a decoding at another rank is to keep.
KEPT = 16


class Critics(nn.Module):
    """What learns against the generator: a discriminator, and adversaries that read z_n.

    Args:
        model: The generator, for its shapes.
        recipe: Sizes, and whether there are adversaries.
    """

    def __init__(self, model: Generator, recipe: Recipe) -> None:
        super().__init__()
        ranks = model.config.num_ranks
        self.discriminator = Discriminator(
            ranks,
            model.in_channels,
            width=recipe.discriminator_width,
            num_layers=recipe.discriminator_layers,
            norm=recipe.discriminator_norm,
            conditional=recipe.conditional,
        )
        wanted = recipe.adversary == "confusion" and recipe.reversal > 0
        kinds = recipe.adversary_kinds if wanted else ()
        self.adversaries = nn.ModuleList(
            RankClassifier(ranks, model.config.code_dim, model.latent_size, kind) for kind in kinds
        )
        # paper: learned weights for the generator's terms; ours for the critics' are fixed,
        # since the terms act on disjoint heads and Adam takes out their scale.

    def forward(
        self,
        images: Tensor | None,
        levels: Tensor,
        fakes: Tensor,
        fake_levels: Tensor,
        nonordinal: Tensor,
    ) -> dict[str, Tensor]:
        """Return the critics' loss; without images that of the adversaries alone.

        Args:
            images: (B, channels, H, W) real, or None.
            levels: (B, C-1).
            fakes: (B', channels, H, W) made, detached.
            fake_levels: (B', C-1) what those should show.
            nonordinal: (B, D, h, w) codes, detached.
        """
        if images is None:
            return combine({"critic_adversary": self.read(nonordinal, levels)})
        real = self.discriminator(images, levels)
        fake = self.discriminator(fakes, fake_levels)
        terms = {
            "critic_realism": lsgan_discriminator(real.realism, fake.realism),
            "critic_rank": sor(real.rank_logits, levels),
        }
        if len(self.adversaries):
            terms["critic_adversary"] = self.read(nonordinal, levels)
        return combine(terms)

    def read(self, nonordinal: Tensor, levels: Tensor) -> Tensor:
        """Return the adversaries' mean loss on codes (B, D, h, w) against levels (B, C-1)."""
        losses = [sor(adversary(nonordinal), levels) for adversary in self.adversaries]
        return torch.stack(losses).mean()


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
        absent = {"perceptual": perceptual is None, "guide": guide is None, "mix": guide is None}
        reads = model.config.conditioned and model.config.null_label == "predicted"
        absent |= {"rank_predicted": not reads}
        self.names = [
            name for name in TERMS if recipe.weight(name) > 0 and not absent.get(name, False)
        ]
        if model.quantize_ordinal is None:
            # One codebook: nothing is conditioned, so nothing can be asked for, and the two
            # quantization terms are one.
            gone = ("similarity", "quantize_ordinal", "rank_unlabelled", "rank_predicted")
            names = ["quantize" if n == "quantize_nonordinal" else n for n in self.names]
            self.names = [n for n in names if n not in (*gone, *CONTROL_TERMS, *MIX_TERMS)]
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
        self, images: Tensor, levels: Tensor, draws: StepDraws, reversal: float, realism: float
    ) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """Return the loss dict and, for the critics, made images, their levels and z_n.

        Args:
            images: (B, channels, H, W) in [-1, 1].
            levels: (B, C-1).
            draws: Random choices of the step.
            reversal: Strength of the push against rank in z_n.
            realism: Scale of the realism terms, 0 before the discriminator joins.
        """
        critics = self._judges[0]
        assert isinstance(critics, Critics)
        out = self.model(
            images, levels, draws.uncond, perturbation=draws.perturbation,
            reversal=reversal if self.recipe.adversary == "reversal" else 0.0,
        )  # fmt: skip
        terms = out.terms(levels)
        self._unlabelled(terms, out, levels)
        if len(critics.adversaries):
            prior = self.prior.expand_as(levels)
            terms["rank_nonordinal"] = reversal * critics.read(out.nonordinal.codes, prior)
        terms["reconstruct"] = F.mse_loss(out.reconstruction.float(), images)
        perceptual = self._perceptual[0]
        if perceptual is not None and "perceptual" in self.names:
            crop = self.recipe.perceptual_crop
            pair = (cropped(x, crop, draws.crop) for x in (out.reconstruction, images))
            terms["perceptual"] = perceptual(*pair).mean()
        fakes, shown = out.reconstruction, levels
        if self.controls:
            count = max(1, math.ceil(self.recipe.control_share * len(images)))
            asked = levels_of_ranks(draws.asked[:count], self.model.config.num_ranks)
            made, extra = self._control(images[:count], out, asked, draws)
            terms |= extra
            fakes, shown = torch.cat([fakes, made]), torch.cat([levels, asked])
        self._judge(terms, critics.discriminator, images, fakes, shown, realism)
        if any(name in self.names for name in MIX_TERMS):
            made, shows = self._mixed(terms, out, levels, draws)
            judged = critics.discriminator(made, shows).realism
            terms["mix_realism"] = realism * lsgan_generator(judged)
            fakes, shown = torch.cat([fakes, made]), torch.cat([shown, shows])
        fixed = {name: self.recipe.weight(name) for name in self.names}
        if "quantize" in fixed:
            fixed["quantize"] = self.recipe.weight("quantize_nonordinal")
        shares = self.weigh or fixed
        parts = combine({name: terms[name] for name in self.names}, shares)
        return parts, (fakes.detach(), shown, out.nonordinal.codes.detach())

    def _unlabelled(self, terms: dict[str, Tensor], out: GeneratorOutput, levels: Tensor) -> None:
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
        self, images: Tensor, out: GeneratorOutput, asked: Tensor, draws: StepDraws
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Decode the same image at another rank, let the guide see that, and re-encode it."""
        count = len(asked)
        own = out.latents.ordinal[:count]
        if self.recipe.detach_control:
            own = own.detach()
        ordinal = self.model.quantized_ordinal(own, asked)
        made = self.model.decode(Codes(ordinal.codes, out.nonordinal.codes[:count]))
        terms: dict[str, Tensor] = {}
        guide = self._guide[0]
        if guide is not None and "guide" in self.names:
            terms["guide"] = sor(guide(view(made, draws.views.first(count))), asked)
        if "keep" in self.names:
            coarse, wanted = (F.adaptive_avg_pool2d(x.float(), KEPT) for x in (made, images))
            terms["keep"] = F.mse_loss(coarse, wanted)
        if "stay" in self.names:
            terms["stay"] = (made.float() - images).abs().mean()
        if "cycle_nonordinal" in self.names:
            # Both are pulled, so that z_n forgets what the asked rank changes; the picture
            # itself is given, or the decoder would hide z_n in it.
            again, first = (
                self.model.nonordinal_latent(made.detach()), out.latents.nonordinal[:count],
            )  # fmt: skip
            spread = first.detach().float().var(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)
            terms["cycle_nonordinal"] = ((again - first).float().square() / spread).mean()
        if "cycle_ordinal" in self.names:
            read = self.model.encode(made).ordinal
            terms["cycle_ordinal"] = sor(self.model.ordinal_classifier(read), asked)
        return made, terms

    def _mixed(
        self, terms: dict[str, Tensor], out: GeneratorOutput, levels: Tensor, draws: StepDraws
    ) -> tuple[Tensor, Tensor]:
        """Decode with the z_n of the batch neighbour mixed in: the rank must not follow it."""
        # From the end, so that control and mix do not always share their images.
        count = max(1, math.ceil(self.recipe.mix_share * len(levels)))
        lam, levels = draws.lam[-count:, None, None, None], levels[-count:]
        codes = out.nonordinal.codes
        blend = lam * codes[-count:] + (1 - lam) * codes.roll(1, 0)[-count:]
        made = self.model.decode(Codes(out.ordinal.codes[-count:], blend))
        guide = self._guide[0]
        if guide is not None and "mix" in self.names:
            terms["mix"] = sor(guide(view(made, draws.views.last(count))), levels)
        return made, levels

    def _judge(
        self,
        terms: dict[str, Tensor],
        discriminator: Discriminator,
        images: Tensor,
        fakes: Tensor,
        shown: Tensor,
        realism: float,
    ) -> None:
        """Add the discriminator's terms on reconstructions and, after them, on controls."""
        count = len(images)
        judged = discriminator(fakes, shown)
        terms["realism"] = realism * lsgan_generator(judged.realism[:count])
        terms["rank_fake"] = sor(judged.rank_logits[:count], shown[:count])
        if len(fakes) > count:
            logits = judged.rank_logits[count:]
            if self.recipe.match_colour and "control" in self.names:
                # A tint is the cheapest way to please a reader of rank.
                made = fakes[count:]
                logits = discriminator(match_colour(made, images[: len(made)])).rank_logits
            terms["control"] = sor(logits, shown[count:])
            terms["control_realism"] = realism * lsgan_generator(judged.realism[count:])
