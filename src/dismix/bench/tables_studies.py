"""Which settings each study of the paper shows, as grids."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dismix.bench.paper import DATA, GROUPS, PAPER_MIXERS, POLICIES, table_graders
from dismix.bench.report_data import MAIN, Condition, Key, data_order, grader_order, mixer_order
from dismix.bench.report_study import Study, mixer_name
from dismix.bench.tables import METRICS, OURS, Column, Grid, Row, Table, draw_grid

LEVELS = (30, 50, 70)
CHANCES = (0.3, 0.5, 0.7)
_SCARCE = 0.1


@dataclass(frozen=True)
class StudySpec:
    """A study of the paper.

    Attributes:
        key: For anchors.
        title: For readers.
        lead: What it asks.
        select: Whether a setting belongs to it.
        grids: Its grids, given the records.
    """

    key: str
    title: str
    lead: str
    select: Callable[[Key], bool]
    grids: Callable[[Study], list[Grid]]

    def was_run(self, study: Study) -> bool:
        """Return whether any setting of it was tried or planned."""
        return any(self.select(key) for key in study.keys)

    def is_main_table(self, study: Study) -> bool:
        """Return whether the main table already shows all of it."""
        keys = [key for key in study.keys if self.select(key)]
        return study.base != MAIN and all(key.condition == study.base for key in keys)

    def tables(self, study: Study) -> list[Table]:
        """Return its tables."""
        return [
            table
            for grid in self.grids(study)
            for metric in METRICS
            for table in draw_grid(study, grid, metric)
        ]


def _rows(study: Study, select: Callable[[Key], bool], table: str) -> list[Row]:
    """Return (data set, grader) of the paper's table, where its data sets were run, and ours."""
    found = {(key.data, key.grader) for key in study.keys if select(key)}
    if study.beside_paper:
        found |= {(data, grader) for data in DATA for grader in table_graders(table, data)}
    rows = []
    for data in data_order({data for data, _ in found}):
        for grader in grader_order({g for d, g in found if d == data}):
            rows.append(Row(data, grader))
    return rows


def _mixers(study: Study, select: Callable[[Key], bool], paper: tuple[str, ...]) -> list[Column]:
    found = {key.mixer for key in study.keys if select(key)}
    names = mixer_order(found | (set(paper) if study.beside_paper else set()))
    # Ours comes first: it is what readers look for, and a narrow screen shows little else.
    names.sort(key=lambda name: name != OURS)
    return [Column(mixer_name(name), name, {}, mixer_name(name)) for name in names]


def _same(key: Key, **changes: Any) -> bool:
    return key.condition == replace(MAIN, **changes)


def _is_main(key: Key) -> bool:
    return key.condition == MAIN


def _is_scarce(key: Key) -> bool:
    share = key.condition.scarcity
    return share < 1 and _same(key, scarcity=share)


def _is_varied(key: Key) -> bool:
    c = key.condition
    return _same(key, variability=c.variability, p=c.p) and c != MAIN


def _is_clean(key: Key) -> bool:
    return _same(key, labels="clean")


def _is_policy(key: Key) -> bool:
    name = key.condition.policies
    return name not in ("combined", *GROUPS) and _same(key, policies=name)


def _is_group(key: Key) -> bool:
    return any(_same(key, policies=name) for name in GROUPS)


def _is_extreme(key: Key) -> bool:
    c = key.condition
    hard = c.scarcity < 1 or c.variability == LEVELS[-1]
    changes = {"scarcity": c.scarcity, "variability": c.variability, "policies": c.policies}
    return hard and c.policies != "combined" and _same(key, **changes)


def main_grid(study: Study) -> Grid:
    """Return the grid of the main table."""
    columns = _mixers(study, lambda key: key.condition == study.base, ("none", *PAPER_MIXERS))
    rows = [Row(data, g) for data in study.data() for g in study.graders(data)]
    if study.is_main:
        chosen = study.base.policies
        of_ours = "" if chosen == MAIN.policies else f", DisMix with {_policy_words(chosen)}"
        return Grid("main", f"Main table{of_ours}", rows, columns, study.base, "main")
    # A study under one condition alone, such as few images: that is then the main table.
    words = condition_words(study.base)
    title = words[:1].upper() + words[1:]
    scarce = study.base == replace(MAIN, scarcity=_SCARCE)
    return Grid("main", title, rows, columns, study.base, "scarcity" if scarce else "")


def _scarcity(study: Study) -> list[Grid]:
    shares = {k.condition.scarcity for k in study.keys if _is_scarce(k)} or {_SCARCE}
    paper = ("mixup", "guidedmixup", "diffusemix", "dismix")
    return [
        Grid(
            f"scarcity{100 * share:g}", f"{100 * share:g} % of the training images",
            _rows(study, _is_scarce, "scarcity"), _mixers(study, _is_scarce, paper),
            replace(MAIN, scarcity=share), "scarcity" if share == _SCARCE else "",
        )
        for share in sorted(shares)
    ]  # fmt: skip


def _variability(study: Study) -> list[Grid]:
    pairs = _rows(study, _is_varied, "variability_x_mix_probability")
    levels = {k.condition.variability for k in study.keys if _is_varied(k)} | {*LEVELS}
    chances = {k.condition.p for k in study.keys if _is_varied(k)} | {*CHANCES}
    rows = [
        Row(row.data, row.grader, {"variability": level}, (f"{level} %",))
        for row in pairs
        for level in sorted(levels)
    ]
    grids = []
    mixers = {k.mixer for k in study.keys if _is_varied(k)} - {"none"} or {"dismix"}
    for mixer in mixer_order(mixers)[::-1]:
        words = f"{mixer_name(mixer)} variability={{variability}}% mix_probability="
        columns = [Column(f"p = {p:g}", mixer, {"p": p}, f"{words}{p:g}") for p in sorted(chances)]
        grids.append(
            Grid(
                f"variability-{mixer}", f"{mixer_name(mixer)}, disagreement by mixing probability",
                rows, columns, MAIN, "variability_x_mix_probability",
                headings=("data set", "grader", "variability"), heat=True,
            )
        )  # fmt: skip
    return grids


