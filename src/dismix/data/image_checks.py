"""Checks that open the images: readable, alike in size and colour, no twins."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from dismix.data.decode import SKIP
from dismix.data.depth_checks import level_findings
from dismix.data.findings import Finding, Level
from dismix.data.looks import Look, look_at_all
from dismix.data.near_files import names_by_stem
from dismix.data.rank_names import rank_numerals
from dismix.data.spelling import as_on_disk
from dismix.data.table_checks import Sheet
from dismix.data.twins import Twins, find_twins
from dismix.progress import Progress

#: Ratio of the largest to the smallest area, or proportion, from which sizes are worth a word.
AREA_RATIO, SHAPE_RATIO = 4.0, 1.5
#: Twins that a message names before it only counts the rest.
NAMED = 6
#: What the commands that decode advise, in the words of this one.
_DROP = "or leave the row out with --write-readable"
_ALIKE = {
    "identical": "are byte-identical",
    "near": "show the same picture (similarity {:.2f})",
    "mirrored": "show the same picture mirrored (similarity {:.2f})",
}


def image_findings(
    sheet: Sheet, *, near: bool, mirrored: bool, progress: Progress | None
) -> list[Finding]:
    """Open every image once and report what is wrong.

    Args:
        sheet: Table with a column ``image``.
        near: Search for near-identical pictures.
        mirrored: Search for mirrored pictures too.
        progress: Called with (stage, done, total).
    """
    names = sheet.column("image")
    # An image listed twice is a problem of the table, not a twin of itself.
    listed = {name: row for row, name in reversed(list(enumerate(names))) if name}
    rows = sorted(listed.values())
    paths = [as_on_disk(sheet.root / names[row]) for row in rows]
    bits = 16 if sheet.meta is None else sheet.meta.bits
    looks = look_at_all(paths, bits=bits, progress=progress)
    findings = list(_unreadable(sheet, names, rows, looks))
    findings += _size_findings(looks)
    findings += _colour_findings(sheet, names, rows, looks)
    findings += _transparent_finding(sheet, names, rows, looks)
    findings += level_findings(sheet, names, rows, looks)
    found = find_twins(paths, looks, near=near, mirrored=mirrored, progress=progress)
    groups = [([rows[m] for m in twins.members], twins) for twins in found]
    made = [_only_made(sheet, members) for members, _ in groups]
    findings += [
        _twin_finding(sheet, names, *g) for g, m in zip(groups, made, strict=True) if not m
    ]
    findings += _alike_findings(sheet, names, [g for g, m in zip(groups, made, strict=True) if m])
    return findings


def _unreadable(
    sheet: Sheet, names: Sequence[str], rows: Sequence[int], looks: Sequence[Look]
) -> Iterator[Finding]:
    # Each folder is listed once: a wrong ending makes all of its images missing.
    listed = lru_cache(maxsize=None)(names_by_stem)
    for row, look in zip(rows, looks, strict=True):
        if look.error is None:
            continue
        line, name = int(sheet.lines[row]), names[row]
        path = as_on_disk(sheet.root / name)
        # Unlike the methods of a path, this takes a name that is too long for one that is absent.
        there = os.path.exists(path)
        code = "unreadable-image" if there else "missing-image"
        code = "missing-package" if look.lacks_package else code
        cure = look.cure.replace(SKIP, _DROP) if there else _near_file(path, listed)
        yield Finding("error", code, f"row {line}: {name}: {look.error}", (line,), (name,), cure)


def _near_file(path: Path, listed: Callable[[Path], dict[str, str]]) -> str:
    """Return a cure for a missing file: another ending or case, or an absent folder.

    Args:
        path: Where it should be.
        listed: Gives the names of the files in a folder by their stems, as `names_by_stem` does.
    """
    folder = path.parent
    if "\\" in path.name:
        return "write / instead of \\, or let `dismix data import` read the table"
    if not os.path.isdir(folder):
        return f"there is no folder '{folder.name}' in {folder.parent}"
    if os.path.islink(path):
        return "it is a link to a file that is gone"
    other = listed(folder).get(path.stem.casefold())
    return f"did you mean '{other}'?" if other else f"correct the path, {_DROP}"


def _size_findings(looks: Sequence[Look]) -> Iterator[Finding]:
    sizes = sorted({look.size for look in looks if look.size is not None})
    if len(sizes) < 2:
        return
    areas = [width * height for width, height in sizes]
    shapes = [width / height for width, height in sizes]
    if max(areas) / min(areas) >= AREA_RATIO or max(shapes) / min(shapes) >= SHAPE_RATIO:
        small, large = sizes[int(np.argmin(areas))], sizes[int(np.argmax(areas))]
        yield Finding(
            "note", "mixed-sizes",
            f"{len(sizes)} sizes, from {small[0]} x {small[1]} to {large[0]} x {large[1]} pixels,"
            f" width to height {min(shapes):.2f} to {max(shapes):.2f}",
            cure="make sure that size does not give the grade away",
        )  # fmt: skip


def _colour_findings(
    sheet: Sheet, names: Sequence[str], rows: Sequence[int], looks: Sequence[Look]
) -> Iterator[Finding]:
    grey = [r for r, look in zip(rows, looks, strict=True) if look.channels == 1]
    colour = [r for r, look in zip(rows, looks, strict=True) if look.channels == 3]
    if grey and colour:
        few, kind = (grey, "grey") if len(grey) <= len(colour) else (colour, "colour")
        lines = tuple(int(sheet.lines[r]) for r in few)
        yield Finding(
            "warning", "mixed-colour",
            f"{len(grey)} images are grey and {len(colour)} in colour; the first {kind} one is"
            f" row {lines[0]}: {names[few[0]]}",
            lines, tuple(names[r] for r in few), "convert them to one kind",
        )  # fmt: skip
    if sheet.meta is not None and sheet.meta.grey and colour and not grey:
        yield Finding("warning", "not-grey", "the manifest says grey, but the images are in colour")
    if sheet.meta is not None and not sheet.meta.grey and grey and not colour:
        yield Finding(
            "note", "all-grey", "all images are grey, but the manifest does not say so",
            cure="`dismix data import ... --set grey=true` keeps one channel",
        )  # fmt: skip


def _transparent_finding(
    sheet: Sheet, names: Sequence[str], rows: Sequence[int], looks: Sequence[Look]
) -> Iterator[Finding]:
    clear = [r for r, look in zip(rows, looks, strict=True) if look.transparent]
    if clear:
        lines = tuple(int(sheet.lines[r]) for r in clear)
        yield Finding(
            "note", "transparent",
            f"{len(clear)} of {len(rows)} images have transparent pixels, which are read as black;"
            f" the first is row {lines[0]}: {names[clear[0]]}",
            lines, tuple(names[r] for r in clear),
            "export them on another background if black is not theirs",
        )  # fmt: skip


def _only_made(sheet: Sheet, members: Sequence[int]) -> bool:
    """Return whether twins in one split are mixes, with a single photograph among them at most."""
    splits = sheet.column("split")
    made = int(sheet.soft[list(members)].sum())
    return made > 0 and made >= len(members) - 1 and len({splits[row] for row in members}) == 1


def _alike_findings(
    sheet: Sheet, names: Sequence[str], groups: Sequence[tuple[Sequence[int], Twins]]
) -> Iterator[Finding]:
    """Say once that pictures with soft labels resemble others: of mixes that is no mistake."""
    if not groups:
        return
    # One of several identical files is compared with other pictures: it may stand in two groups.
    members = sorted({row for rows, _ in groups for row in rows if sheet.soft[row]})
    lines = tuple(int(sheet.lines[row]) for row in members)
    rows, twins = groups[0]
    count = _parted([rows for rows, _ in groups])
    first = " and ".join(names[row] for row in rows[:2])
    alike = _ALIKE[twins.kind].format(twins.similarity)
    yield Finding(
        "note", "alike",
        f"{len(members)} of {int(sheet.soft.sum())} images with soft labels look like another image"
        f" of their split ({count} group{'' if count == 1 else 's'}); {first} {alike}",
        lines, tuple(names[row] for row in members),
        "mixes may resemble each other, but such ones add little",
    )  # fmt: skip


def _parted(groups: Sequence[Sequence[int]]) -> int:
    """Return how many groups are left when those that share a member are one.

    Example:
        >>> _parted([[0, 1], [1, 2], [3, 4]])
        2
    """
    parts: list[set[int]] = []
    for group in groups:
        touched = [part for part in parts if not part.isdisjoint(group)]
        parts = [part for part in parts if part.isdisjoint(group)]
        parts.append(set(group).union(*touched))
    return len(parts)


def _twin_finding(
    sheet: Sheet, names: Sequence[str], members: Sequence[int], twins: Twins
) -> Finding:
    """Say files, splits and grades; a picture in two splits is an error."""
    splits = sheet.column("split")
    given = [_grade_text(sheet, row) for row in members]
    parts = [
        f"{names[row]} ({splits[row]}, {grade})" for row, grade in zip(members, given, strict=True)
    ]
    apart = len({splits[row] for row in members}) > 1
    # Soft labels of mixes differ by nature.
    differ = len({g for g, row in zip(given, members, strict=True) if not sheet.soft[row]}) > 1
    level: Level = "error" if apart else "warning" if differ else "note"
    code = "leak" if apart else "twin-conflict" if differ else "twin"
    cure = "keep it in one split" if apart else "keep one of them"
    if differ:
        cure += ", after deciding on its grade"
    if len(parts) > NAMED:
        parts = [*parts[:NAMED], f"{len(parts) - NAMED} more"]
    message = " and ".join(parts) + " " + _ALIKE[twins.kind].format(twins.similarity)
    lines = tuple(int(sheet.lines[row]) for row in members)
    return Finding(level, code, message, lines, tuple(names[row] for row in members), cure)


def _grade_text(sheet: Sheet, row: int) -> str:
    """Return what people said of an image, in the numbers of their own scale."""
    numerals = rank_numerals(sheet.ranks)
    if not np.isnan(sheet.grades[row]):
        return f"grade {numerals[int(sheet.grades[row])]}"
    votes = sheet.votes[row][~np.isnan(sheet.votes[row])]
    if len(votes):
        return "votes " + ",".join(numerals[int(vote)] for vote in votes)
    if sheet.soft[row]:
        return f"soft label, mean rank {sheet.laws[row] @ np.array(numerals, np.float64):.2f}"
    return "not graded"
