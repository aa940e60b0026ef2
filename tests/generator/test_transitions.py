"""The order-transition figure: which pictures, and what is mixed into what."""

import pytest
import torch

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.generator.config import GeneratorConfig
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.generator.transitions import draw_transitions, transition, transition_rows
from dismix.labels import OrdinalTarget


def split_of(labels: list[int], ranks: int = 4) -> SplitImages:
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (len(labels), 1, 32, 32), generator=rng).to(torch.uint8)
    return SplitImages(pixels, OrdinalTarget.from_labels(labels, ranks), False)


@pytest.fixture(scope="module")
def model() -> Generator:
    config = GeneratorConfig(
        num_ranks=4, arch="tiny", image_size=32, in_channels=1, nonordinal_codes=32
    )
    return Generator.seeded(config, 0).eval()


@pytest.mark.parametrize(
    ("labels", "rank", "wanted"),
    [
        ([2, 0, 1, 1, 3, 1], None, [2, 5, 4]),
        ([0, 3, 0, 2, 2], None, [0, 2, 1]),
        ([0, 0, 2, 2, 3], 2, [2, 3, 4]),
        ([3, 1, 2], None, [1, 1, 0]),
    ],
)
def test_rows_are_two_of_a_rank_and_the_most_severe(labels, rank, wanted) -> None:
    assert transition_rows(split_of(labels), rank).tolist() == wanted


@pytest.mark.parametrize("branch", ["ordinal", "nonordinal"])
def test_only_the_named_branch_moves(model: Generator, branch: str) -> None:
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(2, 1, 32, 32, generator=rng) * 2 - 1
    with torch.no_grad():
        codes = model.encode(images)
        lams = torch.tensor([0.0, 0.3, 1.0])
        made = transition(model, codes[0:1], codes[1:2], branch, lams)
        assert made.shape == (3, 1, 32, 32)
        torch.testing.assert_close(made[:1], model.decode(codes[0:1]))
        o, n = codes.ordinal, codes.nonordinal
        if branch == "ordinal":
            whole, part = Codes(o[1:], n[:1]), Codes(0.7 * o[:1] + 0.3 * o[1:], n[:1])
        else:
            whole, part = Codes(o[:1], n[1:]), Codes(o[:1], 0.7 * n[:1] + 0.3 * n[1:])
        torch.testing.assert_close(made[2:], model.decode(whole))
        torch.testing.assert_close(made[1:2], model.decode(part))


def test_the_figure_has_four_rows_of_all_steps(model: Generator) -> None:
    figure = draw_transitions(model, split_of([0, 0, 1, 3]), steps=5)
    # A label, five steps and the originals at both ends; four rows of 32 px, shown as 128, under
    # headings.
    assert figure.size == (150 + 7 * 132 + 4, 22 + 4 * 132 + 4)


def test_the_asked_rank_is_shown() -> None:
    split = split_of([0, 0, 1, 1, 3])
    assert transition_rows(split, 1).tolist() == [2, 3, 4]
    with pytest.raises(DisMixError, match="no image to show has rank 2"):
        transition_rows(split, 2)
