"""Which codes the generator uses, where, and how images lie to each other in either code."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.explore.session import Session
from dismix.mixing.inference import inference
from dismix.progress import Progress

Book = Literal["ordinal", "nonordinal"]
#: Images that the page looks at; a t-SNE of more takes too long to wait for.
MOST_IMAGES = 400
_BATCH = 32


@dataclass(frozen=True)
class CodeUse:
    """How often the codes of one book were chosen.

    Attributes:
        indices: (N, h, w) chosen codes of N images.
        counts: (K,) choices of each code.
        points: (N, 2) t-SNE of the images' codes.
    """

    indices: NDArray[np.int64]
    counts: NDArray[np.int64]
    points: NDArray[np.float64]

    @property
    def used(self) -> int:
        """Number of codes chosen at least once."""
        return int((self.counts > 0).sum())

    @property
    def perplexity(self) -> float:
        """How many codes would be in use if all were used alike."""
        share = self.counts[self.counts > 0] / self.counts.sum()
        return float(np.exp(-(share * np.log(share)).sum()))

    def top(self, count: int) -> list[int]:
        """Return the most chosen codes, most first; only ones that are in use."""
        order = np.argsort(-self.counts, kind="stable")[:count]
        return [int(code) for code in order if self.counts[code] > 0]

    def images_of(self, code: int, count: int) -> list[tuple[int, NDArray[np.bool_]]]:
        """Return (image, where (h, w)) that use a code most, most first."""
        if not 0 <= code < len(self.counts):
            raise DisMixError(
                f"there is no code {code}", cure=f"choose 0 to {len(self.counts) - 1}"
            )
        where = self.indices == code
        shares = where.mean(axis=(1, 2))
        order = np.argsort(-shares, kind="stable")[:count]
        return [(int(i), where[i]) for i in order if shares[i] > 0]


@dataclass(frozen=True)
class CodeMaps:
    """Both books on the same images.

    Attributes:
        keys: Keys of the N images.
        ranks: (N,) their majority ranks.
        books: One entry a codebook; a generator with a single one has only "nonordinal".
    """

    keys: list[str]
    ranks: NDArray[np.int64]
    books: dict[Book, CodeUse]


def map_codes(session: Session, progress: Progress | None = None) -> CodeMaps:
    """Encode images without their labels and lay them out.

    Held-out images are taken where there are enough, else training images.

    Args:
        session: An open run.
        progress: Called as ``progress("reading codes", done, N)``.
    """
    from dismix.show.plots import embed

    keys = _chosen(session)
    if len(keys) < 4:
        raise DisMixError(
            "the codebook page needs images of the run's data", cure="give them with --manifest"
        )
    model, parts = session.model, []
    for start in range(0, len(keys), _BATCH):
        pixels = torch.stack([session.subject(k).pixels for k in keys[start : start + _BATCH]])
        with inference(session.device):
            latents = model.latents(to_unit(pixels.to(session.device)))
            parts.append(
                [(q.indices.cpu(), q.codes.float().cpu()) for q in model.quantized(latents)]
            )
        if progress is not None:
            progress("reading codes", min(start + _BATCH, len(keys)), len(keys))
    ranks = np.array([session.subject(k).rank or 0 for k in keys])
    books: dict[Book, CodeUse] = {}
    names: tuple[Book, ...] = ("ordinal", "nonordinal")
    for place, name in enumerate(names):
        if name == "ordinal" and model.quantize_ordinal is None:
            continue
        table = model.quantize_ordinal if name == "ordinal" else model.quantize
        assert table is not None
        indices = torch.cat([part[place][0] for part in parts]).numpy()
        codes = torch.cat([part[place][1] for part in parts]).numpy().astype(np.float64)
        counts = np.bincount(indices.ravel(), minlength=table.num_codes)
        books[name] = CodeUse(indices, counts, embed(codes))
    return CodeMaps(keys, ranks, books)


def _chosen(session: Session) -> list[str]:
    library = session.library
    for split in ("test", "val", "train"):
        if split in library.shelves and len(library.shelves[split].rows) >= 50:
            return library.browse(split, most=MOST_IMAGES)
    return library.browse(most=MOST_IMAGES)
