"""From a plan and data to runs: every setting settled, every run named by its content."""

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dismix.bench.derive import derivation
from dismix.bench.folder import BenchFolder
from dismix.bench.generator_specs import generator_spec, given_generator
from dismix.bench.grid import Cell, cells, factors, sections
from dismix.bench.plan import Plan
from dismix.bench.sources import Derivations, open_sources
from dismix.bench.specs import DataSpec, GeneratorSpec, RunSpec, Study, short_id
from dismix.data.batches import batch_bounds
from dismix.data.digest import file_digest
from dismix.data.manifest import Manifest
from dismix.errors import DisMixError
from dismix.generator.weights import find_weights
from dismix.graders.backbones import FILES, TINY, base_name, require_known
from dismix.graders.registry import GRADERS
from dismix.graders.settings import TrainSettings, choose_settings
from dismix.mixing.policy_draws import named_policies
from dismix.mixing.registry import check_options, create_mixer
from dismix.progress import Progress
from dismix.registry import near_names

#: Options that say where files lie and nothing about results.
_PLACES = ("cache_dir", "pool_dir")
#: Timing: steps of a round, rounds.
TIMING = {"steps": 32, "rounds": 3}


def resolve(
    plan: Plan,
    folder: BenchFolder,
    data: Mapping[str, str | Path] | None = None,
    generators: Mapping[str, str | Path] | None = None,
    progress: Progress | None = None,
    *,
    keep: bool = True,
) -> Study:
    """Return all runs of a plan on some data.

    Args:
        plan: What to run.
        folder: Derived data are kept in it, phantoms are drawn there.
        data: Manifests by name; the plan's own (phantoms) when empty.
        generators: Run folders of trained generators by the data's name, instead of training.
        progress: Called while phantoms are drawn.
        keep: Write derived data. Without them the study can be looked at, not run.

    Raises:
        DisMixError: A name that does not exist, data that cannot be used.
    """
    manifests, absent = open_sources(plan, data or {}, folder, progress)
    for name in generators or {}:
        if name not in {**manifests, **(data or {})}:
            raise DisMixError(
                f"a generator is given for '{name}', which is no data set here",
                column="--generator",
                cure=near_names(name, [*manifests]) if manifests else "add --data NAME=MANIFEST",
            )
    maker = _Maker(plan, Derivations(folder, keep=keep), generators or {})
    runs: dict[str, RunSpec] = {}
    _require_known(plan)
    wanted = cells(plan, [*manifests])
    if manifests and not wanted:
        raise DisMixError(
            "leaves out all of its runs", file=plan.path or plan.name, column="skip",
            cure="remove a rule, or name other factors",
        )  # fmt: skip
    for cell in wanted:
        try:
            spec = maker.run(cell, manifests[cell["data"]])
        except DisMixError as error:
            if error.file is not None:
                raise
            place = plan.place_of(error.problem, error.column)
            raise DisMixError(
                error.problem, file=place, column=error.column, cure=error.cure
            ) from error
        if runs.setdefault(spec.id, spec) is not spec:
            _warn_of_twin(runs[spec.id], spec)
    return Study(plan.name, plan.title, tuple(runs.values()), maker.generators, maker.data, absent)


def _require_known(plan: Plan) -> None:
    """Refuse conditions that can never hold: what they change would silently stay as it is."""
    for where, rules in (("overrides", [o["when"] for o in plan.overrides]), ("skip", plan.skip)):
        for name in (name for rule in rules for name in rule.get("grader", ())):
            if name not in GRADERS:
                raise DisMixError(
                    f"unknown grader '{name}'", file=plan.path or plan.name, column=where,
                    cure=near_names(name, [*GRADERS]),
                )  # fmt: skip


def _warn_of_twin(first: RunSpec, second: RunSpec) -> None:
    """Say that two cells of a plan ask for the same training, which is run and shown once."""
    apart = [name for name, value in second.factors.items() if first.factors.get(name) != value]
    if apart:
        ours, theirs = (
            ", ".join(f"{name} {run.factors.get(name)}" for name in apart)
            for run in (second, first)
        )
        warnings.warn(
            f"'{second.factors.get('data')}' with {ours} is the same as with {theirs}, and is run"
            " and shown as that",
            stacklevel=3,
        )


