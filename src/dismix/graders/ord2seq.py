"""Ord2Seq (Wang et al., ICCV 2023): a rank as a sequence of finer and finer decisions.

A transformer reads the picture's feature map and names, level by level, the half of the scale
that the rank lies in. How ours differs: see `dismix.graders.ord2seq_tree`; no unused second
transformer; grades come from the law over all paths of the tree instead of the greedy one; the
transformer's learning rate has a bound, since it does not learn at those that suit small backbones.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, Stage
from dismix.graders.choices import bounded
from dismix.graders.grades import entropy
from dismix.graders.ord2seq_tree import Ord2SeqLoss, Tree
from dismix.graders.registry import Preset, register_grader
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class Ord2SeqConfig(GraderConfig):
    """Settings of Ord2Seq.

    Attributes:
        dim: Width of the transformer; None takes the backbone's, up to 512.
        heads: Attention heads; must divide the width.
        widening: Width of the feed-forward layers as a multiple.
        encoder_layers: Layers over the picture.
        decoder_layers: Layers over the sequence.
        dropout: In the transformer.
        teacher: What the decoder is shown in training: the path of one vote, a "sample", or the
            "mean" embedding of the votes' groups, which tells later levels what they should see.
        probabilities: The law over all paths of the "tree", or the "softmax" of the last level's
            logits after deciding greedily (the authors').
        warmup: Share of the steps in which the learning rate grows from zero.
        transformer_lr: Largest learning rate under Adam of a transformer of width 512; one that is
            half as wide may take twice as much (Yang et al., 2022, "Tensor Programs V").
    """

    dim: int | None = bounded(None, least=1)
    heads: int = bounded(8, least=1)
    widening: int = bounded(4, least=1)
    encoder_layers: int = bounded(2, least=1)
    decoder_layers: int = bounded(2, least=1)
    dropout: float = bounded(0.1, least=0, below=1)
    teacher: Literal["sample", "mean"] = "sample"
    probabilities: Literal["tree", "softmax"] = "tree"
    warmup: float = bounded(0.05, least=0, below=1)
    transformer_lr: float = bounded(3e-4, above=0)


class DecisionDecoder(nn.Module):
    """Encoder over picture tokens, decoder over decisions, one linear head for each level.

    Args:
        num_ranks: C.
        in_dim: Channels of the feature map.
        config: Sizes.
    """

    def __init__(self, num_ranks: int, in_dim: int, config: Ord2SeqConfig) -> None:
        super().__init__()
        self.tree = Tree(num_ranks)
        dim = config.dim or min(in_dim // config.heads * config.heads, 512)
        if dim < 1 or dim % config.heads:
            raise DisMixError(
                f"a width of {dim} cannot be shared by {config.heads} heads",
                column="dim",
                cure="choose a multiple of heads",
            )
        sizes = (dim, config.heads, config.widening * dim, config.dropout)
        self.enter = nn.Linear(in_dim, dim)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, batch_first=True),
            config.encoder_layers,
            nn.LayerNorm(dim),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes, batch_first=True),
            config.decoder_layers,
            nn.LayerNorm(dim),
        )
        # No positional encoding: groups of different levels are different symbols.
        self.start = nn.Parameter(torch.randn(dim))
        self.tokens = nn.ParameterList(torch.randn(size, dim) for size in self.tree.sizes[:-1])
        self.heads = nn.ModuleList(nn.Linear(dim, num_ranks) for _ in self.tree.sizes)

    def encode(self, features: Tensor) -> Tensor:
        """Return tokens (B, h*w, dim) of a feature map (B, d, h, w)."""
        tokens: Tensor = self.encoder(self.enter(features.flatten(2).transpose(1, 2)))
        return tokens

    def teach(self, tokens: Tensor, probs: Tensor) -> Tensor:
        """Return logits (B, L, C) when every earlier decision is the votes' own.

        Args:
            tokens: Of the pictures.
            probs: Laws (B, C) whose groups the decoder is shown.
        """
        steps = [self.start.expand(tokens.shape[0], -1)]
        for level, table in enumerate(self.tokens):
            steps.append(self.tree.shares(probs, level).to(table.dtype) @ table)
        read = self._decode(torch.stack([step.to(tokens.dtype) for step in steps], 1), tokens)
        logits = [head(read[:, level]) for level, head in enumerate(self.heads)]
        return torch.stack(logits, 1)

    def decide(self, tokens: Tensor) -> Tensor:
        """Return logits (B, L, C) when every earlier decision is the decoder's own, greedily."""
        steps = [self.start.expand(tokens.shape[0], -1)]
        found: list[Tensor] = []
        alive: Tensor | None = None
        for level, head in enumerate(self.heads):
            prefix = torch.stack([step.to(tokens.dtype) for step in steps], 1)
            found.append(head(self._decode(prefix, tokens)[:, -1]))
            if level + 1 < self.tree.depth:
                group = self.tree.next_group(found[-1], level, alive)
                alive = self.tree.members(level)[group]
                steps.append(self.tokens[level][group])
        return torch.stack(found, 1)

    def laws(self, tokens: Tensor) -> Tensor:
        """Return laws (B, C): every group shares out what it got, along all paths of the tree."""
        # paper: one path is followed, always to the group with the largest sum of a softmax. Sums
        # favour large groups: where {0, 1} has 45 per cent and {2} has 55 the former wins. And
        # what comes out at the end of one path is nearly certain of it, whatever the doubt was.
        batch, tree = tokens.shape[0], self.tree
        law = tokens.new_ones(batch, 1, dtype=torch.float32)
        # (P, steps, dim): what the decoder is shown on its way to each group.
        paths = self.start.expand(1, 1, -1)
        for level, head in enumerate(self.heads):
            count = len(paths)
            steps = paths.unsqueeze(0).expand(batch, -1, -1, -1).flatten(0, 1)
            many = tokens.unsqueeze(1).expand(-1, count, -1, -1).flatten(0, 1)
            logits = head(self._decode(steps.to(tokens.dtype), many)[:, -1])
            inside = tree.below(level)
            told = tree.read_log_shares(logits.unflatten(0, (-1, count)), level)
            shares = told.masked_fill(inside == 0, -torch.inf).softmax(-1)
            law = (law.unsqueeze(-1) * shares).sum(1)
            if level + 1 < tree.depth:
                parent = inside.argmax(0)
                paths = torch.cat([paths[parent], self.tokens[level].unsqueeze(1)], 1)
        return law

    def _decode(self, steps: Tensor, tokens: Tensor) -> Tensor:
        length = steps.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=steps.device).triu(1)
        # Said rather than found out, which would make a GPU wait for the answer.
        read: Tensor = self.decoder(steps, tokens, tgt_mask=later, tgt_is_causal=True)
        return read


