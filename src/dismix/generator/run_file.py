"""``run.json``: what a run was started with, and whether it may go on.

Data are known by names, splits and labels, so that they may be moved between the start of a run
and its end.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dismix import atomic
from dismix.data.rank_names import require_same_order
from dismix.errors import DisMixError
from dismix.generator.checkpoint import FILE
from dismix.generator.model import WEIGHTS_FILE
from dismix.generator.reading import READING, require_same_reading, run_reading
from dismix.generator.trained_on import FILE as TRAINED_ON
from dismix.provenance import provenance

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest

RUN_FILE = "run.json"
#: What is trained before the generator and kept, so that a resumed run learns under the same.
GRADERS = ("guide.safetensors", "reader.safetensors")


def check_same(run: Path, described: Mapping[str, Any]) -> bool:
    """Tell whether a folder holds a run; one of other settings is an error."""
    path = run / RUN_FILE
    if not path.is_file():
        return False
    refuse_other(path, described)
    return True


def refuse_other(path: Path, described: Mapping[str, Any]) -> None:
    """Raise where a ``run.json`` says something else than what a run is to be resumed with.

    Args:
        path: The file.
        described: What it should say. Data are compared by their fingerprint where the file
            has it, so that they may have been moved.
    """
    old = atomic.read_json(path, cure="restore it, or choose another folder")
    # By fingerprint, else (files from before it was noted) by the path.
    passed = "manifest" if "data" in old else "data"
    for key, value in described.items():
        if key == passed or old.get(key) == value:
            continue
        name = {"data": "images or labels"}.get(key, key)
        raise DisMixError(
            f"was started with {'other' if name.endswith('s') else 'another'} {name}",
            file=path,
            cure="resume with the same settings, or choose another folder",
        )


def manifest_of(described: Mapping[str, Any]) -> Path:
    """Return where the manifest named in a ``run.json`` lies, seen from the current folder.

    Where it lay first; other data may have the same name here ("data", "manifest.csv").

    Example:
        >>> manifest_of({"manifest": "not/here", "manifest_at": "/data/not/here"}).as_posix()
        '/data/not/here'
    """
    given = Path(described["manifest"])
    first = Path(described.get("manifest_at", given))
    return given if given.exists() and not first.exists() else first


def name_of(path: Path) -> str:
    """Return the name of data as part of a file's name.

    Example:
        >>> name_of(Path("/data/their knees/manifest.csv")), name_of(Path("/data/other.csv"))
        ('their_knees', 'other')
    """
    named = path.parent if path.name == "manifest.csv" else path
    return re.sub(r"[^\w.-]+", "_", named.resolve().stem)


def continued(path: Path, now: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of a run that goes on: where it began, and each time it went on.

    Args:
        path: Its ``run.json``.
        now: Of this process.
    """
    old = atomic.read_json(path, cure="restore it, or choose another folder").get("provenance")
    return {**old, "resumed": [*old.get("resumed", []), now]} if old else now


def claim(
    run: Path,
    described: dict[str, Any],
    resume: bool,
    reading: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> None:
    """Write ``run.json``, or check that it says the same and note that the run goes on.

    Args:
        run: Run folder.
        described: What the run is started with.
        resume: Whether it goes on.
        reading: How its images are read, see `dismix.generator.reading`.
        device: Kind of the device that computes.
    """
    path, now = run / RUN_FILE, provenance(device)
    if resume and check_same(run, described):
        now = continued(path, now)
    elif (run / FILE).is_file() or (run / WEIGHTS_FILE).is_file():
        # The checkpoint may have been deleted when the run was over; the generator must not go
        # too, nor pass for that of other settings and images until another one is chosen.
        goes_on = path.is_file() and (run / FILE).is_file()
        raise DisMixError(
            "holds a run already" if path.is_file() else f"holds a run without its {RUN_FILE}",
            file=run,
            cure=("add --resume, or " if goes_on else "") + "choose another folder",
        )
    else:
        # Left by a run that was killed early and may have had other settings.
        for name in (*GRADERS, TRAINED_ON):
            (run / name).unlink(missing_ok=True)
    # The data are to be found from other folders too; where they lie may change, though.
    found = {"manifest_at": str(Path(described["manifest"]).resolve()), "provenance": now}
    # Not among what a resumed run must agree with: the fingerprint is made of it, and older runs
    # do not say it.
    reading = {} if reading is None else {READING: dict(reading)}
    atomic.write_json(path, {**described, **found, **reading})


def take_graders(run: Path, beside: Path, described: Mapping[str, Any]) -> None:
    """Copy the guide and the reader of a run that trained the same ones, if there is one.

    Args:
        run: The run that begins.
        beside: Folder of other runs.
        described: What its ``run.json`` says.
    """
    for other in sorted(path.parent for path in beside.glob(f"*/{RUN_FILE}")):
        try:
            known = _graders_of(json.loads((other / RUN_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # Of a grader, say, or damaged: nothing to take from.
            continue
        if other == run or known != _graders_of(described):
            continue
        for name in GRADERS:
            if (other / name).is_file() and not (run / name).exists():
                with atomic.replacing(run / name) as temporary:
                    shutil.copyfile(other / name, temporary)


def _graders_of(described: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all that guide and reader depend on."""
    config, recipe = described["config"], described["recipe"]
    return (
        described.get("data"), described["seed"],
        *(config.get(key) for key in ("num_ranks", "in_channels", "image_size", "arch")),
        # What the reader is depends on it.
        config.get("ordinal_trunk"),
        *(recipe.get(key) for key in ("guide_kind", "guide_steps")),
        # Runs from before these have none.
        *(recipe.get(key, 0.0) for key in ("guide_lr", "guide_blur")),
    )  # fmt: skip


def require_fitting(run: Path, data: "Manifest") -> None:
    """Raise where data are not of the kind that a generator knows: other ranks, read otherwise.

    Args:
        run: The generator's run folder.
        data: What it is used on.
    """
    require_same_ranks(run, data)
    require_same_reading(run_reading(run), data)


def require_same_ranks(run: Path, data: "Manifest") -> None:
    """Raise where data name the ranks of a generator in another order; warn of other names.

    Ranks are known by their numbers: read from the other end, every mix would get a wrong label.

    Args:
        run: The generator's run folder; older ones do not name their ranks.
        data: What it is used on.
    """
    try:
        known = json.loads((run / RUN_FILE).read_text(encoding="utf-8")).get("ranks")
    except (OSError, ValueError, AttributeError):
        return
    given = [*data.meta.ranks]
    if not known or known == given or len(known) != len(given):
        # Another number of ranks has a message of its own.
        return
    require_same_order(known, given, "generator", file=data.path)
