"""Checks that need the table only: columns, grades, splits, groups, ranks, annotators."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.annotators.votes import majority_vote, modal_rank
from dismix.data.findings import Finding
from dismix.data.laws import law_columns, read_laws
from dismix.data.manifest import SPLITS, VOTE_PREFIX, ManifestMeta, vote_columns
from dismix.data.patient_columns import group_cure, patient_column, unused_patients
from dismix.data.rank_names import rank_label, rank_numerals
from dismix.data.spelling import same_name
from dismix.data.validate import LARGEST_GRADE, Problem, grade_columns, problems

#: Problems of one kind in one column that are spelled out in a finding.
SPELLED_OUT = 5
#: Training images of a rank below which it is called scarce.
FEW = 10
#: Krippendorff's alpha below which agreement is called low; he asks for 0.667 at the least.
LOW_AGREEMENT = 0.667
#: Votes from which an annotator who only ever gave one grade is worth a word.
MANY_VOTES = 20


@dataclass(frozen=True)
class Sheet:
    """A normalised table that may be full of problems.

    Args:
        table: As :func:`dismix.data.validate.normalise` returns it, N rows.
        meta: None when no meta file says how many ranks there are.
        root: Folder that relative image paths start from.
        title: What is being checked.
        lines: ``(N,)`` line of each row.
    """

    table: pd.DataFrame
    meta: ManifestMeta | None
    root: Path
    title: str
    lines: NDArray[np.int64]

    def column(self, name: str) -> list[str]:
        """Return a column as text, "" where empty or where there is no such column."""
        if name not in self.table:
            return [""] * len(self.table)
        return ["" if pd.isna(v) else str(v) for v in self.table[name]]

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Names of the ranks; numbers up to the largest grade when no meta file names them."""
        if self.meta is not None:
            return self.meta.ranks
        numbers = [self._numbers(c) for c in grade_columns(self.table)]
        valid = np.concatenate([n[~np.isnan(n)] for n in numbers] or [np.empty(0)])
        tops = [*valid.astype(int).tolist(), len(law_columns(self.table)) - 1]
        # As reading has it: two ranks at the least.
        return tuple(str(r) for r in range(max(*tops, 1) + 1)) if max(tops) >= 0 else ()

    @cached_property
    def votes(self) -> NDArray[np.float64]:
        """Valid votes (N, A), NaN elsewhere."""
        columns = [self._valid(c) for c in vote_columns(self.table)]
        return np.stack(columns, axis=1) if columns else np.empty((len(self.table), 0))

    @cached_property
    def grades(self) -> NDArray[np.float64]:
        """Valid reference grades (N,), NaN elsewhere."""
        if "grade" not in self.table:
            return np.full(len(self.table), np.nan)
        return self._valid("grade")

    @property
    def lowest(self) -> int:
        """Lowest grade or vote that anybody gave; 0 where there is none, or where laws begin."""
        given = np.concatenate([self.grades, self.votes.ravel()])
        given = given[~np.isnan(given)]
        return int(given.min()) if len(given) and not law_columns(self.table) else 0

    @cached_property
    def laws(self) -> NDArray[np.float64]:
        """Laws over the ranks (N, C), NaN where there is none or its columns do not fit."""
        laws = read_laws(self.table, len(self.ranks))
        fits = laws.shape[1] == len(self.ranks)
        return laws if fits else np.full((len(self.table), len(self.ranks)), np.nan)

    @cached_property
    def soft(self) -> NDArray[np.bool_]:
        """(N,) True where a law is all that an image has: nobody graded it."""
        if not self.ranks:
            return np.zeros(len(self.table), np.bool_)
        graded = ~np.isnan(self.grades) | ~np.isnan(self.votes).all(axis=1)
        return np.asarray(~graded & ~np.isnan(self.laws).any(axis=1))

    @cached_property
    def labels(self) -> NDArray[np.float64]:
        """(N,) rank of each image as training sees it, NaN where there is none.

        The likeliest rank of a soft label, else the majority of the votes where there are any,
        except in the test split, which goes by the grade.
        """
        splits = np.array(self.column("split"))
        ranks = self.grades.copy()
        learned = (splits != "test") | np.isnan(self.grades)
        voted = ~np.isnan(self.votes).all(axis=1) & learned
        if voted.any():
            ranks[voted] = majority_vote(self.votes[voted], len(self.ranks))
        lawful = ~np.isnan(self.laws).any(axis=1) & learned if self.ranks else np.zeros_like(voted)
        if lawful.any():
            ranks[lawful] = modal_rank(self.laws[lawful])
        return ranks

    def counts(self) -> dict[str, list[int]]:
        """Return the number of images of each rank, for each split that has any."""
        splits, ranks = np.array(self.column("split")), self.labels
        result = {}
        for split in SPLITS:
            label = ranks[(splits == split) & ~np.isnan(ranks)].astype(int)
            if len(label):
                result[split] = np.bincount(label, minlength=len(self.ranks)).tolist()
        return result

    def _numbers(self, column: str) -> NDArray[np.float64]:
        """Return whole numbers from 0 of a column, NaN for anything else."""
        values = pd.to_numeric(self.table[column], errors="coerce")
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        whole = np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers))
        # A stray huge number must not make a million ranks.
        return np.where(whole & (numbers <= LARGEST_GRADE), numbers, np.nan)

    def _valid(self, column: str) -> NDArray[np.float64]:
        numbers = self._numbers(column)
        return np.where(numbers < len(self.ranks), numbers, np.nan)


