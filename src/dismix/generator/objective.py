"""What training minimises: the generator's step and the critics' step.

Both are modules whose ``forward`` returns a dict with ``loss`` and named parts, so the loop
knows no term by name and DDP can wrap them. Random choices come in as `StepDraws`.
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.generator.codes import Codes
from dismix.generator.discriminator import Discriminator
from dismix.generator.guide import Guide, ViewDraws, draw_views, match_colour, view
from dismix.generator.heads import Perturbation, RankClassifier
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

CONTROL_TERMS = (
    "control", "guide", "control_realism", "cycle_nonordinal", "cycle_ordinal", "keep",
)  # fmt: skip
# Cells a side whose mean colour a decoding at another rank is to keep.
KEPT = 16


@dataclass(frozen=True)
class StepDraws:
    """The random choices of one step.

    Attributes:
        uncond: (B,) bool, images encoded without their label.
        asked: (B,) ranks at which images are decoded again.
        views: How the guide sees those decodings.
        gains: (B, 3) brightness gains of the channels.
        crop: Place of the crop that LPIPS compares, two shares of the room there is.
        perturbation: What the decoder does not see of z_n, or None.
    """

    uncond: Tensor
    asked: Tensor
    views: ViewDraws
    gains: Tensor
    crop: tuple[float, float] = (0.0, 0.0)
    perturbation: Perturbation | None = None

    def shard(self, rank: int, world_size: int) -> "StepDraws":
        """Return the part of process ``rank``, which holds every ``world_size``-th image."""
        part = slice(rank, None, world_size)
        noise = self.perturbation
        if noise is not None:
            noise = replace(
                noise,
                hidden=None if noise.hidden is None else noise.hidden[part],
                noise=None if noise.noise is None else noise.noise[part],
            )
        views = ViewDraws(self.views.matrix[part], self.views.noise[part], self.views.seed + rank)
        return StepDraws(
            self.uncond[part], self.asked[part], views, self.gains[part], self.crop, noise
        )

    def to(self, device: torch.device) -> "StepDraws":
        """Move to a device."""
        return replace(self, uncond=self.uncond.to(device), asked=self.asked.to(device))


def draw_step(model: Generator, batch: int, generator: torch.Generator) -> StepDraws:
    """Draw the choices of a step for a batch of images."""
    uncond = model.draw_uncond(batch, generator)
    asked = torch.randint(model.config.num_ranks, (batch,), generator=generator)
    gains = torch.randn(batch, 3, generator=generator)
    top, left = torch.rand(2, generator=generator).tolist()
    perturbation = model.draw_perturbation(batch, generator)
    views = draw_views(batch, generator)
    return StepDraws(uncond, asked, views, gains, (top, left), perturbation)


def with_gains(images: Tensor, gains: Tensor, strength: float) -> Tensor:
    """Make channels brighter or darker; black stays black.

    Args:
        images: (B, channels, H, W) in [-1, 1].
        gains: (B, 3) standard normal draws.
        strength: Deviation of the logarithm of the gains; 0 changes nothing.

    Example:
        >>> with_gains(torch.tensor([-1.0, 0.0]).view(1, 1, 1, 2), torch.ones(1, 3), 0.1).flatten()
        tensor([-1.0000,  0.1052])
    """
    if not strength:
        return images
    gain = torch.exp(strength * gains[:, : images.shape[1]].to(images))[:, :, None, None]
    return ((images + 1) * gain - 1).clamp(max=1.0)


def cropped(images: Tensor, size: int, place: tuple[float, float]) -> Tensor:
    """Return the crop of images (B, channels, H, W) at a place; a size of 0 crops nothing.

    Example:
        >>> cropped(torch.arange(16.0).view(1, 1, 4, 4), 2, (1.0, 0.0)).flatten()
        tensor([ 8.,  9., 12., 13.])
    """
    height, width = images.shape[-2:]
    if not size or size >= min(height, width):
        return images
    top, left = round(place[0] * (height - size)), round(place[1] * (width - size))
    return images[..., top : top + size, left : left + size]


def levels_of_ranks(ranks: Tensor, num_ranks: int) -> Tensor:
    """Return the levels (B, C-1) of whole-number ranks (B,).

    Example:
        >>> levels_of_ranks(torch.tensor([0, 2]), 4)
        tensor([[0., 0., 0.],
                [1., 1., 0.]])
    """
    return (ranks[:, None] > torch.arange(num_ranks - 1, device=ranks.device)).float()


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
        absent = {"perceptual": perceptual is None, "guide": guide is None}
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
            self.names = [n for n in names if n not in (*gone, *CONTROL_TERMS)]
        self.weigh = UnitSumWeights(self.names) if recipe.learned_weights else None

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
        if "cycle_nonordinal" in self.names:
            again = self.model.nonordinal_latent(made)
            codes = out.nonordinal.codes[: len(made)].detach()
            spread = codes.var(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)
            terms["cycle_nonordinal"] = ((again.float() - codes).square() / spread).mean()
        if "cycle_ordinal" in self.names:
            read = self.model.encode(made).ordinal
            terms["cycle_ordinal"] = sor(self.model.ordinal_classifier(read), asked)
        return made, terms

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
