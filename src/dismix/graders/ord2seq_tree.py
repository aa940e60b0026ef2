"""The dichotomic tree of Ord2Seq (Wang et al., ICCV 2023) and the loss over its levels.

Ranks are split into two neighbouring halves, those again, until each stands alone; naming a
rank becomes a sequence of L = ceil(log2 C) decisions. For five ranks the levels are
{0,1,2}|{3,4}, then {0,1}|{2}|{3}|{4}, then the ranks.

Beyond the release: targets come straight from the tree (the release compares softmax sums,
which favour large groups), and soft labels spread each group's share of the votes over its
members, which for a single grade is the release's multi-hot mask.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.base import full_precision, weighted_mean
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget

Groups = list[list[int]]


def dichotomic_tree(num_ranks: int) -> list[Groups]:
    """Return the groups of ranks of each level, low to high.

    Example:
        >>> for groups in dichotomic_tree(5):
        ...     print(groups)
        [[0, 1, 2], [3, 4]]
        [[0, 1], [2], [3], [4]]
        [[0], [1], [2], [3], [4]]
    """
    levels: list[Groups] = []
    groups: Groups = [list(range(num_ranks))]
    while any(len(group) > 1 for group in groups):
        halves: Groups = []
        for group in groups:
            left = (len(group) + 1) // 2
            halves += [half for half in (group[:left], group[left:]) if half]
        levels.append(halves)
        groups = halves
    return levels


class Tree(nn.Module):
    """The tree as tensors.

    Args:
        num_ranks: C.

    Attributes:
        depth: L.
        sizes: Number of groups of each level.
    """

    def __init__(self, num_ranks: int) -> None:
        super().__init__()
        levels = dichotomic_tree(num_ranks)
        self.num_ranks, self.depth = num_ranks, len(levels)
        self.sizes = [len(groups) for groups in levels]
        for level, groups in enumerate(levels):
            members = torch.zeros(len(groups), num_ranks)
            for number, group in enumerate(groups):
                members[number, group] = 1.0
            self.register_buffer(f"members{level}", members, persistent=False)

    def members(self, level: int) -> Tensor:
        """Return which ranks (G, C) belong to the groups of a level, 0 or 1."""
        found: Tensor = getattr(self, f"members{level}")
        return found

    def shares(self, probs: Tensor, level: int) -> Tensor:
        """Return the share (B, G) of each group in laws (B, C)."""
        return probs @ self.members(level).T

    def targets(self, probs: Tensor) -> Tensor:
        """Return for every rank the share of its group: (B, L, C).

        Example:
            >>> Tree(4).targets(torch.tensor([[0.0, 0.75, 0.25, 0.0]]))
            tensor([[[0.7500, 0.7500, 0.2500, 0.2500],
                     [0.0000, 0.7500, 0.2500, 0.0000]]])
        """
        spread = [self.shares(probs, level) @ self.members(level) for level in range(self.depth)]
        return torch.stack(spread, 1)

    def read_shares(self, logits: Tensor, level: int) -> Tensor:
        """Return the share (..., G) of each group that logits (..., C) of a level tell.

        The loss asks of every member for the share of its whole group, so a group's answer is
        the mean of its members', not their sum.

        Example:
            >>> Tree(3).read_shares(torch.tensor([[2.0, 2.0, -2.0]]), 0)
            tensor([[0.8808, 0.1192]])
        """
        return self.read_log_shares(logits, level).exp()

    def read_log_shares(self, logits: Tensor, level: int) -> Tensor:
        """Return the logarithms of `read_shares`, finite also where all answers are next to 0."""
        members = self.members(level)
        with full_precision(logits):
            answers = F.logsigmoid(logits.float()).unsqueeze(-2)
            inside = answers.masked_fill(members == 0, -torch.inf)
            return inside.logsumexp(-1) - members.sum(1).log()

    def below(self, level: int) -> Tensor:
        """Return which groups (P, G) of a level lie in those of the level before, 0 or 1."""
        members = self.members(level)
        parents = self.members(level - 1) if level else torch.ones_like(members[:1])
        return (parents @ members.T > 0).to(members)

    def next_group(self, logits: Tensor, level: int, alive: Tensor | None = None) -> Tensor:
        """Return the group (B,) of a level with the largest share of the softmax.

        Args:
            logits: (B, C).
            level: Of the groups.
            alive: (B, C), 1 for ranks that earlier decisions left; None is all.
        """
        # paper: the release multiplies logits by the mask; a logit of 0 may still win.
        if alive is not None:
            logits = logits.masked_fill(alive == 0, -torch.inf)
        with full_precision(logits):
            return self.shares(logits.float().softmax(-1), level).argmax(-1)


class Ord2SeqLoss(nn.Module):
    """Binary cross-entropy over ranks, the mean over images and ranks, summed over levels.

    Args:
        num_ranks: C.

    Example:
        >>> Ord2SeqLoss(num_ranks=4)(torch.zeros(1, 2, 4), torch.tensor([2]))
        tensor(1.3863)
    """

    def __init__(self, num_ranks: int) -> None:
        super().__init__()
        self.num_ranks, self.tree = num_ranks, Tree(num_ranks)

    def forward(
        self, logits: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss.

        Args:
            logits: (B, L, C), those of the level-l head at position l.
            target: B targets.
            weights: (B,) or None.
        """
        law = law_of(target, self.num_ranks, weights)
        sizes = {"B": len(law), "L": self.tree.depth, "C": self.num_ranks}
        require_shape("logits", logits, sizes)
        with full_precision(logits):
            wanted = self.tree.targets(law.probs).clamp(0.0, 1.0)
            each = F.binary_cross_entropy_with_logits(logits.float(), wanted, reduction="none")
            return weighted_mean(each.mean(2).sum(1), weights)
