"""Sections of the study's page, each from what ``study.json`` holds."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dismix.bench.durations import in_words
from dismix.graders.metrics import metric_text, place_in_words
from dismix.study.choices import METRICS, MIXERS
from dismix.study.verdict import NAMES, RULE
from dismix.study.words import bare, gained, number

_POLICIES = {
    "ordinal_mix": "severity mixed", "nonordinal_mix": "appearance mixed",
    "order_swap": "severity of the partner", "generate_and_mix": "mixed with a generated picture",
}  # fmt: skip


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are HTML already, a whole ``<td>`` where they begin with one."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in header)
    body = "".join(
        "<tr>" + "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _mixer(name: str) -> str:
    title = NAMES[name][0].upper() + NAMES[name][1:]
    return f'<td class="t-{name}"><b class="name">{title}</b></td>'


def rich(text: str) -> str:
    """Return text as HTML, with commands and their options kept in one piece.

    Example:
        >>> rich("try --epochs or `--size 96`, a < b")
        'try <code>--epochs</code> or <code>--size 96</code>, a &lt; b'
    """
    return re.sub(
        r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*)",
        lambda found: f"<code>{found[1] or found[2]}</code>",
        html.escape(text),
    )


def _cell(inner: str, *, best: bool) -> str:
    return f'<td class="best">{inner}</td>' if best else f"<td>{inner}</td>"


def _alone(value: float, values: Sequence[float], best: float) -> bool:
    return value == best and values.count(best) == 1


def numbers_part(found: Mapping[str, Any]) -> str:
    """Return every mixer's metrics with their intervals."""
    results = found["results"]
    rows = []
    for mixer in MIXERS:
        cells = [_mixer(mixer)]
        for metric in METRICS.values():
            one = results[mixer][metric.name]
            means = [results[m][metric.name]["mean"] for m in MIXERS]
            best = _alone(one["mean"], means, min(means) if metric.lower else max(means))
            ends = f"{bare(metric, one['low'])}–{number(metric, one['high'])}"
            shown = f"{number(metric, one['mean'])}<small>{ends}</small>"
            cells.append(_cell(shown, best=best))
        cells.append(metric_text(results[mixer]["qwk"]))
        rows.append(cells)
    header = ["", *(f"{m.title} {'↓' if m.lower else '↑'}" for m in METRICS.values()), "Kappa ↑"]
    return (
        "<h3>All numbers</h3>"
        + table(header, rows)
        + '<p class="soft">Each of the '
        + f"{found['data']['images']:,} images graded once by networks that never saw it; 95 % "
        "intervals of each number by itself. Whether two mixers differ is told by the chart "
        "above, not by whether these intervals overlap. RPS: ranked probability score. Kappa: with "
        "quadratic weights.</p>"
    )


def grades_part(found: Mapping[str, Any]) -> str:
    """Return the mean error of each true grade."""
    results, data = found["results"], found["data"]
    rows = []
    for rank, name in enumerate(data["ranks"]):
        values = [results[m]["by_grade"][rank] for m in MIXERS]
        known = [v for v in values if v is not None]
        cells = [
            "–" if v is None else _cell(f"{v:.3f}", best=_alone(v, known, min(known)))
            for v in values
        ]
        rows.append([html.escape(name), str(data["tested"][rank]), *cells])
    header = ["Grade", "images", *(NAMES[m][0].upper() + NAMES[m][1:] for m in MIXERS)]
    return "<h3>Mean error of each grade</h3>" + table(header, rows)


