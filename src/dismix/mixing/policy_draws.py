"""Random choices of DisMix's mixing, drawn before anything is decoded.

One row of uniform numbers makes one mix, so the first n mixes of a seed are the same however
many are drawn, and a draw written to a table replays the same picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.mixing.partner_index import DisMixPairing, PartnerIndex, asked_rank
from dismix.registry import near_names
from dismix.transfer import onto

POLICIES = ("ordinal_mix", "nonordinal_mix", "order_swap", "generate_and_mix")
ORDINAL_MIX, NONORDINAL_MIX, ORDER_SWAP, GENERATE_AND_MIX = range(4)
#: Names for several policies; "combined" is the paper's default.
GROUPS = {
    "combined": POLICIES,
    "preserving": ("nonordinal_mix", "order_swap"),
    "interpolating": ("ordinal_mix", "generate_and_mix"),
}
#: Uniform numbers that one mix takes: policy, lam, giver, partner, asked rank.
NUMBERS = 5
# lam lies strictly between the two pictures.
_EDGE = 1e-4


def named_policies(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the policies that a name, a group or a list of both stands for.

    Example:
        >>> named_policies("preserving")
        ('nonordinal_mix', 'order_swap')
        >>> named_policies(["order_swap", "interpolating"])
        ('ordinal_mix', 'order_swap', 'generate_and_mix')
    """
    wanted: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        if name not in GROUPS and name not in POLICIES:
            raise DisMixError(
                f"unknown policy '{name}'", cure=near_names(name, [*POLICIES, *GROUPS])
            )
        wanted |= set(GROUPS.get(name, (name,)))
    if not wanted:
        raise DisMixError("no policy was given", cure="choose one of " + ", ".join(POLICIES))
    return tuple(name for name in POLICIES if name in wanted)


@dataclass(frozen=True)
class PolicyDraws:
    """How B mixes are made, all but their anchors.

    Attributes:
        policy: (B,) long, positions in `POLICIES`.
        lam: (B,) float32 within (0, 1), share of the anchor.
        from_partner: (B,) bool: what is not interpolated comes from the partner (from the
            generated picture for ``generate_and_mix``). For ``order_swap`` it is the ordinal
            code that comes from the partner; the non-ordinal one is then the anchor's.
        partner: (B,) long, rows of the latent store.
        asked: (B,) long, the rank that ``generate_and_mix`` asks for, one that some image
            has.
        adjacent: (B,) bool, false where no image of a neighbouring rank was to be had.
    """

    policy: Tensor
    lam: Tensor
    from_partner: Tensor
    partner: Tensor
    asked: Tensor
    adjacent: Tensor

    def __len__(self) -> int:
        return len(self.policy)

    def __getitem__(self, index: Tensor | slice) -> "PolicyDraws":
        return PolicyDraws(*(getattr(self, field.name)[index] for field in fields(self)))

    def to(self, device: torch.device | str) -> "PolicyDraws":
        """Move all choices to a device."""
        return PolicyDraws(*(onto(getattr(self, field.name), device) for field in fields(self)))


def draw_numbers(count: int, generator: torch.Generator, numbers: int = NUMBERS) -> Tensor:
    """Draw what ``count`` mixes take: (count, numbers) float64 within [0, 1), row by row."""
    return torch.rand(count, numbers, generator=generator, dtype=torch.float64)


def policy_draws(
    numbers: Tensor,
    ranks: Tensor,
    partners: PartnerIndex,
    policies: Sequence[str] = POLICIES,
    *,
    rows: Tensor | None = None,
    alpha: float = 1.0,
    balanced: bool = False,
    pairing: DisMixPairing = "adjacent",
    reach: float = 1.0,
) -> PolicyDraws:
    """Turn uniform numbers into choices.

    Where no image has a neighbouring rank, ``generate_and_mix`` has no rank to ask for and
    becomes ``ordinal_mix`` with the partner that stands in.

    # paper: lam may be anything, and what is not interpolated comes from either image. With
    # ``reach`` below 1 a mix stays near its anchor: lam is at least ``1 - reach``, and what is
    # not interpolated is the anchor's. MixMatch (Berthelot et al. 2019) takes max(lam, 1 - lam)
    # for the same reason; ``order_swap`` has no lam and stays as it is.

    Args:
        numbers: (B, 5) from `draw_numbers`.
        ranks: (B,) long, the anchors' ranks.
        partners: The images that may be partners.
        policies: One of them is drawn uniformly for each mix.
        rows: (B,) rows of the anchors, -1 where unknown.
        alpha: lam follows Beta(alpha, alpha); 1 is uniform.
        balanced: See `PartnerIndex.choose`.
        pairing: Likewise; "near" lets ``generate_and_mix`` ask for the anchor's own rank too.
        reach: Largest share of the partner, above 0; 1 is the paper's.

    Example:
        >>> partners = PartnerIndex(torch.tensor([0, 1, 2]), num_ranks=3)
        >>> numbers = draw_numbers(2, torch.Generator().manual_seed(0))
        >>> policy_draws(numbers, torch.tensor([0, 1]), partners).partner
        tensor([1, 2])
    """
    numbers, ranks = numbers.cpu(), ranks.cpu().long()
    known = torch.tensor([POLICIES.index(name) for name in policies])
    policy = known[(numbers[:, 0] * len(known)).long().clamp(max=len(known) - 1)]
    near = pairing == "near"
    partner, adjacent = partners.choose(ranks, numbers[:, 3], rows, balanced=balanced, near=near)
    policy = torch.where((policy == GENERATE_AND_MIX) & ~adjacent, ORDINAL_MIX, policy)
    lam, from_partner = _beta(numbers[:, 1], alpha), numbers[:, 2] < 0.5
    if reach < 1:
        lam = 1 - reach * (1 - lam)
        from_partner &= policy == ORDER_SWAP
    return PolicyDraws(
        policy=policy,
        lam=lam.clamp(_EDGE, 1 - _EDGE).float(),
        from_partner=from_partner,
        partner=partner,
        asked=asked_rank(ranks, numbers[:, 4], partners.counts, balanced=balanced, near=near),
        adjacent=adjacent,
    )


def _beta(uniform: Tensor, alpha: float) -> Tensor:
    """Return quantiles of Beta(alpha, alpha)."""
    if not alpha > 0:
        raise DisMixError(f"alpha is {alpha:g}", cure="give a number above 0")
    if alpha == 1.0:
        return uniform
    from scipy.special import betaincinv

    return torch.from_numpy(betaincinv(alpha, alpha, uniform.numpy()))
