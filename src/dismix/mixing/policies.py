"""The paper's four mixing policies (its Table 1) as pure functions on codes.

=================  ========================  =======================  ==========================
policy             ordinal code              non-ordinal code         label
=================  ========================  =======================  ==========================
ordinal_mix        lam o_i + (1 - lam) o_j   n_i or n_j               lam r_i + (1 - lam) r_j
nonordinal_mix     o_i or o_j                lam n_i + (1 - lam) n_j  rank of the ordinal giver
order_swap         o_j, or o_i               n_i, or n_j              rank of the ordinal giver
generate_and_mix   lam o_i + (1 - lam) o_x'  n_i or n_x'              lam r_i + (1 - lam) r'
=================  ========================  =======================  ==========================

``x'`` is the anchor decoded at a neighbouring rank r' and encoded again. Interpolated codes go
to the decoder as they are; they are not quantized again.
"""

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.labels import OrdinalTarget
from dismix.mixing.policy_draws import (
    GENERATE_AND_MIX,
    NONORDINAL_MIX,
    ORDER_SWAP,
    ORDINAL_MIX,
    PolicyDraws,
)


def ordinal_mix(first: Codes, second: Codes, lam: Tensor, from_second: Tensor) -> Codes:
    """Interpolate severity; appearance is one of the two.

    Args:
        first: Codes of B images.
        second: Codes of their partners.
        lam: (B,) share of the first.
        from_second: (B,) bool, the non-ordinal code is the second's.

    Example:
        >>> one, two = (Codes(torch.full((1, 1, 1, 1), v), torch.full((1, 1, 1, 1), v))
        ...             for v in (1.0, 2.0))
        >>> mixed = ordinal_mix(one, two, torch.tensor([0.25]), torch.tensor([True]))
        >>> mixed.ordinal.item(), mixed.nonordinal.item()
        (1.75, 2.0)
    """
    return Codes(
        lerp(first.ordinal, second.ordinal, lam),
        either(first.nonordinal, second.nonordinal, from_second),
    )


def nonordinal_mix(first: Codes, second: Codes, lam: Tensor, from_second: Tensor) -> Codes:
    """Interpolate appearance; severity is one of the two.

    Args:
        first: Codes of B images.
        second: Codes of their partners.
        lam: (B,) share of the first.
        from_second: (B,) bool, the ordinal code (and so the label) is the second's.
    """
    return Codes(
        either(first.ordinal, second.ordinal, from_second),
        lerp(first.nonordinal, second.nonordinal, lam),
    )


def order_swap(first: Codes, second: Codes, from_second: Tensor) -> Codes:
    """Give one image the other's severity.

    Args:
        first: Codes of B images.
        second: Codes of their partners.
        from_second: (B,) bool, the ordinal code is the second's and the non-ordinal the first's.
    """
    return Codes(
        either(first.ordinal, second.ordinal, from_second),
        either(first.nonordinal, second.nonordinal, ~from_second),
    )


def generate_and_mix(anchor: Codes, generated: Codes, lam: Tensor, from_generated: Tensor) -> Codes:
    """Mix severity between an anchor and the same anchor generated at a neighbouring rank.

    Args:
        anchor: Codes of B images.
        generated: Codes of the generated pictures, see `MixEngine.generated`.
        lam: (B,) share of the anchor.
        from_generated: (B,) bool, the non-ordinal code is the generated picture's.
    """
    return ordinal_mix(anchor, generated, lam, from_generated)