def agreement_part(found: Mapping[str, Any]) -> str:
    """Return how far annotators agree, or why that is unknown."""
    title, agreement = "<h2>How far the annotators agree</h2>", found["agreement"]
    if agreement is None or agreement["mean_percent"] is None:
        return f"{title}<p>{html.escape(_no_agreement(found, agreement))}</p>"
    alpha = agreement["alpha"]["ordinal"]
    tiles = [
        (f"{100 * agreement['mean_percent']:.0f} %", "of images graded alike, mean of all pairs"),
        (_text(alpha), "Krippendorff's alpha, ordinal: " + _reading(alpha)),
        (_text(agreement["mean_kappa"]["quadratic"]), "quadratic kappa, mean of all pairs"),
    ]
    if agreement["unanimous"] is not None:
        share = f"{100 * agreement['unanimous']:.0f} %"
        whole = f"of the {agreement['several']:,} images with two or more votes"
        tiles.insert(1, (share, f"{whole}: no disagreement"))
    rows = []
    for i, name in enumerate(agreement["annotators"]):
        confusion = agreement["confusion"][i]
        total = sum(map(sum, confusion))
        right = sum(confusion[c][c] for c in range(len(confusion)))
        bias = agreement["bias"][i]
        rows.append(
            [
                html.escape(name), f"{agreement['votes'][i]:,}",
                f"{100 * right / total:.0f} %" if total else "–",
                "–" if bias is None else _signed(bias),
            ]
        )  # fmt: skip
    header = ["Annotator", "votes", "as the others' majority", "severity against the others"]
    return title + _tiles(tiles) + table(header, rows)


def _no_agreement(found: Mapping[str, Any], agreement: Mapping[str, Any] | None) -> str:
    if agreement is None and found["data"]["soft"]:
        return (
            "The data hold soft labels, a share for every grade, and nobody's single votes: they"
            " were learned from as they are, and how far annotators agree cannot be measured."
        )
    if agreement is None or not agreement["annotators"]:
        return (
            "Nobody's votes are in the data, only one grade an image: agreement cannot be measured,"
            " and grades were taken as they are. How much of the error is the graders' own doubt"
            " is therefore unknown."
        )
    if len(agreement["annotators"]) == 1:
        name = agreement["annotators"][0]
        return (
            f"A single annotator ({name}) graded: there is no one to agree with, and what the "
            "networks learn includes that person's habits."
        )
    return "No image was graded by two annotators: agreement cannot be measured."


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _signed(value: float) -> str:
    """Return a number with its sign; what is rounded to nothing has none.

    Example:
        >>> _signed(0.04), _signed(-0.001)
        ('+0.04', '0.00')
    """
    text = f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
    return text if float(f"{value:.2f}") else text[1:]


