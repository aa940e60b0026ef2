"""DiffuseMix (Islam et al., CVPR 2024): half of the image, half of its edited twin, a fractal.

The label stays the image's own. The twin is made by InstructPix2Pix from a prompt, which takes
seconds an image: make it once and keep it (:class:`~dismix.mixing.editors.CachedEditor`).

How ours differs from the authors' release: written from a description, since that has no
licence; the editor is yours, from a local folder; fractals are made here; both halves may be
the edited one; outputs that are nearly all black are thrown away as well as white ones; images
are replaced with probability p instead of added, so that all mixers see equally many. The
authors' prompts are styles (sunset, autumn), senseless for medical images: give your own. The
layout of halves and fractal blending is the subject of the patent US 12,657,783 B1; whether
that concerns you is for you to find out.

``FilterMix`` is the same layout with plain filters instead of a diffusion model. It is not
DiffuseMix, and its results must not be reported as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.editors import FILTERS, CachedEditor, DiffusersEditor, Editor, FilterEditor
from dismix.mixing.fitting import Normalisation
from dismix.mixing.fractals import fractal_like
from dismix.mixing.pairs import Blend, RowMixer
from dismix.transfer import onto


@dataclass(frozen=True)
class EditDraws(Draws):
    """Draws of DiffuseMix.

    Attributes:
        prompt: (M,) long, which prompt.
        layout: (M,) long in 0..3: edited half right, below, left, above.
        fractal: (M,) long, seeds of fractals.
    """

    prompt: Tensor
    layout: Tensor
    fractal: Tensor


def seam_masks(layout: Tensor, height: int, width: int, seam: int) -> Tensor:
    """Return the weight (M, 1, H, W) of the image itself, with a linear ramp at the middle.

    Args:
        layout: (M,) in 0..3: the edited half is right, below, left, above.
        height: H.
        width: W.
        seam: Pixels of the ramp.

    Example:
        >>> seam_masks(torch.tensor([0]), 1, 6, seam=2).flatten()
        tensor([1.0000, 1.0000, 0.7500, 0.2500, 0.0000, 0.0000])
    """

    def ramp(length: int) -> Tensor:
        pixel = torch.arange(length, dtype=torch.float32, device=layout.device) + 0.5
        return (0.5 - (pixel - length / 2) / max(min(seam, length), 1e-6)).clamp(0, 1)

    across, down = ramp(width).view(1, 1, 1, -1), ramp(height).view(1, 1, -1, 1)
    kind = layout.view(-1, 1, 1, 1)
    first = torch.where(kind % 2 == 0, across, down).expand(-1, 1, height, width)
    return torch.where(kind < 2, first, 1 - first)


def spoiled(images: Tensor, limit: float = 0.9) -> Tensor:
    """Return (M,) bool: more than ``limit`` of the pixels are black, or white."""
    grey = images.mean(1).flatten(1)
    black, white = (grey < 1 / 255).float().mean(1), (grey > 254 / 255).float().mean(1)
    return (black > limit) | (white > limit)


class DiffuseMix(RowMixer):
    """Join an image with its edited twin and blend in a fractal; labels stay.

    Args:
        num_ranks: C.
        editor: A function (see :mod:`dismix.mixing.editors`), or the folder of a saved
            InstructPix2Pix pipeline.
        prompts: One of these is drawn for each image.
        fractal_alpha: Weight of the fractal.
        fractals: How many different ones there are.
        seam: Pixels of the ramp between the halves.
        layouts: 2 as in the authors' release, or 4.
        mean: Of the images' normalisation, so that pixels can be put into [0, 1]; one number,
            or one a channel.
        std: Likewise.
        cache_dir: Folder in which edited images are kept.
        **options: See :class:`~dismix.mixing.base.Mixer`; there are no partners here.
    """

    method = "diffusemix"
    needs_partner = False

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        editor: Editor | str | Path | None = None,
        prompts: str | Sequence[str] = ("sunset", "Autumn"),
        fractal_alpha: float = 0.2,
        fractals: int = 64,
        seam: int = 20,
        layouts: int = 4,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        cache_dir: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        prompts = (prompts,) if isinstance(prompts, str) else tuple(prompts)
        if editor is None:
            raise DisMixError(
                "DiffuseMix needs an editor",
                cure="give the folder of a saved InstructPix2Pix pipeline, or use filtermix,"
                " which is the same layout without diffusion",
            )
        if not prompts or not 0 <= fractal_alpha <= 1 or layouts not in (2, 4) or fractals < 1:
            raise DisMixError(
                "DiffuseMix needs prompts, fractal_alpha within [0, 1], layouts 2 or 4, fractals"
            )
        made = DiffusersEditor(editor) if isinstance(editor, str | Path) else editor
        self.editor: Editor = made if cache_dir is None else CachedEditor(made, cache_dir)
        self.prompts, self.fractal_alpha, self.fractals = prompts, fractal_alpha, fractals
        self.seam, self.layouts, self.norm = seam, layouts, Normalisation(mean, std)

    def draw(self, images: Tensor, target: OrdinalTarget) -> EditDraws:
        """Draw rows, prompts, layouts and fractals."""
        rows = self.draw_rows(len(images))
        count = len(rows)
        numbers = [
            torch.randint(high, (count,), generator=self.generator)
            for high in (len(self.prompts), self.layouts, self.fractals)
        ]
        nothing = torch.zeros(count, dtype=torch.bool)
        return EditDraws(rows, rows, self.draw_lam(count), nothing, *numbers)

    def draw_lam(self, count: int) -> Tensor:
        """Return ones (M,): the label stays the image's own."""
        return torch.ones(count, dtype=torch.float32)

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Edit, join and blend."""
        assert isinstance(draws, EditDraws)
        chosen = images[onto(draws.rows, images.device)]
        pixels = self.norm.unit(chosen.detach())
        prompts = [self.prompts[i] for i in draws.prompt.tolist()]
        edited = self.editor(pixels, prompts).float()
        bad = spoiled(edited) & ~spoiled(pixels)
        edited = torch.where(bad.view(-1, 1, 1, 1), pixels, edited)
        height, width = images.shape[-2:]
        own = seam_masks(onto(draws.layout, images.device), height, width, self.seam)
        joined = own * pixels + (1 - own) * edited
        alpha = self.fractal_alpha
        if alpha > 0:
            joined = (1 - alpha) * joined + alpha * fractal_like(joined, draws.fractal)
        return Blend(self.norm.from_unit(joined, images), draws.lam, own * (1 - alpha))


class FilterMix(DiffuseMix):
    """DiffuseMix's layout with plain filters; no diffusion, so not DiffuseMix.

    Args:
        num_ranks: C.
        prompts: Names of filters, see ``dismix.mixing.editors.FILTERS``.
        **options: See :class:`DiffuseMix`.
    """

    method = "filtermix"

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        prompts: str | Sequence[str] = tuple(FILTERS),
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, editor=FilterEditor(), prompts=prompts, **options)