def mix_codes(draws: PolicyDraws, anchor: Codes, partner: Codes, generated: Codes | None) -> Codes:
    """Apply each row's policy.

    Args:
        draws: Choices of B mixes, on the codes' device.
        anchor: Codes of the B anchors.
        partner: Codes of the B partners.
        generated: Codes of B generated pictures; only the rows of ``generate_and_mix`` are
            looked at, so None will do when there are none.
    """
    lam, swapped = draws.lam, draws.from_partner
    second = partner
    if generated is not None:
        asks = draws.policy == GENERATE_AND_MIX
        second = Codes(
            either(partner.ordinal, generated.ordinal, asks),
            either(partner.nonordinal, generated.nonordinal, asks),
        )
    made = {
        ORDINAL_MIX: ordinal_mix(anchor, second, lam, swapped),
        NONORDINAL_MIX: nonordinal_mix(anchor, second, lam, swapped),
        ORDER_SWAP: order_swap(anchor, second, swapped),
    }
    ordinal, nonordinal = made[ORDINAL_MIX].ordinal, made[ORDINAL_MIX].nonordinal
    for policy in (NONORDINAL_MIX, ORDER_SWAP):
        chosen = draws.policy == policy
        ordinal = either(ordinal, made[policy].ordinal, chosen)
        nonordinal = either(nonordinal, made[policy].nonordinal, chosen)
    return Codes(ordinal, nonordinal)


def mix_targets(draws: PolicyDraws, anchor: OrdinalTarget, partner: OrdinalTarget) -> OrdinalTarget:
    """Return the labels of mixes.

    With targets of whole ranks (majorities, as in the paper) interpolated labels are the
    two-point law with the mixed rank as its mean; with vote shares they are the mixture of both
    laws, which has the same mean.

    Args:
        draws: Choices of B mixes.
        anchor: Targets of the anchors; majorities are one-hot rows.
        partner: Targets of the partners.

    Example:
        >>> one, two = (OrdinalTarget.from_labels([r], 4) for r in (1, 2))
        >>> draws = PolicyDraws(*(torch.tensor([v]) for v in (0, 0.25, True, 5, 0, True)))
        >>> mix_targets(draws, one, two).rank
        tensor([1.7500])
    """
    if anchor.num_ranks != partner.num_ranks:
        raise DisMixError(
            f"targets have {anchor.num_ranks} ranks, the generator {partner.num_ranks}",
            cure="give targets of the generator's ranks",
        )
    num_ranks = anchor.num_ranks
    asked = OrdinalTarget.from_labels(draws.asked.clamp(0, num_ranks - 1), num_ranks).probs
    asks = (draws.policy == GENERATE_AND_MIX)[:, None]
    second = torch.where(asks, asked, partner.probs)
    weight = label_shares(draws)[:, None]
    probs = weight * anchor.probs + (1 - weight) * second
    probs = _two_point(probs, (anchor.probs == 1).any(1) & (second == 1).any(1))
    return OrdinalTarget(probs, torch.zeros_like(anchor.clean))


def label_shares(draws: PolicyDraws) -> Tensor:
    """Return the anchor's share (B,) of the labels of mixes: 0 or 1 where a rank is kept."""
    keeps = (draws.policy == NONORDINAL_MIX) | (draws.policy == ORDER_SWAP)
    return torch.where(keeps, (~draws.from_partner).float(), draws.lam)


def _two_point(probs: Tensor, whole: Tensor) -> Tensor:
    """Replace laws (B, C) between whole ranks (B,) by the two-point law of the same mean."""
    ranks = torch.arange(probs.shape[1], device=probs.device)
    mean = (probs * ranks).sum(1).clamp(0, probs.shape[1] - 1)
    near = OrdinalTarget.from_rank(mean, probs.shape[1]).probs
    return torch.where(whole[:, None], near, probs)


def majority_target(target: OrdinalTarget) -> OrdinalTarget:
    """Return one-hot targets of the majorities, the paper's labels of sources."""
    return OrdinalTarget.from_labels(target.hard, target.num_ranks)


def lerp(first: Tensor, second: Tensor, lam: Tensor) -> Tensor:
    """Return ``lam * first + (1 - lam) * second`` for tensors (B, ...) and lam (B,)."""
    weight = lam.to(first.dtype).view(-1, *[1] * (first.dim() - 1))
    return weight * first + (1 - weight) * second


def either(first: Tensor, second: Tensor, choose_second: Tensor) -> Tensor:
    """Return rows of the second tensor (B, ...) where chosen (B,), else of the first."""
    return torch.where(choose_second.view(-1, *[1] * (first.dim() - 1)), second, first)
