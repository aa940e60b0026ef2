"""What the codes leave out of an image: the image less its reconstruction.

A generator that parts severity from appearance pays for it in detail: texture of bone, fine
vessels. Decoded mixes lack it, and a grader learns half of the time from pictures that are
smoother than those it will see. Where asked (``detail``), a mix gets back the detail of the images
that give it their appearance, as far as they do: then it is the image itself, changed by what the
decoder makes of the changed codes.

A decoder that draws no lesions leaves them in the detail, and detail that goes with the look then
contradicts a label that asks for fewer. Detail may go with the label instead
(``detail_with="rank"``): as much of each image's as it has part in the label. An ``ordinal_mix``
of two images of which the codes tell nothing then is Mixup's, and the more they tell, the more it
is the paper's.

# paper: mixes are what the decoder shows. Off by default; what it does is in ``results/``.

Kept as one byte a value beside the codes, of the size of the images themselves, apart for either
severity (`dismix.mixing.severity`): what codes leave out depends on the rank that they show.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from dismix.data.store import ImageStore
from dismix.data.transforms import equalize, to_unit
from dismix.errors import DisMixError
from dismix.generator.model import Generator
from dismix.mixing.filling import RecordFile
from dismix.mixing.inference import inference
from dismix.mixing.latents import LatentStore
from dismix.mixing.mapped import MappedRecords
from dismix.mixing.policies import either, label_shares
from dismix.mixing.policy_draws import (
    GENERATE_AND_MIX,
    NONORDINAL_MIX,
    ORDER_SWAP,
    ORDINAL_MIX,
    PolicyDraws,
)
from dismix.mixing.severity import Severity, as_read
from dismix.progress import Progress

#: Files by the severity that the codes show.
DETAILS: dict[Severity, str] = {"label": "details.bin", "image": "details_image.bin"}
#: What detail goes with: the sources' look, or their part in the label.
DetailWith = Literal["look", "rank"]
#: One grey level of 256 on the scale of -1 to 1.
_STEP = 2 / 255


def look_shares(draws: PolicyDraws) -> tuple[Tensor, Tensor]:
    """Return how much of a mix's appearance is the anchor's, and how much the partner's.

    Args:
        draws: Choices of B mixes.

    Returns:
        Two (B,) tensors that sum to 1. A generated picture counts as its anchor.

    Example:
        >>> draws = PolicyDraws(*(torch.tensor([v]) for v in (ORDINAL_MIX, 0.25, True, 5, 0, True)))
        >>> look_shares(draws)
        (tensor([0.]), tensor([1.]))
    """
    swapped = draws.from_partner
    from_partner = ((draws.policy == ORDINAL_MIX) & swapped) | (
        (draws.policy == ORDER_SWAP) & ~swapped
    )
    anchor = (~from_partner).to(draws.lam.dtype)
    anchor = either(anchor, draws.lam, draws.policy == NONORDINAL_MIX)
    return anchor, 1 - anchor


def rank_shares(draws: PolicyDraws) -> tuple[Tensor, Tensor]:
    """Return how much of a mix's label is the anchor's, and how much the partner's.

    Args:
        draws: Choices of B mixes.

    Returns:
        Two (B,) tensors. They sum to 1 but where a generated picture takes part in the label:
        it was decoded, so nobody has detail that would go with its share.

    Example:
        >>> draws = PolicyDraws(*(torch.tensor([v]) for v in (ORDINAL_MIX, 0.25, True, 5, 0, True)))
        >>> rank_shares(draws)
        (tensor([0.2500]), tensor([0.7500]))
    """
    anchor = label_shares(draws)
    return anchor, (1 - anchor) * (draws.policy != GENERATE_AND_MIX)


class Details:
    """The details of the N images of a latent store.

    Args:
        store: Where they lie, beside the codes.
        model: The generator, for their shape.
        severity: What the codes show that leave them out.
    """

    def __init__(self, store: LatentStore, model: Generator, severity: Severity = "label") -> None:
        self.shape = (model.in_channels, model.image_size, model.image_size)
        path, size = store.folder / DETAILS[severity], _record_bytes(model)
        option = "" if severity == "label" else f" --severity {severity}"
        found = path.stat().st_size if path.is_file() else 0
        if found != len(store) * size:
            raise DisMixError(
                f"has {found} bytes of details instead of {len(store) * size}", file=path,
                cure=f"run `dismix mix encode RUN --details{option}`, or mix with detail=0",
            )  # fmt: skip
        self.records = MappedRecords(path, len(store), size)

    def read(self, rows: Tensor, device: torch.device) -> Tensor:
        """Return details (B, channels, H, W), float32 on a device, of stored rows (B,)."""
        raw = self.records.read(rows.cpu(), device)
        return raw.view(torch.int8).view(-1, *self.shape).float() * _STEP


def detail_of(images: Tensor, rebuilt: Tensor) -> Tensor:
    """Return the detail (B, channels, H, W) of images in [-1, 1], as precise as a stored one.

    Example:
        >>> image = torch.tensor([[0.5, -1.0]])
        >>> bool((detail_of(image, torch.zeros(1, 2)) - image).abs().max() < 0.005)
        True
    """
    return _in_steps(images, rebuilt) * _STEP


def _in_steps(images: Tensor, rebuilt: Tensor) -> Tensor:
    return (images.float() - rebuilt.float()).div(_STEP).round().clamp(-127, 127)


def write_details(
    store: LatentStore,
    model: Generator,
    images: ImageStore,
    *,
    equalized: bool,
    severity: Severity = "label",
    batch_size: int = 64,
    progress: Progress | None = None,
) -> None:
    """Write the details of a store's images beside their codes, unless they are there.

    Args:
        store: Codes of the images.
        model: Their generator.
        images: The images, in the store's order.
        equalized: Whether the generator sees equalized images.
        severity: What the codes show that leave them out.
        batch_size: Images at once.
        progress: Called as ``progress("details", images done, N)``.
    """
    device = model.post_quant_conv.weight.device

    def make(start: int, stop: int) -> bytes:
        pixels = images[start:stop].to(device)
        with inference(device):
            found = store.sources(torch.arange(start, stop), model)
            if severity == "image":
                found = as_read(found, model)
            rebuilt = model.decode(found.codes).float().clamp(-1, 1)
        unit = to_unit(equalize(pixels) if equalized else pixels)
        return _in_steps(unit, rebuilt).to(torch.int8).cpu().numpy().tobytes()

    path = store.folder / DETAILS[severity]
    file = RecordFile(path, counted(store, severity), len(store), _record_bytes(model))
    if path.is_file() and path.stat().st_size == file.count * file.record_bytes:
        return
    path.unlink(missing_ok=True)
    file.fill(make, batch_size, progress, "details")
    file.counted.unlink(missing_ok=True)


def counted(store: LatentStore, severity: Severity) -> Path:
    """Return the file that says how far the writing is; there is none once it is done."""
    return (store.folder / DETAILS[severity]).with_suffix(".json")


def _record_bytes(model: Generator) -> int:
    return model.in_channels * model.image_size**2
