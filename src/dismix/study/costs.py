"""What a study cost: seconds, images seen, and the generators' share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dismix.study.choices import MIXERS


def costs(
    records: Sequence[Mapping[str, Any]], generators: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Add up the seconds of finished runs.

    Args:
        records: All finished runs.
        generators: ``done.json`` of each generator, by its id.

    Returns:
        {"mixers": {name: {"runs", "seconds", "seconds_a_run", "images_seen", "extra"}},
        "generators", "generator_seconds", "total_seconds", "generator_share"}; ``extra`` is the
        time of a run beyond one without mixing, as a share of it.
    """
    rows: dict[str, Any] = {}
    for mixer in MIXERS:
        some = [r for r in records if r["factors"]["mixer"] == mixer]
        seconds = float(sum(r["wall_s"] for r in some))
        rows[mixer] = {
            "runs": len(some), "seconds": seconds, "seconds_a_run": seconds / max(1, len(some)),
            "images_seen": int(np.mean([r["images_seen"] for r in some])) if some else 0,
        }  # fmt: skip
    plain = rows["none"]["seconds_a_run"]
    for row in rows.values():
        row["extra"] = row["seconds_a_run"] / plain - 1 if plain else 0.0
    built = float(sum(done["seconds"] or 0.0 for done in generators.values()))
    total = built + sum(row["seconds"] for row in rows.values())
    return {
        "mixers": rows, "generators": len(generators), "generator_seconds": built,
        "total_seconds": total, "generator_share": built / total if total else 0.0,
    }  # fmt: skip
