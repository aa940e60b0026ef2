"""The strip that a training draws: what its headings say, and of whose grade its captions speak."""

import pytest
import torch

from dismix.generator import strips
from dismix.generator.config import GeneratorConfig
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.labels import OrdinalTarget


@pytest.mark.parametrize("names", [("1", "2", "3"), ()])
def test_columns_are_headed_and_rows_named_by_the_scale(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    config = GeneratorConfig(
        num_ranks=3, arch="tiny", image_size=32, in_channels=1, nonordinal_codes=32
    )
    target = OrdinalTarget.from_votes(torch.tensor([[2, 2, 1], [0, 0, 0], [1, 1, 1]]), 3)
    pixels = torch.randint(256, (3, 1, 32, 32)).to(torch.uint8)
    told = []
    monkeypatch.setattr(strips, "headed_grid", lambda *parts: told.extend(parts))
    strips.draw_strip(
        Generator.seeded(config, 0).eval(), SplitImages(pixels, target, False, names), 3
    )
    grid, captions, headers = told
    low, middle, high = names or ("0", "1", "2")
    assert captions == [
        (low, "its grade"), (middle, "its grade"), (high, "most of its votes"),
    ]  # fmt: skip
    assert headers[:2] == ["image", "rebuilt"]
    assert headers[2:5] == [f"made: {name}" for name in (low, middle, high)]
    assert all(len(row) == len(headers) for row in grid)
