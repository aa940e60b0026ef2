"""The generator's losses, all in float32 whatever autocast says."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.precision import full_precision
from dismix.registry import near_names


def sor(logits: Tensor, levels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Soft ordinal regression: binary cross-entropy against the ordinal soft label.

    Args:
        logits: (B, C-1).
        levels: (B, C-1) in [0, 1].
        weight: (B,) or (B, C-1) weights of a weighted mean; None weighs all alike.

    Example:
        >>> sor(torch.zeros(1, 2), torch.tensor([[1.0, 0.5]]))
        tensor(0.6931)
    """
    loss = F.binary_cross_entropy_with_logits(
        logits.float(), levels.float(), reduction="none" if weight is not None else "mean"
    )
    if weight is None:
        return loss
    weight = weight.float() if weight.dim() == 2 else weight.float()[:, None]
    weight = weight.expand_as(loss)
    # A batch in which nothing counts gives 0, not 0/0.
    return (weight * loss).sum() / weight.sum().clamp_min(torch.finfo(torch.float32).tiny)


def similarity(z_o: Tensor, z_n: Tensor, *, signed: bool = False) -> Tensor:
    """Cosine similarity of ordinal and non-ordinal codes.

    With equal dimensions the mean over positions of |cos| along channels. With different
    ones no such angle exists: then the mean over pairs of an ordinal and a non-ordinal
    channel of |cos| along positions.

    Args:
        z_o: (B, D, h, w); a coarser grid is spread over the positions of z_n.
        z_n: (B, D', h, w).
        signed: Leave the sign in, as the paper's formula does.

    Example:
        >>> z = torch.ones(1, 4, 3, 3)
        >>> similarity(z, -z).item(), similarity(z, -z, signed=True).item()
        (1.0, -1.0)
    """
    z_o, z_n = z_o.float(), z_n.float()
    if z_o.shape[-2:] != z_n.shape[-2:]:
        z_o = F.interpolate(z_o, size=z_n.shape[-2:], mode="nearest")
    if z_o.shape[1] == z_n.shape[1]:
        cosine = F.cosine_similarity(z_o, z_n, dim=1)
    else:
        with full_precision(z_o):
            a, b = F.normalize(z_o.flatten(2), dim=2), F.normalize(z_n.flatten(2), dim=2)
            cosine = a @ b.transpose(1, 2)
    # paper: minimises the signed cosine, which rewards anti-correlation; its ablation calls
    # the term orthogonality, which is what |cos| asks for.
    return cosine.mean() if signed else cosine.abs().mean()


def lsgan_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    """Least squares: real patches towards 1, made ones towards 0.

    Args:
        real: Realism of real images, any shape.
        fake: Realism of made images, any shape.

    Example:
        >>> lsgan_discriminator(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
        tensor(0.5000)
    """
    return (real.float() - 1.0).square().mean() + fake.float().square().mean()


def lsgan_generator(fake: Tensor) -> Tensor:
    """Least squares: made patches towards 1.

    Args:
        fake: Realism of made images, any shape.

    Example:
        >>> lsgan_generator(torch.tensor([1.0, 0.0]))
        tensor(0.5000)
    """
    # paper: its min-max has the generator minimise minus the discriminator's loss, of which there
    # is no least value; this is the generator's side of the L2 objective that it names.
    return (fake.float() - 1.0).square().mean()


class UnitSumWeights(nn.Module):
    """Learned weights softmax(theta) over named loss terms: positive, with sum 1.

    The gradient for theta_k is w_k (l_k - total), so descent moves weight from hard terms to
    easy ones: give theta a small learning rate of its own.

    Args:
        names: The terms, in the order of theta.

    Example:
        >>> weigh = UnitSumWeights(["a", "b"])
        >>> weigh({"a": torch.tensor(1.0), "b": torch.tensor(3.0)}).item()
        2.0
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        if len(set(names)) != len(names) or not names:
            raise ValueError(f"terms must be named and differ, not {list(names)}")
        self.names = tuple(names)
        self.theta = nn.Parameter(torch.zeros(len(names)))

    def weights(self, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Return the weight of each term, of sum 1 over ``names`` (all when None).

        A term that a phase of training leaves out has no share in the sum.
        """
        names = self.names if names is None else names
        for name in names:
            if name not in self.names:
                raise DisMixError(f"no weight for '{name}'", cure=near_names(name, [*self.names]))
        # One by one: a list of places would be copied to the device, for which a GPU waits.
        theta = torch.stack([self.theta.float()[self.names.index(name)] for name in names])
        return dict(zip(names, theta.softmax(dim=0).unbind(), strict=True))

    def forward(self, terms: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted sum of 0-d terms."""
        return combine(terms, self)["loss"]


def combine(
    terms: Mapping[str, Tensor], weights: UnitSumWeights | Mapping[str, float] | None = None
) -> dict[str, Tensor]:
    """Return ``loss`` with its gradient, and for the log each term and its weight ``w_<term>``.

    Args:
        terms: 0-d losses by name.
        weights: Learned weights, fixed ones (every term needs one), or None for a plain sum.

    Example:
        >>> parts = combine({"a": torch.tensor(2.0), "b": torch.tensor(4.0)}, {"a": 1, "b": 0.5})
        >>> {name: value.item() for name, value in parts.items()}
        {'loss': 4.0, 'a': 2.0, 'b': 4.0, 'w_a': 1.0, 'w_b': 0.5}
    """
    if not terms:
        raise ValueError("no loss terms to combine")
    values = {name: term.float() for name, term in terms.items()}
    device = next(iter(values.values())).device
    if isinstance(weights, UnitSumWeights):
        shares = weights.weights([*values])
    else:
        fixed = dict.fromkeys(values, 1.0) if weights is None else weights
        for name in values:
            if name not in fixed:
                raise DisMixError(f"no weight for '{name}'", cure=near_names(name, [*fixed]))
        known = _on_device(tuple(float(fixed[name]) for name in values), device)
        shares = dict(zip(values, known.unbind(), strict=True))
    total = torch.stack([shares[name] * value for name, value in values.items()]).sum()
    parts = {name: value.detach() for name, value in values.items()}
    return {"loss": total, **parts, **{f"w_{name}": w.detach() for name, w in shares.items()}}


@lru_cache(maxsize=16)
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return fixed numbers as a tensor, copied once: each copy makes a GPU wait."""
    return torch.tensor(values, device=device)
