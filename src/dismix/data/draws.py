"""Random numbers that belong to an image, not to its place in a file.

Votes, splits and subsets all start from one seed. Numbers drawn in file order would change
for every image below an inserted row; here each key (an image's name, a group) is hashed with
the seed, so an image keeps its draw whatever the order of the rows, and whatever other rows
exist as long as the keys stay as long as they are (see :func:`image_keys`).
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_WORDS_PER_BLOCK = 8


def image_keys(paths: Sequence[Path], parts: int = 1) -> list[str]:
    """Name each image by the fewest trailing parts of its path that tell all of them apart.

    The folder above the data set is left out, so that a copy elsewhere, or a manifest written
    into another folder, gives the same draws.

    All keys have the same number of parts. A row whose name is taken already, in another folder,
    therefore makes all keys longer and changes every draw, as does leaving out the last such
    row. Lengthening only the keys that clash would change the draws of published results: 103
    names of IDRiD are in both of its folders, and all of its images are drawn by two parts.

    Args:
        paths: Of N images.
        parts: So many parts at least: those of a larger set, for names that hold in all of it.

    Example:
        >>> image_keys([Path("/data/idrid/train/001.jpg"), Path("/data/idrid/test/001.jpg")])
        ['train/001.jpg', 'test/001.jpg']
    """
    # Accents as one sign: how a disk spells them is no property of an image.
    paths = [Path(unicodedata.normalize("NFC", str(path))) for path in paths]
    split = [path.parts for path in paths]
    longest = max((len(p) for p in split), default=0)
    for depth in range(min(parts, longest), longest + 1):
        keys = ["/".join(p[-depth:]) for p in split]
        if len(set(keys)) == len(keys):
            return keys
    return [path.as_posix() for path in paths]


def keyed_uniforms(
    keys: Sequence[str], width: int, *, seed: int, purpose: str
) -> NDArray[np.float64]:
    """Draw ``width`` uniform numbers in [0, 1) for each key.

    Args:
        keys: N strings, such as image paths.
        width: Numbers for each key; the first ones do not depend on ``width``.
        seed: Any whole number.
        purpose: What the draw is for; draws with different purposes are independent.

    Returns:
        (N, width) numbers with 53 random bits each, the same on every machine.

    Example:
        >>> keyed_uniforms(["a.png", "b.png"], 2, seed=0, purpose="votes").round(3)
        array([[0.748, 0.622],
               [0.085, 0.735]])
    """
    blocks = -(-width // _WORDS_PER_BLOCK)
    digests = b"".join(
        hashlib.blake2b(
            f"{purpose}\0{seed}\0{block}\0{key}".encode("utf-8", "surrogateescape")
        ).digest()
        for key in keys
        for block in range(blocks)
    )
    words = np.frombuffer(digests, dtype="<u8").reshape(len(keys), blocks * _WORDS_PER_BLOCK)
    # The top 53 bits are what a float64 in [0, 1) can hold.
    return (words[:, :width] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def drawn_order(keys: Sequence[str], *, seed: int, purpose: str) -> NDArray[np.int64]:
    """Return the positions (N,) of the keys in random order, whatever order they come in.

    Example:
        >>> drawn_order(["a.png", "b.png", "c.png"], seed=0, purpose="votes")
        array([1, 0, 2])
    """
    draws = keyed_uniforms(keys, 1, seed=seed, purpose=purpose)[:, 0]
    return np.lexsort((np.asarray(keys, dtype=str), draws)).astype(np.int64)
