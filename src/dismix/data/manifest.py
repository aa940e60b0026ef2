"""The data contract: one table, a row an image.

========================  ==============================================================
column                    content
========================  ==============================================================
``image``                 path, relative to the manifest's folder or absolute
``split``                 ``train``, ``val`` or ``test`` (absent: all rows are ``train``)
``group``                 optional: patient, eye pair, slide: rows that must stay together
``grade``                 optional: the published or reference grade, 0..C-1
``annotator_<id>``        optional, any number: that annotator's grade, empty = not graded
``prob_<rank>``           optional, one a rank: a law over the ranks, as mixed images have
anything else             kept as it is
========================  ==============================================================

Every row needs a grade, at least one vote or a law. Training and validation use a row's law when
it has one, then its votes, then its grade; testing uses the grade when there is one. A table
with the columns ``image, annotator, grade`` (the long form that labelling tools export)
is turned into this form on reading.

Beside ``name.csv`` may lie ``name.meta.json``: names of the ranks from low to high, and
whether images are grey or need histogram equalisation. Without it the ranks are
0..largest grade.
"""

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix import atomic
from dismix.data.delimited import SUFFIXES, read_table, require_pyarrow
from dismix.data.draws import image_keys
from dismix.data.encodings import refuse_undecodable
from dismix.data.laws import law_columns, read_laws
from dismix.data.long_form import is_long, pivot_long
from dismix.data.manifest_meta import (
    ManifestMeta,
    meta_path,
    read_meta,
    refuse_bad_ranks,
    write_meta,
)
from dismix.data.overwriting import refuse_ending
from dismix.data.spelling import as_on_disk
from dismix.data.validate import (
    Problem,
    first_problem,
    grade_columns,
    grade_problems,
    jump_problems,
    normalise,
)
from dismix.errors import DisMixError
from dismix.registry import near_names

if TYPE_CHECKING:
    from dismix.labels import OrdinalTarget

__all__ = [
    "SPLITS",
    "VOTE_PREFIX",
    "Manifest",
    "ManifestMeta",
    "make_manifest",
    "meta_path",
    "read_manifest",
    "read_meta",
    "vote_columns",
    "write_manifest",
]

SPLITS = ("train", "val", "test")
VOTE_PREFIX = "annotator_"
#: What messages call a table that was made in memory.
NO_FILE = "the table"


@dataclass(frozen=True)
class Manifest:
    """A validated table of graded images; build with :func:`make_manifest` or read one.

    Attributes:
        table: One row an image, columns as the module says, index 0..N-1.
        meta: Ranks and image settings.
        root: Folder that relative image paths start from.
        path: The file it was read from.
        lines: (N,) line of each row in that file, for messages.
    """

    table: pd.DataFrame
    meta: ManifestMeta
    root: Path
    path: Path | None = None
    lines: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.table)

    @property
    def num_ranks(self) -> int:
        """C."""
        return len(self.meta.ranks)

    @property
    def annotators(self) -> list[str]:
        """Names of the annotators, without the column prefix."""
        return [c.removeprefix(VOTE_PREFIX) for c in vote_columns(self.table)]

    @cached_property
    def votes(self) -> NDArray[np.float64]:
        """Votes (N, A), NaN where an annotator did not grade the image."""
        return self.table[vote_columns(self.table)].to_numpy(np.float64, na_value=np.nan)

    @cached_property
    def grades(self) -> NDArray[np.float64]:
        """Reference grades (N,), NaN where there is none."""
        if "grade" not in self.table:
            return np.full(len(self), np.nan)
        return self.table["grade"].to_numpy(np.float64, na_value=np.nan)

    @cached_property
    def image_paths(self) -> list[Path]:
        """Absolute paths of the images, accents as in the names of the files."""
        return [as_on_disk(self.root / p) for p in self.table["image"]]

    @property
    def has_votes(self) -> NDArray[np.bool_]:
        """(N,) True where at least one annotator graded the image."""
        return np.asarray((~np.isnan(self.votes)).any(axis=1))

    def target(self) -> "OrdinalTarget":
        """Return the targets (N, C) by the rule of this module's head.

        Reference grades of training and validation rows that have votes are not looked at.
        Rows with a law of their own are not ``clean``: nobody graded them.
        """
        import torch

        from dismix.labels import OrdinalTarget

        use_grade = ~self.has_votes | (
            (self.table["split"] == "test").to_numpy() & ~np.isnan(self.grades)
        )
        votes = np.full((len(self), max(1, self.votes.shape[1])), np.nan)
        votes[:, : self.votes.shape[1]] = self.votes
        votes[use_grade] = np.nan
        votes[use_grade, 0] = self.grades[use_grade]
        laws = read_laws(self.table, self.num_ranks)
        soft = ~np.isnan(laws).any(axis=1) & ~(
            (self.table["split"] == "test").to_numpy() & ~np.isnan(self.grades)
        )
        if not soft.any():
            return OrdinalTarget.from_votes(torch.from_numpy(votes), self.num_ranks)
        # Any rank will do where the law is going to stand.
        votes[soft, 0] = 0
        probs = OrdinalTarget.from_votes(torch.from_numpy(votes), self.num_ranks).probs
        where = torch.from_numpy(soft)
        probs[where] = torch.from_numpy(laws[soft]).float()
        return OrdinalTarget.from_probs(probs, clean=~where)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits of all that a training takes from here but the pixels.

        Names of images, splits, targets, ranks and how files are read; not the folder that the
        data lie in.
        """
        meta = self.meta
        plain = [
            image_keys(self.image_paths), self.table["split"].tolist(), [*meta.ranks],
            meta.equalize, meta.grey, meta.bits, meta.fit,
        ]  # fmt: skip
        total = hashlib.sha256(json.dumps(plain).encode())
        # Bytes of one fixed type: text of floats could differ between versions.
        total.update(self.target().probs.numpy().astype("<f4").tobytes())
        return total.hexdigest()[:16]

    def split(self, *names: str) -> "Manifest":
        """Return the rows of the named splits.

        Raises:
            DisMixError: For an unknown split name.
        """
        for name in names:
            if name not in SPLITS:
                raise DisMixError(f"unknown split '{name}'", cure=near_names(name, list(SPLITS)))
        return self.rows(self.table["split"].isin(names).to_numpy())

    def rows(self, keep: NDArray[Any]) -> "Manifest":
        """Return the rows given by a boolean mask or by positions."""
        table = self.table[keep] if keep.dtype == bool else self.table.iloc[keep]
        lines = self.lines[keep] if len(self.lines) else self.lines
        return replace(self, table=table.reset_index(drop=True), lines=lines)

    def with_table(self, table: pd.DataFrame) -> "Manifest":
        """Return a manifest with another table of the same ranks and root, validated."""
        return make_manifest(table, self.meta, self.root)


def vote_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that hold annotators' votes, in the table's order."""
    return [c for c in table.columns if str(c).startswith(VOTE_PREFIX)]