class _Maker:
    """Makes runs and remembers the data and generators they share."""

    def __init__(
        self, plan: Plan, derivations: Derivations, given: Mapping[str, str | Path]
    ) -> None:
        self.plan, self.derivations, self.given = plan, derivations, given
        self.data: dict[str, DataSpec] = {}
        self.generators: dict[str, GeneratorSpec] = {}

    def run(self, cell: Cell, manifest: Manifest) -> RunSpec:
        """Return the run of a cell."""
        chosen = sections(self.plan, cell)
        how = derivation(manifest, cell, chosen)
        data = self.derivations.ready(cell["data"], manifest, how)
        self.data[data.key] = data
        shown = factors(self.plan.kind, cell, how.get("variability"))
        if self.plan.kind == "generator":
            return self._generator_run(cell, chosen, data, shown)
        return self._grader_run(cell, chosen, data, shown)

    def _generator(
        self, cell: Cell, chosen: Mapping[str, Any], data: DataSpec, seed: int | None = None
    ) -> GeneratorSpec:
        place = self.given.get(data.name)
        if place is not None and cell["ablation"] == "full":
            spec = given_generator(Path(place), data)
        else:
            section = {**chosen["generator"], **({} if seed is None else {"seed": seed})}
            spec = generator_spec(section, cell["ablation"], data)
        return self.generators.setdefault(spec.id, spec)

    def _generator_run(
        self, cell: Cell, chosen: Mapping[str, Any], data: DataSpec, shown: dict[str, Any]
    ) -> RunSpec:
        generator = self._generator(cell, chosen, data, cell["seed"])
        judge = _judge_epochs(chosen["settings"])
        config = {
            "data": _described(data), "generator": {"id": generator.id, **generator.described},
            "judge_epochs": judge, "seed": cell["seed"],
        }  # fmt: skip
        parts = {"kind": "generator", "generator": generator.id, "data": data.content}
        return RunSpec(
            short_id({**parts, "judge_epochs": judge}), "generator", self.plan.name, shown, config,
            {"judge_epochs": judge}, data.key, generator.id, cell["seed"], generator.images,
            generator.local.get("blocked"),
        )  # fmt: skip

    def _grader_run(
        self, cell: Cell, chosen: Mapping[str, Any], data: DataSpec, shown: dict[str, Any]
    ) -> RunSpec:
        kind, changes = self.plan.kind, dict(chosen["settings"])
        timing = _timing(changes) if kind == "overhead" else {}
        settings = choose_settings(cell["grader"], self.plan.preset, changes)
        options, blocked = mixer_options(cell, chosen["mixers"], len(data.ranks))
        weights, missing = backbone_weights(settings)
        generator = self._generator(cell, chosen, data) if cell["mixer"] == "dismix" else None
        if generator is not None:
            blocked = blocked or generator.local.get("blocked")
        plain = {**settings.to_dict(), "weights": _plain_weights(settings.weights)}
        mixer = None
        if cell["mixer"] != "none":
            mixer = {"name": cell["mixer"], "options": _pathless(options)}
        parts: dict[str, Any] = {
            "format": 1, "kind": kind, "data": data.content, "grader": plain,
            "weights": None if weights is None else digest_of(weights), "mixer": mixer,
            "generator": None if generator is None else generator.id, "seed": cell["seed"],
            **timing,
        }  # fmt: skip
        if options.get("ranks") == "consensus":
            parts["votes"] = data.votes
        config = {
            **{k: v for k, v in parts.items() if k not in ("format", "kind")},
            "data": _described(data),
            "generator": None if generator is None else {"id": generator.id, **generator.described},
        }
        local = {
            "settings": settings.to_dict(), "options": options, "timing": timing,
            "weights": None if weights is None else str(weights),
            # Names that hold in all folds. Without folds all runs have the same test images, and
            # are named as in the records that there are.
            "parts": data.parts if "fold" in data.how else 1,
        }  # fmt: skip
        return RunSpec(
            short_id(parts), kind, self.plan.name, shown, config, local, data.key,
            None if generator is None else generator.id, cell["seed"],
            images_seen(settings, data.counts["train"]), blocked or missing,
        )  # fmt: skip


def _timing(settings: dict[str, Any]) -> dict[str, int]:
    """Take how long is timed out of a plan's settings."""
    found = {}
    for name, usual in TIMING.items():
        value = settings.pop(name, usual)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DisMixError(
                f"{value!r} is not allowed", column=name, cure="give a whole number >= 1"
            )
        found[name] = value
    return found


