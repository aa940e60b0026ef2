"""Mixers that look at a model: heads that give no score for each rank are refused in one line."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.mixing.registry import create_mixer
from dismix.mixing.saliency import gradient_saliency

RANKS = 5
IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
LABELS = torch.arange(4)


def net(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))


class Wrapped(nn.Module):
    """Gives a dict, as many libraries' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net(RANKS)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(images)}


def mixer(name: str, **options: object):
    grad = {"saliency": "grad"} if name == "guidedmixup" else {}
    return create_mixer(name, RANKS, p=1.0, **grad, **options)


@pytest.mark.parametrize("name", ["puzzlemix", "comixup", "guidedmixup", "sumix"])
@pytest.mark.parametrize(
    ("model", "gives"),
    [
        (net(1), r"\(\d, 1\)"),
        (net(RANKS - 1), r"\(\d, 4\)"),
        (net(RANKS + 2), r"\(\d, 7\)"),
        (nn.Flatten(0), r"\(256,\)|\(512,\)"),
        (Wrapped(), "something of type dict"),
    ],
)
def test_other_heads_are_refused(name, model, gives):
    cure = "give a model that does" if name == "sumix" else "loss_fn=, or a saliency_fn="
    words = rf"^the model gives ({gives}), not class scores \(\d, 5\); .*{cure}"
    with pytest.raises(DisMixError, match=words):
        mixer(name)(IMAGES, LABELS, model=model)


@pytest.mark.parametrize("name", ["puzzlemix", "comixup", "guidedmixup"])
@pytest.mark.parametrize("model", [net(1), net(RANKS - 1), Wrapped()])
def test_the_loss_of_the_head_is_the_cure(name, model):
    def loss(model, images, targets):
        out = model(images)
        out = out["logits"] if isinstance(out, dict) else out
        if out.shape[1] == RANKS:
            return F.cross_entropy(out, targets)
        levels = targets.flip(1).cumsum(1).flip(1)[:, 1:]
        return F.mse_loss(out, levels if out.shape[1] > 1 else levels.sum(1, keepdim=True))

    mixed, _ = mixer(name, model=model, loss_fn=loss)(IMAGES, LABELS)
    assert not torch.equal(mixed, IMAGES)
    maps = gradient_saliency(model, IMAGES, torch.eye(RANKS)[LABELS], loss).maps
    assert bool((maps.amax((1, 2)) > 0).all())


def test_logarithms_of_probabilities_will_do_for_sumix():
    class Levels(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            levels = images.flatten(1)[:, : RANKS - 1].sigmoid().cumprod(1)
            ends = torch.ones(len(images), 1), torch.zeros(len(images), 1)
            return (torch.cat([ends[0], levels], 1) - torch.cat([levels, ends[1]], 1)).log()

    _, targets, info = mixer("sumix")(IMAGES, LABELS, model=Levels(), return_info=True)
    assert torch.allclose(targets.sum(1), torch.ones(4), atol=1e-5)
    assert bool(info.lam.isfinite().all())
