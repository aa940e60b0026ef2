"""Rows of a manifest that `dismix mix write` made of other images.

They belong to training: each shows parts of its sources, so whatever part of the data it is dealt
into, its sources may lie in another.
"""

import numpy as np
from numpy.typing import NDArray

from dismix.data.laws import law_columns
from dismix.data.manifest import Manifest
from dismix.errors import DisMixError

#: Beside a law, what tells a mix from a photograph with a soft label.
_MARK = "policy"
#: What to do where mixes would have to be split.
INSTEAD = "split the manifest that they were made of, and make mixes of its training part"


def mixed_rows(manifest: Manifest) -> NDArray[np.bool_]:
    """Return (N,) True where a row is a mix: it has a law and a policy, and nobody graded it.

    Example:
        >>> import pandas as pd
        >>> from dismix.data.manifest import make_manifest
        >>> table = pd.DataFrame({"image": ["a", "b"], "grade": [0, None], "prob_0": [None, 0.5],
        ...                       "prob_1": [None, 0.5], "policy": [None, "ordinal_mix"]})
        >>> mixed_rows(make_manifest(table, None, ".")).tolist()
        [False, True]
    """
    laws = law_columns(manifest.table)
    if not laws or _MARK not in manifest.table:
        return np.zeros(len(manifest), np.bool_)
    made = manifest.table[[*laws, _MARK]].notna().all(axis=1).to_numpy(dtype=bool)
    return np.asarray(made & np.isnan(manifest.grades) & ~manifest.has_votes)


def refuse_mixes(manifest: Manifest) -> None:
    """Raise where rows are mixes: dealt into parts, they carry images from one to another."""
    count = int(mixed_rows(manifest).sum())
    if count:
        raise DisMixError(
            f"{count} of {len(manifest)} images are mixes, which show parts of their sources: a"
            " split of them leaks",
            file=manifest.path,
            cure=INSTEAD,
        )