def _clean(study: Study) -> list[Grid]:
    columns = _mixers(study, _is_clean, ("none", *PAPER_MIXERS))
    rows = _rows(study, _is_clean, "clean_labels")
    base = replace(MAIN, labels="clean")
    return [Grid("clean", "One clean label an image", rows, columns, base, "clean_labels")]


def _policy_columns(
    study: Study, select: Callable[[Key], bool], known: Mapping[str, str]
) -> list[Column]:
    found = [k.condition.policies for k in study.keys if select(k)]
    names = [*known, *sorted(set(found) - set(known))]
    single = [Column(known.get(n, n), "dismix", {"policies": n}, known.get(n, "")) for n in names]
    return [*single, Column("all four", "dismix")]


def _policies(study: Study) -> list[Grid]:
    columns = _policy_columns(study, _is_policy, POLICIES)
    rows = _rows(study, _is_policy, "policies")
    return [Grid("policies", "Single policies", rows, columns, MAIN, "policies")]


def _groups(study: Study) -> list[Grid]:
    columns = _policy_columns(study, _is_group, GROUPS)
    table = "preserving_vs_interpolating"
    rows = _rows(study, _is_group, table)
    return [Grid("groups", "Preserving or interpolating", rows, columns, MAIN, table)]


def _extreme(study: Study) -> list[Grid]:
    columns = _policy_columns(study, _is_extreme, POLICIES)
    rows = _rows(study, _is_extreme, "extreme")
    scarce, varied = replace(MAIN, scarcity=_SCARCE), replace(MAIN, variability=LEVELS[-1])
    return [
        Grid(
            "extreme-scarcity", "10 % of the images", rows, columns, scarce, "extreme",
            ":scarcity",
        ),
        Grid(
            "extreme-variability", "70 % variability", rows, columns, varied, "extreme",
            ":variability70",
        ),
    ]  # fmt: skip


STUDIES = (
    StudySpec(
        "main", "Main table",
        "Every mixer with every grader at mixing probability 0.5, annotators simulated as the"
        " paper does where the data have no votes.",
        _is_main, lambda study: [main_grid(study)],
    ),
    StudySpec(
        "scarcity", "Few images", "A tenth of the training images, at least ten a grade; the"
        " generator saw no others.", _is_scarce, _scarcity,
    ),
    StudySpec(
        "variability", "Disagreement and mixing probability",
        "Annotators who disagree more, and mixing more or less often.",
        _is_varied, _variability,
    ),
    StudySpec(
        "clean", "Clean labels", "One undisputed label an image.", _is_clean, _clean,
    ),
    StudySpec(
        "policies", "Single policies", "DisMix with one of its four policies.",
        _is_policy, _policies,
    ),
    StudySpec(
        "groups", "Preserving or interpolating",
        "DisMix with the two policies that keep the rank, or the two that change it.",
        _is_group, _groups,
    ),
    StudySpec(
        "extreme", "Extreme settings", "Single policies with few images or much disagreement.",
        _is_extreme, _extreme,
    ),
)  # fmt: skip


def other_tables(study: Study) -> list[Table]:
    """Return every setting that no study of the paper shows, beside the usual one."""
    odd = [
        k
        for k in study.keys
        if k.condition != study.base and not any(spec.select(k) for spec in STUDIES)
    ]
    conditions = sorted({k.condition for k in odd}, key=condition_words)
    tables = []
    for number, condition in enumerate(conditions):
        keys = [k for k in odd if k.condition == condition]
        columns = []
        for mixer in mixer_order({k.mixer for k in keys}):
            name = mixer_name(mixer)
            usual = Column(f"{name}, as usual", mixer, _fields(study.base))
            columns += [Column(name, mixer), usual]
        pairs = {(k.data, k.grader) for k in keys}
        rows = [
            Row(d, g)
            for d in data_order({d for d, _ in pairs})
            for g in grader_order({g for x, g in pairs if x == d})
        ]
        grid = Grid(f"other{number}", condition_words(condition), rows, columns, condition)
        tables += [table for metric in METRICS for table in draw_grid(study, grid, metric)]
    return tables


def _policy_words(policies: str) -> str:
    if policies in GROUPS:
        return f"{policies} policies"
    return " + ".join(POLICIES.get(name, name) for name in policies.split("+"))


def _fields(condition: Condition) -> dict[str, Any]:
    return dict(vars(condition))


def condition_words(condition: Condition) -> str:
    """Return what is unusual about a condition.

    Example:
        >>> condition_words(Condition(scarcity=0.1, p=0.7))
        '10 % of the images, p = 0.7'
        >>> condition_words(MAIN)
        'as usual'
    """
    c = condition
    words = []
    if c.scarcity < 1:
        words.append(f"{100 * c.scarcity:g} % of the images")
    if c.variability != MAIN.variability:
        words.append(f"{c.variability} % variability")
    if c.labels != MAIN.labels:
        words.append(f"{c.labels} labels")
    if c.p != MAIN.p:
        words.append(f"p = {c.p:g}")
    if c.policies != MAIN.policies:
        words.append(_policy_words(c.policies))
    if c.ablation != MAIN.ablation:
        words.append(f"generator: {c.ablation}")
    words += [f"{name} = {value}" for name, value in c.other]
    return ", ".join(words) or "as usual"
