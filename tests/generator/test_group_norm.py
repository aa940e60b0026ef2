"""Group normalisation behind layers that do not learn."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from dismix.generator.group_norm import GroupNorm

# In a process of its own: PyTorch's kernel would end this one.
BACKWARD = """
import torch
from dismix.generator.group_norm import GroupNorm
torch.set_num_threads(1)
images = torch.randn(2, 8, 4, 4, generator=torch.Generator().manual_seed(0))
norm = GroupNorm(2, 8)
made = norm(images.contiguous(memory_format=torch.channels_last))
made.square().sum().backward()
print(norm.weight.grad.tolist())
"""


def test_learns_behind_a_frozen_layer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BACKWARD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    images = torch.randn(2, 8, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    weight = torch.ones(8, dtype=torch.double, requires_grad=True)
    made = F.group_norm(images, 2, weight, torch.zeros(8, dtype=torch.double), 1e-5)
    made.square().sum().backward()
    found = torch.tensor(eval(done.stdout)).double()
    assert weight.grad is not None
    torch.testing.assert_close(found, weight.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("images_learn", "norm_learns"), [(True, True), (True, False), (False,) * 2]
)
def test_layout_is_kept_where_nothing_is_at_risk(images_learn: bool, norm_learns: bool) -> None:
    images = torch.randn(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)
    norm = GroupNorm(2, 8).requires_grad_(norm_learns)
    made = norm(images.requires_grad_(images_learn))
    assert made.is_contiguous(memory_format=torch.channels_last)
