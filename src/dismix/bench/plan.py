"""Plans: what a study runs, as data.

A plan is a small YAML (or JSON) file. Factors are crossed; ``overrides`` change settings where
some factors have some values; any plan takes any manifest::

    title: Main table
    kind: grader                      # grader, generator or overhead
    data: [idrid, koa]                # names that --data binds to manifests
    factors: {grader: [gol, cloc], mixer: [none, mixup, dismix], seed: [0, 1, 2]}
    settings: {epochs: 200}           # of the graders' training
    mixers: {dismix: {pool: 1024}}    # options of single mixers
    generator: {arch: light}          # of the generators that DisMix needs
    overrides: [{when: {data: koa}, validation: {own: merge}}]

``factors`` may be a list of such mappings, whose runs are joined.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dismix.bench.plan_checks import DATA, SECTIONS, check_content, factor_values, known_factors
from dismix.bench.plan_files import read_content
from dismix.errors import DisMixError
from dismix.registry import near_names

PLANS = Path(__file__).parent / "plans"
#: The option by which the command line changes a plan.
SET = "--set"
_NO_CONTENT = ("name", "path", "changed")
Values = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Plan:
    """A study.

    Attributes:
        name: The file's stem.
        title: What it is, in a few words.
        kind: What its runs train: "grader", "generator", or "overhead" (time only).
        data: Names of the data sets.
        phantoms: Settings of data sets that are drawn, by name (see `PhantomSpec`).
        factors: Blocks of factors with their values; the runs of all blocks are joined.
        preset: Of the graders' settings.
        settings: Changes to it, see `dismix.graders.settings.choose_settings`.
        mixers: Options by mixer.
        generator: ``arch``, ``recipe``, ``size``, ``weights``, ``seed`` and ``settings``.
        votes: Simulated annotators: ``annotators``, ``mode``, ``seed``, ``lower``, ``upper``.
        validation: ``share``, ``seed``, and ``own``: "keep" or "merge" the data's own split.
        scarcity: ``at_least`` and ``seed`` of scarce training sets.
        overrides: Mappings with ``when`` (values of factors) and sections to change.
        skip: Values of factors whose runs are left out.
        cost: Images a second to expect, for estimates.
        path: File it was read from.
        changed: What the command line changed, as it was typed: "epochs": "3".
    """

    name: str
    title: str
    kind: str = "grader"
    data: tuple[str, ...] = ()
    phantoms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    factors: tuple[Values, ...] = ()
    preset: str = "dismix"
    settings: Mapping[str, Any] = field(default_factory=dict)
    mixers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    generator: Mapping[str, Any] = field(default_factory=dict)
    votes: Mapping[str, Any] = field(default_factory=dict)
    validation: Mapping[str, Any] = field(default_factory=dict)
    scarcity: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[Mapping[str, Any], ...] = ()
    skip: tuple[Mapping[str, Any], ...] = ()
    cost: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    changed: Mapping[str, str] = field(default_factory=dict)

    def place_of(self, problem: str, column: str | None = None) -> str | Path:
        """Return where a mistake was made that shows only in a run: in the file, or in --set.

        Args:
            problem: Its message, with names and values in quotes.
            column: The setting at fault, if known.
        """
        for name, text in self.changed.items():
            own = name.split(".")[-1]
            words = [own, *(part.strip() for part in text.split(","))]
            if column == own or any(f"'{word}'" in problem for word in words):
                return SET
        return self.path or self.name

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a JSON plan holds them."""
        content = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in _NO_CONTENT
        }
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain


def list_plans() -> list[str]:
    """Return the names of the plans that come with the package.

    Example:
        >>> "main" in list_plans()
        True
    """
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


def read_plan(name: str | Path) -> Plan:
    """Read a plan by its name or from a YAML or JSON file.

    Raises:
        DisMixError: Naming file, field and near names.

    Example:
        >>> read_plan("smoke").kind
        'grader'
    """
    path = Path(name)
    if not path.is_file():
        path = PLANS / f"{name}.yaml"
    if not path.is_file():
        raise DisMixError(
            f"unknown plan '{name}'",
            cure=near_names(str(name), list_plans()) + ", or give a YAML file",
        )
    return make_plan(read_content(path), path.stem, path)


