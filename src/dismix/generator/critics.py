"""What learns against the generator in a step of its own."""

import torch
from torch import Tensor, nn

from dismix.generator.discriminator import Discriminator
from dismix.generator.heads import RankClassifier
from dismix.generator.losses import combine, lsgan_discriminator, sor
from dismix.generator.model import Generator
from dismix.generator.recipe import Recipe


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
        fakes: Tensor | None,
        fake_levels: Tensor | None,
        nonordinal: Tensor,
    ) -> dict[str, Tensor]:
        """Return the critics' loss; without images that of the adversaries alone.

        Args:
            images: (B, channels, H, W) real, or None.
            levels: (B, C-1).
            fakes: (B', channels, H, W) made, detached; None without images.
            fake_levels: (B', C-1) what those should show; likewise.
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