def table_findings(sheet: Sheet) -> Iterator[Finding]:
    """Yield everything wrong with, or worth knowing about, a table."""
    num_ranks = None if sheet.meta is None else len(sheet.ranks)
    found = problems(sheet.table, num_ranks, sheet.root)
    yield from problem_findings(found, sheet.lines, sheet.column("image"))
    if sheet.meta is not None and sheet.meta.notes:
        yield Finding("note", "source", sheet.meta.notes)
    if patients := patient_column(sheet.table):
        yield Finding(
            "warning", "patients-unused", unused_patients(sheet.table), cure=group_cure(patients)
        )
    counts = sheet.counts()
    if counts:
        yield from _rank_findings(sheet, counts)
        yield from _split_findings(counts, made=bool(sheet.soft.all()))
        yield from _soft_findings(sheet)
    yield from _group_findings(sheet)
    yield from _annotator_findings(sheet)


def problem_findings(
    problems: Iterable[Problem], lines: NDArray[np.int64], images: Sequence[str]
) -> Iterator[Finding]:
    """Group the problems that also stop reading by kind and column.

    Args:
        problems: Problems whose rows are positions in the table.
        lines: (N,) line of each row.
        images: N image names.
    """
    kinds = defaultdict(list)
    for problem in problems:
        kinds[problem.code, problem.column].append(problem)
    for (code, column), found in kinds.items():
        positions = [p.row for p in found if p.row is not None]
        rows = tuple(int(lines[p]) for p in positions)
        parts = [
            (f"row {lines[p.row]}: " if p.row is not None else "") + p.message
            for p in found[:SPELLED_OUT]
        ]
        more = f", and {len(found) - len(parts)} more rows" if len(found) > len(parts) else ""
        message = (f"column '{column}', " if column else "") + ", ".join(parts) + more
        files = tuple(images[p] for p in positions)
        yield Finding("error", code, message, rows, files, found[0].cure)


def _rank_findings(sheet: Sheet, counts: dict[str, list[int]]) -> Iterator[Finding]:
    total = np.sum(list(counts.values()), axis=0)
    train = np.array(counts.get("train", total))
    lowest = sheet.lowest
    if sheet.meta is None and lowest:
        yield Finding(
            "warning",
            "first-rank",
            f"no image has grade 0; the lowest grade is {lowest}",
            cure="ranks are numbered from 0: import the table again with --set"
            f" first_rank={lowest}, or with --ranks if there are lower ranks",
        )
    for rank in range(len(sheet.ranks)):
        label = f"rank {rank_label(rank, sheet.ranks)}"
        if total[rank] == 0:
            yield Finding(
                "warning", "rank-gap", f"{label} has no image",
                cure="merge ranks, or drop it from the list of ranks",
            )  # fmt: skip
        elif train[rank] == 0:
            yield Finding(
                "error", "rank-not-in-train", f"{label} has images, but none in train",
                cure="move some to train: it cannot be learnt",
            )  # fmt: skip
        elif train[rank] < FEW:
            yield Finding(
                "warning", "few-images", f"{label} has {train[rank]} training images",
                cure=f"below {FEW} a rank can hardly be learnt or split",
            )  # fmt: skip
    yield from _held_out_findings(sheet, counts, total)


