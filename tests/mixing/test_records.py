"""Records: codes in their smallest form, exact in every form."""

import numpy as np
import pytest
import torch
from tests.mixing.toy_run import FORMS, toy_generator

from dismix.generator.model import Generator
from dismix.mixing.records import conditions, make_records, read_records, record_type


@pytest.mark.parametrize("form", list(FORMS))
def test_codes_come_back_bit_for_bit(form: str) -> None:
    model = toy_generator(1, **FORMS[form])
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(5, 1, 32, 32, generator=rng) * 2 - 1
    levels = torch.rand(5, 4, generator=rng).sort(1, descending=True).values
    with torch.no_grad():
        latents, codes = model.latents(images), model.encode(images, levels)
        records = make_records(model, images, levels)
        raw = torch.from_numpy(records.view(np.uint8).reshape(5, -1).copy())
        found = read_records(model, raw)
        # A single record is no other, though it need not be copied to lie in one piece.
        single = read_records(model, raw[2:3])
    assert torch.equal(single.codes.ordinal, found.codes.ordinal[2:3])
    assert torch.equal(single.codes.nonordinal, found.codes.nonordinal[2:3])
    torch.testing.assert_close(found.codes.ordinal, codes.ordinal, rtol=0, atol=1e-6)
    assert torch.equal(found.codes.nonordinal, codes.nonordinal)
    if found.z is not None:
        assert torch.equal(found.z, latents.ordinal.half().float())
    assert (found.read is None) == (not conditions(model))
    if found.read is not None:
        wanted = model.levels_read(latents.ordinal)
        torch.testing.assert_close(found.read, wanted, rtol=0, atol=1e-3)


def test_the_papers_shape_takes_four_kibibytes_and_eight_for_z() -> None:
    model = toy_generator()
    sizes = {
        form: record_type(toy_generator(**FORMS[form])).itemsize
        for form in ("indices", "rank_only", "single", "soft_rank_only", "many_codes")
    }
    read = 4 * 2
    assert sizes["rank_only"] == 16 + 1 + read
    assert sizes["indices"] == 16 + 16 + 16 * 4 * 2 + read
    assert sizes["single"] == 16
    assert sizes["soft_rank_only"] == 16 + 4 * 4 + read
    assert sizes["many_codes"] == 16 * 2 + 16 * 4 + 16 * 4 * 2 + read
    paper = Generator.__new__(Generator)
    torch.nn.Module.__init__(paper)
    paper.config = model.config.__class__(num_ranks=5)
    paper.latent_size = 32
    paper.quantize_ordinal = model.quantize_ordinal
    kind = record_type(paper)
    assert kind.fields is not None
    assert kind["ordinal"].itemsize + kind["nonordinal"].itemsize == 4096
    assert kind["z"].itemsize == 8192
