"""Lengths that were chosen when a study began, so that it goes on with the very same runs.

A budget is fitted to a measured speed, and a machine is never measured twice alike. All requests
that were ever made of a folder keep theirs: to ask for another plan in between loses nothing.
"""

import json
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.study.budget import Budget, Speed, choose
from dismix.study.choices import Choices, Settled

FILE = "lengths.json"


def lengths(folder: Path, choices: Choices, settled: Settled, images: int, speed: Speed) -> Budget:
    """Return the lengths of a request: those chosen before, else what is chosen now and kept.

    Args:
        folder: The study's.
        choices: What is asked for.
        settled: Networks.
        images: N.
        speed: Of this machine.
    """
    kept = kept_lengths(folder, choices, settled, images)
    if kept is not None:
        return kept
    budget = choose(choices, settled, images, speed)
    one = {"request": _request(choices, settled, images), "budget": budget.to_dict()}
    atomic.write_json(folder / FILE, [*_entries(folder), one])
    return budget


def kept_lengths(folder: Path, choices: Choices, settled: Settled, images: int) -> Budget | None:
    """Return the lengths that were chosen for the same request before, if it was made."""
    request = _request(choices, settled, images)
    for entry in _entries(folder):
        try:
            if entry["request"] == request:
                return Budget(**entry["budget"])
        except (KeyError, TypeError):
            continue
    return None


def _entries(folder: Path) -> list[Any]:
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    # An earlier version kept the last request alone.
    return content if isinstance(content, list) else [content]


def _request(choices: Choices, settled: Settled, images: int) -> dict[str, object]:
    """Return all that lengths depend on, as JSON has it."""
    asked = {k: v for k, v in choices.to_dict().items() if k not in ("metric", "worth")}
    plain = {**asked, "images": images, "arch": settled.arch}
    found: dict[str, object] = json.loads(json.dumps(plain))
    return found
