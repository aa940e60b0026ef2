"""Grades of which there are no training images, or hardly any, in the words of every training."""

from collections.abc import Sequence

from dismix.data.rank_names import own_numbers
from dismix.labels import OrdinalTarget

#: Of fewer images a model learns those by heart.
LEAST = 2


def missing_grades(target: OrdinalTarget, names: Sequence[str]) -> str:
    """Return the grades that no image has, not even by a single vote; nothing if all have some.

    Args:
        target: Of the N training images.
        names: C names of the ranks, low to high.

    Example:
        >>> missing_grades(OrdinalTarget.from_labels([0, 2], 4), ("no", "mild", "more", "most"))
        "1 ('mild'), 3 ('most')"
    """
    missing = (rank for rank, mass in enumerate(target.probs.sum(0).tolist()) if mass == 0)
    return ", ".join(called(rank, names) for rank in missing)


def rare_note(target: OrdinalTarget, names: Sequence[str]) -> str:
    """Return what to say of grades that hardly any image has by majority, else nothing.

    Args:
        target: Of the N training images.
        names: C names of the ranks, low to high.

    Example:
        >>> rare_note(OrdinalTarget.from_labels([0, 0, 1], 2), ("none", "mild"))
        "very few training images of grade 1 ('mild'): 1"
        >>> rare_note(OrdinalTarget.from_labels([0, 0, 2, 2], 3), ("none", "mild", "severe"))
        ''
    """
    counts = target.hard.bincount(minlength=target.num_ranks).tolist()
    voted = target.probs.sum(0).tolist()
    rare = [c for c, count in enumerate(counts) if count < LEAST and voted[c] > 0]
    listed = ", ".join(f"{called(c, names)}: {counts[c]}" for c in rare)
    return f"very few training images of grade {listed}" if rare else ""


def called(rank: int, names: Sequence[str]) -> str:
    """Return what a rank is called; its position beside a name that has a number would confuse.

    Example:
        >>> called(2, ("none", "mild", "severe")), called(2, ("1", "2", "3"))
        ("2 ('severe')", "'3'")
    """
    return f"{rank} ('{names[rank]}')" if own_numbers(names) is None else f"'{names[rank]}'"
