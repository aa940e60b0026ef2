"""Where a study's data come from: the user's manifests, published folders, drawn phantoms."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.bench.derive import content_digest, derive, sha, source_digest, votes_digest
from dismix.bench.folder import BenchFolder
from dismix.bench.grid import chosen_data, matches
from dismix.bench.plan import Plan
from dismix.bench.plan_checks import DATA
from dismix.bench.specs import DataSpec
from dismix.data.draws import image_keys
from dismix.data.manifest import Manifest, read_manifest, write_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.data.sources import read_source
from dismix.errors import DisMixError
from dismix.progress import Progress
from dismix.registry import near_names

FULL, TRAINING, DERIVED = "manifest.csv", "training.csv", "derived.json"


def open_sources(
    plan: Plan,
    given: Mapping[str, str | Path],
    folder: BenchFolder,
    progress: Progress | None = None,
) -> tuple[dict[str, Manifest], tuple[str, ...]]:
    """Return the manifests of a study by name, and the plan's names that have none.

    Args:
        plan: Its own data sets are used where none are given.
        given: Manifests, or published folders, by name. Any names do.
        folder: Phantoms are drawn below it.
        progress: Called while they are drawn.

    Raises:
        DisMixError: The plan's factor "data" names one that is not there.
    """
    wanted = _wanted(plan, [*(given or dict.fromkeys([*plan.data, *plan.phantoms]))])
    if given:
        return {name: _read(Path(given[name])) for name in wanted}, ()
    found = {
        name: _phantom(name, plan.phantoms[name], folder, progress)
        for name in wanted
        if name in plan.phantoms
    }
    return found, tuple(name for name in wanted if name not in found)


def _wanted(plan: Plan, names: list[str]) -> list[str]:
    """Return the data sets that the plan's factors choose among some."""
    chosen = chosen_data(plan)
    if chosen is None:
        return names
    for name in chosen:
        if not any(matches({DATA: other}, {DATA: [name]}) for other in names):
            cure = near_names(name, names) + ", or " if names else ""
            raise DisMixError(
                f"there is no data set '{name}'", file=plan.place_of("", DATA), column=DATA,
                cure=f"{cure}add --data {name}=MANIFEST",
            )  # fmt: skip
    return [name for name in names if matches({DATA: name}, {DATA: chosen})]


def _read(path: Path) -> Manifest:
    if path.is_file() or (path / FULL).is_file():
        return read_manifest(path)
    return read_source(path)


def _phantom(
    name: str, settings: Mapping[str, Any], folder: BenchFolder, progress: Progress | None
) -> Manifest:
    spec = PhantomSpec.from_json(settings)
    place = f"{name}-{sha(spec.to_json())[:8]}"
    with folder.lock(f"data-{place}"):
        return build_phantom(spec, folder.root / "data" / place, progress=progress)


class Derivations:
    """Derived data of a study, each made once.

    Args:
        folder: Where they are kept.
        keep: Write what is not there yet. Who only looks at a study leaves its folder as it is.
    """

    def __init__(self, folder: BenchFolder, *, keep: bool = True) -> None:
        self.folder, self.keep = folder, keep
        self._digests: dict[str, str] = {}
        self._parts: dict[str, int] = {}
        self._known: dict[str, DataSpec] = {}

    def ready(self, name: str, manifest: Manifest, how: Mapping[str, Any]) -> DataSpec:
        """Return derived data, made now or earlier.

        Args:
            name: What the user calls the source.
            manifest: The source.
            how: From `dismix.bench.derive.derivation`.
        """
        if name not in self._digests:
            self._digests[name] = source_digest(manifest)
            names = image_keys(manifest.image_paths)
            self._parts[name] = 1 + max((key.count("/") for key in names), default=0)
        key = sha([self._digests[name], how])[:16]
        if key not in self._known:
            facts = self._made(key, manifest, how)
            self._known[key] = DataSpec(
                key, name, facts["content"], facts["training"], facts["counts"],
                tuple(facts["ranks"]), facts["grey"], dict(how), self._digests[name],
                self._parts[name],
                # Folders of before do not tell.
                facts.get("votes", ""),
            )  # fmt: skip
        return self._known[key]

    def _made(self, key: str, manifest: Manifest, how: Mapping[str, Any]) -> dict[str, Any]:
        place = self.folder.manifest_dir(key)
        # Before any lock: a folder that cannot be written may still be looked at.
        if (old := _known(place)) is not None:
            return old
        if not self.keep:
            made = derive(manifest, how)
            return _described(made, made.split("train", "val"), how)
        with self.folder.lock(f"manifest-{key}"):
            if (old := _known(place)) is not None:
                return old
            made = derive(manifest, how)
            write_manifest(made, place / FULL)
            training = made.split("train", "val")
            write_manifest(training, place / TRAINING)
            facts = _described(made, training, how)
            atomic.write_json(place / DERIVED, facts)
            return facts


def _described(made: Manifest, training: Manifest, how: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``derived.json`` says of derived data."""
    splits = made.table["split"].value_counts()
    return {
        "content": content_digest(made), "training": content_digest(training),
        "votes": votes_digest(made),
        "counts": {s: int(splits.get(s, 0)) for s in ("train", "val", "test")},
        "ranks": [*made.meta.ranks], "grey": made.meta.grey, "how": dict(how),
        "notes": made.meta.notes,
    }  # fmt: skip


def _known(place: Path) -> dict[str, Any] | None:
    """Return what is known of derived data, unless they are to be made (again).

    They name the images of the source that they were first made from. That may have moved since,
    or changed, while this source is a copy of what it was.
    """
    try:
        facts: dict[str, Any] = json.loads((place / DERIVED).read_text(encoding="utf-8"))
        unchanged = content_digest(read_manifest(place / FULL)) == facts["content"]
    except (OSError, ValueError, KeyError, TypeError, DisMixError):
        return None
    return facts if unchanged else None
