"""A column that names patients while the manifest has no groups: splits would part them unseen."""

import re
import shlex
from collections.abc import Iterator

import pandas as pd

#: What a column of patients is called, the surest first: a table may name the study as well.
_PEOPLE = (
    "patient", "pat", "pt", "pid", "mrn", "subject", "subj", "participant", "person",
    "individual", "donor", "case", "study", "exam",
)  # fmt: skip
#: What may stand beside that word. Others, as in "patient age", make it another thing.
_BESIDE = frozenset({
    "id", "ids", "uid", "guid", "no", "nr", "nb", "num", "number", "code", "key", "name", "hash",
    "index", "instance", "of", "the", "anon",
})  # fmt: skip


def patient_column(table: pd.DataFrame) -> str | None:
    """Return the column that seems to name patients, or None where it is not needed.

    Args:
        table: A manifest's, N rows. Where one row or more has a group, nothing is looked for.

    Returns:
        A column called patient, subject, case, MRN or the like, in any case and with or without
        "id", that names some of them twice and not all alike.

    Example:
        >>> table = pd.DataFrame({"image": ["a", "b", "c"], "Patient ID": [7, 7, 8]})
        >>> patient_column(table), patient_column(table.assign(group=["x", "x", "y"]))
        ('Patient ID', None)
        >>> patient_column(table.rename(columns={"Patient ID": "patient_age"})) is None
        True
    """
    if "group" in table and table["group"].notna().any():
        return None
    found = [(_PEOPLE.index(word), str(c)) for c in table.columns for word in _person(str(c))]
    # Stable: among equals the first of the table.
    for _, column in sorted(found, key=lambda pair: pair[0]):
        given = table[column].replace({"": None}).dropna()
        if 1 < given.nunique() < len(given):
            return column
    return None


def unused_patients(table: pd.DataFrame) -> str:
    """Return the words on a column that names patients and is not used, "" where there is none.

    Args:
        table: A manifest's, N rows.

    Example:
        >>> unused_patients(pd.DataFrame({"case": [1, 1, 2], "split": ["train", "val", "val"]}))
        "column 'case' looks like a patient, but is no group: 1 of 2 is in several splits"
    """
    column = patient_column(table)
    if column is None:
        return ""
    told = f"column '{column}' looks like a patient, but is no group"
    if "split" not in table or table["split"].nunique() < 2:
        return f"{told}: a split would part the images of one"
    splits = table.groupby(column)["split"].nunique()
    apart = int((splits > 1).sum())
    return f"{told}: {apart} of {len(splits)} {'is' if apart == 1 else 'are'} in several splits"


def group_option(column: str) -> str:
    """Return the option of `dismix data import` that makes a group of a column.

    Example:
        >>> print(group_option("Patient ID"))
        --group 'Patient ID'
    """
    return f"--group {shlex.quote(column)}"


def group_cure(column: str) -> str:
    """Return how to make a group of a column in a manifest that is there already."""
    return f"import the table again with {group_option(column)}, or call the column 'group'"


def _person(name: str) -> Iterator[str]:
    """Yield the word of ``_PEOPLE`` that a column's name is, but for words such as "id"."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    rest = [word.lower() for word in words if word.lower() not in _BESIDE]
    if len(rest) == 1:
        word = re.sub(r"(?<=..)(s|s?_?id|nr)$", "", rest[0]) if rest[0] not in _PEOPLE else rest[0]
        if word in _PEOPLE:
            yield word
