"""AlignMixup (Venkataramanan et al., CVPR 2022): mix features after laying them over each other.

Half of the batches are plain mixup. In the others the last feature maps of two images are
aligned by optimal transport between their positions (Sinkhorn), then mixed; which of the two
is moved is tossed.

How ours differs from the authors' release: a hook instead of a changed network; Sinkhorn in the
log domain, whatever the scale of the features; a ratio and a toss for each pair. Rounds end
before the plan's margins are even where features are large against ``eps``. Theirs then makes
a position as many times as strong as its row weighs; ours divides rows (columns, where the
image is moved) by their sums, so every moved position is a mean of positions.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.hooks import HiddenMixer, blend_rows, hidden_layers
from dismix.mixing.manifold_mixup import mix_features
from dismix.mixing.pairs import Blend, draw_beta
from dismix.transfer import onto

# How often the change of the potentials is looked at; on a GPU that means waiting.
_LOOK = 5


@dataclass(frozen=True)
class AlignDraws(Draws):
    """Draws of AlignMixup.

    Attributes:
        at_input: Whether this batch is plain mixup.
        move_partner: (M,) bool, whether the partner's features move, or the image's.
    """

    at_input: bool
    move_partner: Tensor


def transport_plan(
    first: Tensor, second: Tensor, eps: float = 0.1, max_iter: int = 100, stop: float = 0.1
) -> Tensor:
    """Return plans (M, N, N) between positions, with uniform marginals 1/N once converged.

    Args:
        first: Features (M, D, N).
        second: Features (M, D, N).
        eps: Weight of the entropy.
        max_iter: Most rounds.
        stop: Rounds end when potentials change by less than this in sum.

    Example:
        Each position finds its like.

        >>> a = torch.tensor([[[0.0, 4.0]]])
        >>> (transport_plan(a, a.flip(2)) * 2).round()
        tensor([[[0., 1.],
                 [1., 0.]]])
    """
    return _log_plan(first, second, eps, max_iter, stop).exp()


@torch.no_grad()
def _log_plan(
    first: Tensor, second: Tensor, eps: float, max_iter: int, stop: float = 0.1
) -> Tensor:
    """Return logarithms of `transport_plan`, whose small masses would be zero."""
    # Not by a matrix product: features that are equal must be at distance zero.
    a, b = first.float().transpose(1, 2), second.float().transpose(1, 2)
    cost = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    count = cost.shape[1]
    log_mass = -torch.log(cost.new_tensor(float(count)))
    u = cost.new_zeros(cost.shape[:2])
    v = torch.zeros_like(u)
    for round_ in range(max_iter):
        before = u
        u = eps * (log_mass - torch.logsumexp((v[:, None] - cost) / eps, 2))
        v = eps * (log_mass - torch.logsumexp((u[:, :, None] - cost) / eps, 1))
        if round_ % _LOOK == _LOOK - 1 and float((u - before).abs().sum(1).mean()) < stop * eps:
            break
    return (u[:, :, None] + v[:, None] - cost) / eps


def align_features(features: Tensor, draws: AlignDraws, eps: float, max_iter: int) -> Tensor:
    """Return feature maps (B, D, h, w) whose drawn rows are mixed with aligned partners."""
    if features.ndim != 4:
        raise DisMixError(
            f"alignmixup needs feature maps (B, D, h, w), got {tuple(features.shape)}",
            cure="name a convolutional layer",
        )
    device = features.device
    rows, partner = draws.pair_on(device)
    own, other = features[rows].flatten(2), features[partner].flatten(2)
    with torch.autocast(device.type, enabled=False):
        plan = _log_plan(own, other, eps, max_iter)
        # Means whether Sinkhorn has converged or not: a row's mass must not scale a position.
        moved_other = torch.bmm(other.float(), plan.softmax(2).transpose(1, 2))
        moved_own = torch.bmm(own.float(), plan.softmax(1))
    toss = onto(draws.move_partner, device).view(-1, 1, 1)
    shape = (len(rows), *features.shape[1:])
    stays = torch.where(toss, own.float(), moved_own).view(shape).to(features.dtype)
    comes = torch.where(toss, moved_other, other.float()).view(shape).to(features.dtype)
    whole = features.clone().index_copy_(0, rows, stays)
    return blend_rows(whole, draws, onto(draws.lam, device), comes)


class AlignMixup(HiddenMixer):
    """Mix aligned feature maps.

    Args:
        num_ranks: C.
        layer: Name of the layer; the last stage by default.
        alpha: Of Beta(alpha, alpha).
        eps: Of the optimal transport.
        max_iter: Most rounds of Sinkhorn.
        p_input: Share of batches that are plain mixup.
        **options: See :class:`~dismix.mixing.base.Mixer`; a ``model`` is needed.
    """

    method = "alignmixup"

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        layer: str | None = None,
        alpha: float = 2.0,
        eps: float = 0.1,
        max_iter: int = 100,
        p_input: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        draw_beta(alpha, 0, torch.Generator())
        if not eps > 0 or max_iter < 1:
            raise DisMixError(f"eps and max_iter must be positive, got {eps} and {max_iter}")
        if not 0 <= p_input <= 1:
            raise DisMixError(f"p_input is {p_input:g}", cure="give a chance from 0 to 1")
        self.layer, self.alpha, self.eps, self.max_iter = layer, alpha, eps, max_iter
        self.p_input = p_input

    def draw_lam(self, count: int) -> Tensor:
        """Draw from the Beta law."""
        return draw_beta(self.alpha, count, self.generator)

    def draw_more(self, images: Tensor, draws: Draws) -> Draws:
        """Draw where to mix and what to move."""
        at_input = bool(torch.rand(1, dtype=torch.float32, generator=self.generator) < self.p_input)
        toss = torch.rand(len(draws), dtype=torch.float32, generator=self.generator)
        return AlignDraws(**vars(draws), at_input=at_input, move_partner=toss < 0.5)

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Mix the images, or arm the layer."""
        assert isinstance(draws, AlignDraws)
        model = self.needed_model(access)
        rows = onto(draws.rows, images.device)
        if draws.at_input:
            return Blend(mix_features(images, draws)[rows], draws.lam)
        layer = self.layer or (hidden_layers(model) or [""])[-1]
        mixing = partial(align_features, draws=draws, eps=self.eps, max_iter=self.max_iter)
        self.arm(model, layer, mixing, len(images))
        return Blend(images[rows], draws.lam)