def _reading(alpha: float | None) -> str:
    if alpha is None:
        return "undefined here"
    if alpha >= 0.8:
        return "reliable (0.80 or more)"
    if alpha >= 0.667:
        return "good enough for tentative conclusions (0.67 to 0.80)"
    return "below what conclusions should rest on (0.67)"


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    inner = "".join(
        f'<div class="tile"><b>{html.escape(big)}</b><small>{html.escape(small)}</small></div>'
        for big, small in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def mixes_part(found: Mapping[str, Any], shown: Sequence[Any]) -> str:
    """Return a grid of mixes, each with its sources and its nearest training image."""
    look = found["mixes"]
    if look is None:
        return ""
    tiles = [
        (f"{look['median']:.2f}", "similarity of a mix to its nearest training image, in the "
         f"middle ({look['highest']:.2f} at most)"),
        (f"{look['held_out_median']:.2f}", f"the same of {look['held_out']} real images that the "
         "generator never saw"),
        (f"{look['copies']} of {look['count']}", "mixes are practically a training image "
         f"(similarity {look['same']:g} or more); of the real images "
         f"{look['held_out_copies']} of {look['held_out']}"),
    ]  # fmt: skip
    cards = "".join(_card(one, found["data"]["ranks"], look["same"]) for one in shown)
    return (
        "<h2>What the mixes look like</h2><p>From the generator of the first fold, spread over its "
        "policies and not picked by their looks. If training images come back, a mix adds nothing "
        "and may give a patient's picture away. If mixes are blurred or alike, the generator had "
        "too few images or too little time.</p>"
        + _tiles(tiles)
        + f'<div class="mixes">{cards}</div>'
    )


def _card(mix: Any, ranks: Sequence[str], same: float) -> str:
    def picture(name: str, title: str, kind: str = "") -> str:
        address = mix.pictures[name]
        inner = (
            f'<img alt="{html.escape(title)}" src="{address}">'
            if address
            else '<span class="empty">generated</span>'
        )
        return f'<div class="{kind}">{inner}{html.escape(title)}</div>'

    copied = mix.similarity >= same
    near = f"nearest {mix.similarity:.2f}" + (", a source of it" if mix.nearest_is_source else "")
    extra = ' <span class="copy">practically a copy</span>' if copied else ""
    start = html.escape(ranks[mix.anchor_rank])
    return (
        '<figure class="mix"><div class="pictures">'
        + picture("anchor", "anchor")
        + picture("partner", "partner")
        + picture("mix", "mix", "made")
        + picture("nearest", "nearest")
        + f"</div><figcaption><b>{_POLICIES.get(mix.policy, mix.policy)}</b>, from {start} to "
        f"{html.escape(place_in_words(mix.rank, ranks))}; {near}.{extra}</figcaption></figure>"
    )


def cost_part(found: Mapping[str, Any]) -> str:
    """Return seconds, images seen and the generators' share."""
    cost = found["cost"]
    rows = []
    for name, row in cost["mixers"].items():
        extra = "–" if name == "none" else f"{100 * row['extra']:+.0f} %"
        built = in_words(cost["generator_seconds"]) if name == "dismix" else "–"
        rows.append(
            [_mixer(name), str(row["runs"]), f"{row['images_seen']:,}",
             f"{row['seconds_a_run']:.1f} s", extra.replace("-", "\N{MINUS SIGN}"), built]
        )  # fmt: skip
    total = cost["total_seconds"] or 1.0
    bars = [("t-" + m, cost["mixers"][m]["seconds"], "training, " + NAMES[m]) for m in MIXERS]
    bars.append(("t-dismix gen", cost["generator_seconds"], "generators, for DisMix"))
    bar = "".join(f'<i class="{c}" style="flex:{s / total:.4f}"></i>' for c, s, _ in bars)
    keys = "".join(f'<span><i class="{c}"></i>{t} {in_words(s)}</span>' for c, s, t in bars)
    header = ["", "trainings", "images seen in one", "time of one", "extra", "generators"]
    share = 100 * cost["generator_share"]
    return (
        f"<h2>What it cost</h2><p>{in_words(cost['total_seconds'])} of computing on "
        f"{html.escape(found['hardware'])}; {share:.0f} % of it went into {cost['generators']} "
        "generators, one a fold. In a fold every training saw the same number of images, whatever "
        "the mixer; the generators' time comes on top for DisMix.</p>"
        f'<div class="spent">{bar}</div><div class="keys">{keys}</div>' + table(header, rows)
    )


def method_part(found: Mapping[str, Any]) -> str:
    """Return the rule, how intervals were made, limits, and how to repeat it."""
    metric, how = METRICS[found["metric"]], found["how"]
    worth = gained(metric, float(found["worth"]))
    rule = "".join(f"<li>{html.escape(line.format(worth=worth))}</li>" for line in RULE)
    facts = "".join(f"<li>{html.escape(line)}</li>" for line in found["facts"])
    settings = (
        f"{how['epochs']} epochs a training, batches of {how['batch_size']}; generators "
        f"{how['arch']}, {how['generator_epochs']} epochs; folds and trainings from fixed seeds; "
        f"dismix {found['version']}, commit {found['commit'] or 'unknown'}."
    )
    return (
        "<h2>How the answer was found</h2><h3>The rule, fixed beforehand</h3>"
        f"<ol>{rule}</ol><h3>What was done</h3><ul>{facts}</ul>"
        f"<h3>To repeat it</h3><pre>{html.escape(found['command'])}</pre>"
        '<p class="soft">Files and folders are named without those above them.</p>'
        f'<p class="soft">{html.escape(settings)} Every run has a record with its predictions in '
        "<code>bench/records</code> beside this page, and all numbers are in "
        "<code>study.json</code>.</p>"
    )