def make_manifest(
    table: pd.DataFrame,
    meta: ManifestMeta | None,
    root: str | Path,
    *,
    path: Path | None = None,
    lines: NDArray[np.int64] | None = None,
) -> Manifest:
    """Validate a table and wrap it.

    Args:
        table: Columns as the module's head says; grades may still be text.
        meta: None infers the ranks from the largest grade.
        root: Folder that relative image paths start from.
        path: File to name in messages.
        lines: (N,) line of each row in that file.

    Raises:
        DisMixError: Naming file, row and column, at the first problem.

    Example:
        >>> table = pd.DataFrame({"image": ["a.png", "b.png"], "annotator_ann": [0, 2],
        ...                       "annotator_bob": [1, None]})
        >>> manifest = make_manifest(table, None, ".")
        >>> manifest.num_ranks, manifest.annotators, manifest.target().rank.tolist()
        (3, ['ann', 'bob'], [0.5, 2.0])
    """
    lines = np.arange(len(table)) + 2 if lines is None else np.asarray(lines)
    table = normalise(table)
    if meta is not None:
        refuse_bad_ranks(meta.ranks, path)
    folder = _placed(Path(root))
    num_ranks = None if meta is None else len(meta.ranks)
    _raise_for(first_problem(table, num_ranks, folder), path, lines)
    if meta is None:
        tops = [table[c].max() for c in grade_columns(table) if table[c].notna().any()]
        largest = int(max([*tops, len(law_columns(table)) - 1]))
        meta = ManifestMeta(ranks=tuple(str(rank) for rank in range(max(largest, 1) + 1)))
    return Manifest(table, meta, folder, path, lines)


def read_manifest(path: str | Path) -> Manifest:
    """Read and validate a manifest, wide or long, CSV or Parquet.

    Args:
        path: The file, or a folder that holds ``manifest.csv``.

    Raises:
        DisMixError: Naming file, row and column, at the first problem.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "manifest.csv"
    if not path.is_file():
        raise DisMixError(
            "no such file", file=path, cure="give a manifest, or make one with `dismix data import`"
        )
    table, lines = read_table(path)
    meta = read_meta(path)
    if is_long(table):
        table = normalise(table)
        # Before the pivot, while each vote still has a line of its own.
        num_ranks = None if meta is None else len(meta.ranks)
        _raise_for(next(grade_problems(table["grade"], num_ranks), None), path, lines)
        if meta is None:
            _raise_for(next(jump_problems(table[["grade"]]), None), path, lines)
        table, lines = pivot_long(table, file=path, lines=lines)
    return make_manifest(table, meta, path.parent, path=path, lines=lines)


def write_manifest(manifest: Manifest, path: str | Path) -> None:
    """Write the table (CSV or, by its ending, TSV or Parquet) and ``<stem>.meta.json`` beside it.

    Image paths are written relative to the new folder when they lie below it.

    Raises:
        DisMixError: The path is a folder, has the ending of another format or cannot be written,
            or an image's path is not UTF-8.
    """
    path = Path(path)
    # Asked first: the meta file must not be left behind without its table.
    refuse_ending(path, *SUFFIXES)
    if path.suffix.lower() == ".parquet":
        require_pyarrow(path)
    if path.is_dir():
        raise DisMixError("is a folder", file=path, cure=f"name a file: {path / 'manifest.csv'}")
    folder = _placed(path.parent)
    images = [_relative(p, folder) for p in manifest.image_paths]
    refuse_undecodable(images)
    table = manifest.table.assign(image=images)
    with atomic.replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            table.to_parquet(temporary, index=False)
        else:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            table.to_csv(temporary, index=False, sep=separator, lineterminator="\n")
        # Once the table is whole, and before it is in place: neither a failure nor a kill
        # leaves a manifest with guessed or foreign ranks.
        write_meta(manifest.meta, path)


def _raise_for(problem: Problem | None, path: Path | None, lines: NDArray[np.int64]) -> None:
    if problem is not None:
        row = None if problem.row is None else int(lines[problem.row])
        raise DisMixError(
            problem.message, file=path or NO_FILE, row=row, column=problem.column,
            cure=problem.cure,
        )  # fmt: skip


def _placed(folder: Path) -> Path:
    """Return an absolute folder without "..", which would hide that one lies in the other.

    Links stay as they are where possible: what they point to may move.
    """
    return folder.resolve() if ".." in folder.parts else folder.absolute()


def _relative(path: Path, folder: Path) -> str:
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()