_REFERENCE = Preset(
    "pvt_v2_b3", epochs=100, batch_size=32, weight_decay=0.0, schedule="step",
    hparams={
        "dim": 512, "encoder_layers": 6, "decoder_layers": 6, "probabilities": "softmax",
        "teacher": "mean",
    },
)  # fmt: skip


@register_grader(
    "ord2seq", "a sequence of halvings of the scale", reference=_REFERENCE,
    # Said, so that records tell it from what was read along one path before.
    dismix=Preset(hparams={"probabilities": "tree", "teacher": "sample"}),
)  # fmt: skip
class Ord2Seq(Grader):
    """Feature map, transformer, one decision for each level of the tree.

    The decision is the most probable rank.
    """

    config_type: ClassVar[type[GraderConfig]] = Ord2SeqConfig

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.decoder = DecisionDecoder(num_ranks, backbone.out_dim, self.config)
        most = self.config.transformer_lr * 512 / len(self.decoder.start)
        self.stages = (Stage("fit", 1.0, warmup=self.config.warmup, lr_most={"decoder": most}),)
        self.loss = Ord2SeqLoss(num_ranks)

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the loss over all levels, earlier decisions being the votes' own."""
        tokens = self.decoder.encode(self.backbone.forward_map(images))
        shown = target.probs
        if self.config.teacher == "sample":
            vote = shown.multinomial(1, generator=self.draws)
            shown = torch.zeros_like(shown).scatter(1, vote, 1.0)
        return {"loss": self.loss(self.decoder.teach(tokens, shown), target, weights)}

    def grade(self, images: Tensor) -> Grades:
        """Read the most probable rank; uncertainty is the entropy of the law in nats."""
        tokens = self.decoder.encode(self.backbone.forward_map(images))
        if self.config.probabilities == "tree":
            probs = self.decoder.laws(tokens)
        else:
            probs = self.decoder.decide(tokens)[:, -1].float().softmax(-1)
        return Grades.from_probabilities(probs, uncertainty=entropy(probs))