def _judge_epochs(settings: Mapping[str, Any]) -> int | None:
    """Return the only setting that measuring a generator has."""
    for name in settings:
        if name != "judge_epochs":
            raise DisMixError(
                f"'{name}' is no setting of a study of generators",
                column="settings",
                cure="give judge_epochs, or write generator.NAME",
            )
    judge = settings.get("judge_epochs")
    if judge is not None and (not isinstance(judge, int) or judge < 0):
        raise DisMixError(
            f"{judge!r} is not allowed", column="judge_epochs", cure="give a whole number >= 0"
        )
    return judge


def images_seen(settings: TrainSettings, count: int) -> int:
    """Return how many images a training shows a grader, repetitions counted.

    Args:
        settings: Of the training.
        count: Training images N.

    Example:
        >>> images_seen(choose_settings("ce", changes={"epochs": 2, "batch_size": 8}), 20)
        32
    """
    size = settings.batch_size
    bounds = batch_bounds(count, size, drop_last=count >= 2 * size)
    return settings.epochs * sum(stop - start for start, stop in bounds)


def mixer_options(
    cell: Mapping[str, Any], mixers: Mapping[str, Mapping[str, Any]], num_ranks: int
) -> tuple[dict[str, Any], str | None]:
    """Return the options of a cell's mixer, checked, and why it cannot run, if so."""
    name = cell["mixer"]
    if name == "none":
        return {}, None
    options = {"p": cell["p"], **mixers.get(name, {})}
    if name == "dismix":
        policies = cell["policies"]
        options["policies"] = policies.split("+") if "+" in policies else policies
        named_policies(options["policies"])
    # As the mixer takes them: 16.0 and 16 are one run.
    options = check_options(name, options)
    if name == "diffusemix" and not options.get("editor"):
        return options, "DiffuseMix needs --set mixers.diffusemix.editor=PIPELINE_FOLDER"
    if name not in ("dismix", "diffusemix"):
        create_mixer(name, num_ranks, **options)
    return options, None


def _pathless(options: Mapping[str, Any]) -> dict[str, Any]:
    found = {k: v for k, v in options.items() if k not in _PLACES}
    if "editor" in found:
        found["editor"] = _editor(Path(str(found["editor"])))
    judge = Path(str(found.get("judge", "")))
    if judge.is_file():
        # Which mixes are kept depends on what it has learned, not on where it lies.
        found["judge"] = digest_of(judge)
    return found


def _editor(place: Path) -> str:
    """Return what tells an editor of pictures from another, wherever it lies.

    Its name, and for a pipeline's folder its settings and the sizes of its files: the weights
    themselves are gigabytes.
    """
    if not place.is_dir():
        return place.name
    files = sorted(path for path in place.rglob("*") if path.is_file())
    parts = [(path.relative_to(place).as_posix(), path.stat().st_size) for path in files]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix == ".json"]
    return f"{place.name} {short_id({'files': parts, 'settings': texts})}"


def backbone_weights(settings: TrainSettings) -> tuple[Path | None, str | None]:
    """Return the file of a backbone's first weights, and what is missing, if anything."""
    wanted, name = settings.weights, settings.backbone
    if wanted in (None, "none", "timm") or (name == TINY and wanted == "auto"):
        return None, None
    if wanted != "auto":
        path = Path(wanted)
        return (path, None) if path.is_file() else (None, f"no weights {path.name}")
    for file in (name, FILES.get(base_name(name))):
        found = None if file is None else find_weights(file)
        if found is not None:
            return found, None
    # Only now: it loads timm.
    require_known(name)
    return None, f"no weights of '{name}' found; set DISMIX_WEIGHTS, or --set weights=none"


def digest_of(path: Path) -> str:
    """Return the digest of a file, read once as long as it does not change."""
    return _digest_of(str(path), path.stat().st_mtime_ns)


@functools.cache
def _digest_of(path: str, changed: int) -> str:
    return file_digest(path)


def _plain_weights(weights: str | None) -> str:
    named = ("auto", "none", "timm")
    return "none" if weights is None else weights if weights in named else "file"


def _described(data: DataSpec) -> dict[str, Any]:
    found = {
        "content": data.content, "counts": dict(data.counts), "ranks": [*data.ranks],
        "derivation": dict(data.how),
    }  # fmt: skip
    # Folds differ in content; whether they are folds of the same data tells this alone.
    return found | ({"source": data.source} if "fold" in data.how else {})