def _held_out_findings(
    sheet: Sheet, counts: dict[str, list[int]], total: NDArray[np.int64]
) -> Iterator[Finding]:
    """Say which ranks validation and test lack, of those that have images (total: (C,))."""
    effects = {
        "val": "checkpoints are chosen without them",
        "test": "nothing is measured of them",
    }
    for split, effect in effects.items():
        lacking = np.flatnonzero((total > 0) & (np.array(counts.get(split, total)) == 0))
        if len(lacking):
            named = ", ".join(rank_label(rank, sheet.ranks) for rank in lacking.tolist())
            yield Finding(
                "warning", "rank-not-in-part",
                f"{split} has no image of rank{'' if len(lacking) == 1 else 's'} {named}",
                cure=f"{effect}: move some there, or split again",
            )  # fmt: skip


def _split_findings(counts: dict[str, list[int]], *, made: bool) -> Iterator[Finding]:
    if "train" not in counts:
        yield Finding("warning", "no-train", "no image is in split train")
    # A folder of mixes is for training; that is said in its own words.
    if "test" not in counts and not made:
        yield Finding(
            "note", "no-test", "no image is in split test",
            cure="`dismix data split MANIFEST --test 0.2 --val 0.15 -o NEW` parts the images",
        )  # fmt: skip


def _soft_findings(sheet: Sheet) -> Iterator[Finding]:
    count = int(sheet.soft.sum())
    if count == 0:
        return
    rows = sheet.laws[sheet.soft]
    between = int((rows.max(axis=1) < 1 - 1e-6).sum())
    yield Finding(
        "note", "soft-labels",
        f"{count} images have a soft label (prob_0 to prob_{len(sheet.ranks) - 1}) and no grade, "
        f"{between} of them between ranks; each is counted under its likeliest rank",
        cure="train on them beside graded images, and evaluate on graded images only",
    )  # fmt: skip


def _group_findings(sheet: Sheet) -> Iterator[Finding]:
    """Say which patients are perhaps one person, whose images splits would part."""
    if "group" not in sheet.table:
        return
    given, parts = sheet.table["group"], sheet.column("split")
    spelled: dict[str, dict[str, int]] = defaultdict(dict)
    for row in np.flatnonzero(given.notna()):
        name = str(given.iloc[row])
        spelled[same_name(name)].setdefault(name, int(row))
    found = [list(rows.items()) for rows in spelled.values() if len(rows) > 1]
    if found:
        (one, first), (other, second) = found[0][:2]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield Finding(
            "warning", "groups-alike",
            f"groups '{one}' (row {sheet.lines[first]}, split {parts[first]}) and '{other}' (row "
            f"{sheet.lines[second]}, split {parts[second]}) differ in spelling only{more}",
            rows=tuple(int(sheet.lines[row]) for pairs in found for _, row in pairs),
            cure="write the ids of a patient alike: splits take these for different ones",
        )  # fmt: skip


def _annotator_findings(sheet: Sheet) -> Iterator[Finding]:
    names = [c.removeprefix(VOTE_PREFIX) for c in vote_columns(sheet.table)]
    for name, votes in zip(names, sheet.votes.T, strict=True):
        given = votes[~np.isnan(votes)]
        if len(given) == 0:
            yield Finding(
                "warning", "no-votes", f"annotator '{name}' graded nothing", cure="drop the column"
            )
        elif len(given) >= MANY_VOTES and len(set(given.tolist())) == 1:
            yield Finding(
                "warning", "one-grade-only",
                f"annotator '{name}' gave all {len(given)} images grade"
                f" {rank_numerals(sheet.ranks)[int(given[0])]}",
                cure="check that the column holds votes",
            )  # fmt: skip
    if len(names) > 1 and len(sheet.ranks) > 1:
        yield from _agreement_finding(sheet)


def _agreement_finding(sheet: Sheet) -> Iterator[Finding]:
    from dismix.data.annotators.agreement import krippendorff_alpha

    ranks = np.arange(len(sheet.ranks))
    tally = (sheet.votes[:, :, None] == ranks).sum(axis=1)
    alpha = krippendorff_alpha(tally)
    if alpha < LOW_AGREEMENT:
        yield Finding(
            "note", "low-agreement", f"Krippendorff's ordinal alpha of the votes is {alpha:.2f}",
            cure="see `dismix data annotators agreement`",
        )  # fmt: skip
