"""A study of seconds: tiny phantom knees, the tiny backbone, a generator of two epochs."""

from pathlib import Path
from typing import Any

from dismix.bench.folder import BenchFolder
from dismix.bench.plan import Plan, make_plan, read_plan
from dismix.bench.resolve import resolve
from dismix.bench.specs import Study

VOLATILE = ("wall_s", "generator_s", "peak_memory_mib", "provenance", "plan", "evaluation",
            "at_once")  # fmt: skip


def tiny_plan(name: str = "tiny", **changes: Any) -> Plan:
    """Return the smoke plan with some fields changed."""
    content = read_plan("smoke").to_dict()
    return make_plan({**content, **changes}, name)


def tiny_study(folder: Path, **changes: Any) -> tuple[Study, BenchFolder]:
    """Resolve `tiny_plan` in a folder."""
    bench = BenchFolder(folder)
    return resolve(tiny_plan(**changes), bench), bench


def lasting(bench: BenchFolder) -> dict[str, Any]:
    """Return all records by id, without what differs from time to time."""
    return {
        record["id"]: {k: v for k, v in record.items() if k not in VOLATILE}
        for record in bench.records()
    }