def plan_name(name: str | Path) -> str:
    """Return a plan's name: itself, or the stem of its file.

    Example:
        >>> plan_name("main"), plan_name("plans/my.study.yaml")
        ('main', 'my.study')
    """
    path = Path(name)
    is_file = path.suffix in (".yaml", ".yml", ".json") or path.is_file()
    return path.stem if is_file else str(name)


def plan_title(folder: Path, plan: str | None = None) -> str:
    """Return what the plan of a benchmark folder calls itself, or "" where that is not known.

    Args:
        folder: A plan's file lies in it (``plan.json``, ``plan.yaml``), or plans were run in it.
        plan: A plan that was run there. None is the file, else the only plan that was run.
    """
    run, found = folder / "plans", [folder / f"plan.{end}" for end in ("json", "yaml", "yml")]
    found = [path for path in found if path.is_file()] or [*run.glob("*.json")]
    found = found if plan is None else [run / f"{plan}.json"]
    if len(found) != 1:
        return ""
    try:
        content = read_content(found[0])
    except (DisMixError, OSError, ValueError):  # A heading is not worth stopping for.
        return ""
    title = content.get("title") if isinstance(content, dict) else None
    return " ".join(str(title or "").split())


def make_plan(content: Any, name: str, path: Path | None = None) -> Plan:
    """Check a plan's content and wrap it.

    Args:
        content: What a plan's file holds.
        name: Of the plan.
        path: File to name in messages.
    """
    known = [f.name for f in dataclasses.fields(Plan) if f.name not in _NO_CONTENT]
    checked = check_content(content, known, path or name)
    return Plan(name=name, path=path, **checked)


def change_plan(plan: Plan, changes: Mapping[str, str]) -> Plan:
    """Return a plan with the command line's ``--set`` changes.

    Args:
        plan: Any.
        changes: Factors ("seed": "0,1"; "data": "koa" of several), a section and a name
            ("generator.epochs": "20", "mixers.dismix.pool": "64"), or settings of the graders
            ("epochs": "3", "backbone": "tiny").

    Example:
        >>> plan = change_plan(read_plan("smoke"), {"seed": "0,1,2", "epochs": "1"})
        >>> plan.factors[0]["seed"], plan.settings["epochs"]
        ((0, 1, 2), 1)
    """
    content = plan.to_dict()
    for name, text in changes.items():
        parts = name.split(".")
        if len(parts) == 1 and name in (DATA, *known_factors(plan.kind)):
            # Names of data sets may read like numbers.
            read = str.strip if name == DATA else value_of
            values = factor_values(name, [read(part) for part in text.split(",")], SET)
            content["factors"] = [{**block, name: [*values]} for block in content["factors"]]
        elif len(parts) == 1:
            content["settings"][name] = value_of(text)
            _forget(content["overrides"], "settings", name)
        else:
            _change_section(content, parts, value_of(text), name)
    # The plan itself was right: what is wrong by now was typed.
    made = make_plan(content, plan.name, Path(SET))
    return dataclasses.replace(made, path=plan.path, changed={**plan.changed, **changes})


def _change_section(content: dict[str, Any], parts: Sequence[str], value: Any, name: str) -> None:
    section, *rest = parts
    if section not in SECTIONS or len(rest) > 2 or (len(rest) == 2) != (section == "mixers"):
        raise DisMixError(
            f"unknown setting '{name}'",
            column=SET,
            cure="write a factor, a grader's setting, SECTION.NAME or mixers.MIXER.OPTION; "
            f"sections are {', '.join(SECTIONS)}",
        )
    inner = content[section]
    if section == "generator" and rest[0] not in SECTIONS["generator"]:
        rest = ["settings", rest[0]]
    for part in rest[:-1]:
        inner = inner.setdefault(part, {})
    inner[rest[-1]] = value
    _forget(content["overrides"], section, *rest)


def _forget(overrides: list[dict[str, Any]], *place: str) -> None:
    """Drop a setting from the overrides: the command line has the last word."""
    for override in overrides:
        inner: Any = override
        for part in place[:-1]:
            inner = inner.get(part, {})
        inner.pop(place[-1], None)


def value_of(text: str) -> Any:
    """Return text as a number or truth value where it reads like one.

    Example:
        >>> value_of("0.5"), value_of("12"), value_of("null"), value_of("tiny")
        (0.5, 12, None, 'tiny')
    """
    named = {"true": True, "false": False, "null": None}
    if text.strip().lower() in named:
        return named[text.strip().lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if text.strip() == "" else text.strip()
