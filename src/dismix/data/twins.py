"""The same picture twice: byte-identical files and re-encoded, resized or re-exposed copies.

Medical images of one kind look alike: two knees of two people may correlate above 0.9 pixel by
pixel, and so may two eyes. What tells them apart is fine structure, so pictures are compared after
dividing out brightness and contrast around every point: 16 x 16 to find candidates quickly,
64 x 64 to judge them. The threshold was set between different pictures and re-encoded, resized or
re-exposed copies of images of IDRiD and KOA; a copy brightened into saturation may be missed.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from dismix.data.digest import content_digests
from dismix.data.looks import SIDE, Look, Thumbnails
from dismix.data.store import default_cache_dir
from dismix.progress import Progress

COARSE = 16
#: Coarse correlation from which a pair is looked at closely.
CANDIDATE = 0.85
#: Fine correlation from which a pair counts as the same picture.
SAME_PICTURE = 0.85
#: Mean squared detail below which a picture is blank and says nothing about being a copy.
MIN_DETAIL = 0.05

Kind = Literal["identical", "near", "mirrored"]
Details = NDArray[np.float32]


@dataclass(frozen=True)
class Twins:
    """Images that show the same picture.

    Args:
        members: Positions in the list that was searched, ascending, two or more.
        kind: "identical" bytes, "near"-identical pictures, or "mirrored" left to right.
        similarity: Weakest correlation that joined the members; 1.0 for identical files.
    """

    members: tuple[int, ...]
    kind: Kind
    similarity: float = 1.0


def find_identical(paths: Sequence[Path]) -> list[Twins]:
    """Find files with the same bytes; only files of equal length are read, and once if unchanged.

    Args:
        paths: Files; those that are empty or cannot be read are left out.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = [Path(folder, name) for name in "abc"]
        ...     _ = [f.write_text(text) for f, text in zip(files, ["one", "two", "one"])]
        ...     find_identical(files)[0].members
        (0, 2)
    """
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, path in enumerate(paths):
        # Empty files, as failed copies are, are no pictures: alike, they tell nothing.
        with suppress(OSError):
            if size := path.stat().st_size:
                by_length[size].append(index)
    rows = [row for equal in by_length.values() if len(equal) > 1 for row in equal]
    # Scans are often all of one length, and each fold of each study asks anew.
    digests = content_digests(
        [paths[row] for row in rows], default_cache_dir(), workers=4, skip_unreadable=True
    )
    by_bytes: dict[str, list[int]] = defaultdict(list)
    for row, digest in zip(rows, digests, strict=True):
        if digest:
            by_bytes[digest].append(row)
    groups = sorted(tuple(group) for group in by_bytes.values() if len(group) > 1)
    return [Twins(group, "identical") for group in groups]


def find_near(
    thumbnails: Thumbnails,
    *,
    mirrored: bool = False,
    same: float = SAME_PICTURE,
    block: int = 1024,
    progress: Progress | None = None,
) -> list[Twins]:
    """Find pictures that are copies up to compression, size, brightness and contrast.

    Compares all pairs by blocked matrix products. Memory beside the thumbnails is 1 KiB an image
    and one ``(block, N)`` product.

    Args:
        thumbnails: ``(N, 64, 64)`` grey pictures.
        mirrored: Search for left-right mirrored copies instead.
        same: Correlation in [0, 1] from which two pictures count as one.
        block: Rows compared at once.
        progress: Called with ("comparing images", done, total).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> pictures = rng.integers(0, 255, (3, 64, 64), dtype=np.uint8)
        >>> pictures[2] = pictures[0] // 2 + 40
        >>> find_near(pictures)[0].members
        (0, 2)
    """
    if len(thumbnails) < 2:
        return []
    coarse, detailed = _coarse(thumbnails, block)
    other = coarse.reshape(-1, COARSE, COARSE)[:, :, ::-1] if mirrored else coarse
    other = np.ascontiguousarray(other.reshape(len(coarse), -1))
    joined = _Joined(len(thumbnails))
    for start in range(0, len(coarse), block):
        rows, columns = np.nonzero(coarse[start : start + block] @ other[start:].T > CANDIDATE)
        rows, columns = rows + start, columns + start
        wanted = (rows < columns) & detailed[rows] & detailed[columns]
        _join_same(thumbnails, rows[wanted], columns[wanted], joined, mirrored=mirrored, same=same)
        if progress is not None:
            progress("comparing images", min(start + block, len(coarse)), len(coarse))
    kind: Kind = "mirrored" if mirrored else "near"
    return [Twins(members, kind, similarity) for members, similarity in joined.groups()]


def find_twins(
    paths: Sequence[Path],
    looks: Sequence[Look],
    *,
    near: bool = True,
    mirrored: bool = False,
    progress: Progress | None = None,
) -> list[Twins]:
    """Find all twins: identical files first, then near copies among one file of each kind.

    Args:
        paths: Files, N.
        looks: What :func:`dismix.data.looks.look_at_all` saw of them, N.
        near: Search for near-identical pictures.
        mirrored: Search for mirrored pictures too.
        progress: Called with (stage, done, total).
    """
    identical = find_identical(paths)
    repeated = {member for twins in identical for member in twins.members[1:]}
    small = {
        i: look.thumbnail
        for i, look in enumerate(looks)
        if look.thumbnail is not None and i not in repeated
    }
    readable = list(small)
    found = list(identical)
    thumbnails = np.stack([*small.values()]) if small else np.empty((0, SIDE, SIDE), np.uint8)
    for flip in [False] * near + [True] * mirrored:
        for twins in find_near(thumbnails, mirrored=flip, progress=progress):
            members = tuple(readable[m] for m in twins.members)
            found.append(Twins(members, twins.kind, twins.similarity))
    return found


def detail(thumbnails: Thumbnails, *, window: int = 9, floor: float = 2.0) -> Details:
    """Return fine structure with brightness and contrast around each point divided out.

    Args:
        thumbnails: ``(B, 64, 64)`` grey pictures.
        window: Side of the neighbourhood, in thumbnail pixels.
        floor: Grey levels of local contrast below which structure is treated as noise.

    Returns:
        ``(B, 64, 64)`` values in [-2, 2].
    """
    size = (0, window, window)
    grey = thumbnails.astype(np.float32)
    centred = grey - uniform_filter(grey, size=size, mode="nearest")
    spread = np.sqrt(uniform_filter(centred * centred, size=size, mode="nearest").clip(min=0))
    values: Details = np.clip(centred / (spread + floor), -2, 2)
    return values


def _coarse(thumbnails: Thumbnails, block: int) -> tuple[Details, NDArray[np.bool_]]:
    """Return unit descriptors (N, 256) and which pictures (N,) have any detail."""
    pool = SIDE // COARSE
    coarse = np.empty((len(thumbnails), COARSE * COARSE), dtype=np.float32)
    detailed = np.zeros(len(thumbnails), dtype=bool)
    for start in range(0, len(thumbnails), block):
        fine = detail(thumbnails[start : start + block])
        cells = fine.reshape(-1, COARSE, pool, COARSE, pool).mean(axis=(2, 4))
        coarse[start : start + block] = _unit(cells)
        detailed[start : start + block] = (fine * fine).mean(axis=(1, 2)) > MIN_DETAIL
    return coarse, detailed


def _unit(values: Details) -> Details:
    flat = values.reshape(len(values), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    unit: Details = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
    return unit


class _Joined:
    """Union of pairs into groups, remembering each group's weakest link."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))
        self.weakest = [1.0] * count

    def root(self, item: int) -> int:
        while self.parent[item] != item:
            self.parent[item] = self.parent[self.parent[item]]
            item = self.parent[item]
        return item

    def join(self, first: int, second: int, similarity: float) -> None:
        low, high = sorted((self.root(first), self.root(second)))
        if low != high:
            self.parent[high] = low
            self.weakest[low] = min(self.weakest[low], self.weakest[high], similarity)

    def groups(self) -> list[tuple[tuple[int, ...], float]]:
        members: dict[int, list[int]] = defaultdict(list)
        for item in range(len(self.parent)):
            members[self.root(item)].append(item)
        return [(tuple(m), self.weakest[root]) for root, m in members.items() if len(m) > 1]


def _join_same(
    thumbnails: Thumbnails,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    joined: _Joined,
    *,
    mirrored: bool,
    same: float,
) -> None:
    """Judge candidate pairs at full thumbnail size, skipping those already known as one."""
    for start in range(0, len(rows), 256):
        pairs = zip(
            rows[start : start + 256].tolist(), columns[start : start + 256].tolist(), strict=True
        )
        fresh = [(a, b) for a, b in pairs if joined.root(a) != joined.root(b)]
        if not fresh:
            continue
        first, second = (thumbnails[[pair[side] for pair in fresh]] for side in (0, 1))
        if mirrored:
            second = second[:, :, ::-1]
        similarity = (_unit(detail(first)) * _unit(detail(second))).sum(axis=1)
        for (a, b), value in zip(fresh, similarity.tolist(), strict=True):
            if value >= same:
                joined.join(a, b, min(value, 1.0))
