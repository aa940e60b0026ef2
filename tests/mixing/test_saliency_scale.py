"""The gradient pass on smaller copies."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dismix.errors import DisMixError
from dismix.mixing import create_mixer
from dismix.mixing.saliency import gradient_saliency


class Small(nn.Module):
    """Looks at the image averaged to 4 x 4 and notes the sizes it was given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.sizes = nn.Linear(16, 3), []  # type: ignore[var-annotated]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.sizes.append(tuple(images.shape[-2:]))
        return self.head(F.adaptive_avg_pool2d(images.mean(1), 4).flatten(1))  # type: ignore[no-any-return]


def test_a_smaller_pass_finds_the_same_blocks() -> None:
    model, images = Small(), torch.rand(3, 2, 32, 32, generator=torch.Generator().manual_seed(1))
    targets = torch.eye(3)
    whole = gradient_saliency(model, images, targets).maps
    half = gradient_saliency(model, images, targets, scale=0.5).maps
    assert model.sizes == [(32, 32), (16, 16)]
    assert half.shape == whole.shape == (3, 32, 32)
    # The model sees block means only, so that up to a factor both must agree on the blocks.
    blocks = [F.adaptive_avg_pool2d(m.unsqueeze(1), 4).flatten(1) for m in (whole, half)]
    one, other = (b / b.sum(1, keepdim=True) for b in blocks)
    torch.testing.assert_close(one, other, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("name", ["puzzlemix", "comixup", "guidedmixup"])
def test_mixers_pass_it_on(name: str) -> None:
    model, images = Small(), torch.rand(6, 2, 32, 32, generator=torch.Generator().manual_seed(1))
    more = {"saliency": "grad"} if name == "guidedmixup" else {}
    mixer = create_mixer(name, 3, p=1.0, saliency_scale=0.5, **more)
    mixed, _ = mixer(images, torch.tensor([0, 1, 2, 0, 1, 2]), model=model)
    assert model.sizes == [(16, 16)]
    assert mixed.shape == images.shape


def test_a_clean_loss_is_that_of_whole_images() -> None:
    model = Small()
    found = gradient_saliency(
        model, torch.rand(2, 1, 32, 32), torch.eye(3)[:2], keep_loss=True, scale=0.5
    )
    assert found.clean_loss is not None
    assert model.sizes == [(32, 32)]


def test_shares_beyond_one_are_refused() -> None:
    with pytest.raises(DisMixError, match="saliency_scale"):
        create_mixer("puzzlemix", 3, saliency_scale=2.0)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_can_be_shrunk(kind: torch.dtype) -> None:
    model, images = Small().to(kind), torch.rand(2, 2, 32, 32).to(kind)
    maps = gradient_saliency(model, images, torch.eye(3)[:2], scale=0.5).maps
    assert maps.shape == (2, 32, 32)
