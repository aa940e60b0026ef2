"""The demo's page: pictures first, then what was measured, then what it says."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from PIL import Image

from dismix import atomic
from dismix.bench.report_study import grader_name, mixer_name, read_study
from dismix.bench.sources import FULL
from dismix.bench.statistics import mean_sd
from dismix.data.annotators.agreement import measure_agreement
from dismix.demo.charts import control_chart, dot_chart
from dismix.demo.pictures import PRESERVING, Room, two_factors
from dismix.demo.verdict import Line, Verdict, judge
from dismix.generator.evaluation_text import probe_rows
from dismix.mixing.quality import Readings, within_slope

if TYPE_CHECKING:
    from pathlib import Path

    from dismix.demo.story import Scene

_POLICIES = {
    "mixup": "Mixup", "cutmix": "CutMix", "ordinal_mix": "DisMix: ordinal mix",
    "generate_and_mix": "DisMix: generate and mix", "order_swap": "DisMix: order swap",
    "nonordinal_mix": "DisMix: non-ordinal mix",
}  # fmt: skip


def write_page(scene: "Scene", *, seconds: float) -> "Path":
    """Write the page.

    Args:
        scene: Everything that was made.
        seconds: Wall time of this call.

    Returns:
        Its path.
    """
    spec = next(iter(scene.plan.phantoms.values()))
    data = scene.study.data[next(r.data for r in scene.study.runs if r.generator is not None)]
    manifest = scene.folder.manifest_dir(data.key) / FULL
    room = Room.open(scene.run, manifest, spec.get("subject", "knee"))
    verdict = judge(read_study(scene.folder.root, scene.plan.name))
    parts = [
        _opening(room, verdict, data.counts),
        _learned(scene, room),
        _mixes(room),
        _study(verdict, data.counts),
        _more(scene, seconds),
    ]
    style = (files("dismix.demo") / "page.css").read_text(encoding="utf-8")
    html = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>DisMix demo</title><style>{style}</style></head><body>{''.join(parts)}"
        "<footer>For research on augmentation, not for diagnosis. Interpolated ranks are training"
        " targets, not clinical grades. All pictures are drawn; no patient is shown.</footer>"
        "</body></html>\n"
    )
    path = scene.home / "index.html"
    atomic.write_text(path, html)
    return path


def _opening(room: Room, verdict: Verdict, counts: Mapping[str, int]) -> str:
    voted = room.data.rows(room.data.has_votes)
    found = measure_agreement(voted.votes, voted.num_ranks, annotators=voted.annotators)
    return (
        "<header><h1>Severity and appearance are two codes of one picture</h1>"
        '<p class="soft">DisMix learns both from graded pictures, and mixes each on its own: new'
        " pictures whose grade is known. This page ran the whole story on this machine.</p>"
        f"</header><main>{_figure(two_factors(), 'Drawn knees and eyes with known factors.')}"
        "<p>These pictures are drawn, so that everything can be checked: left, one knee and one"
        " eye from healthy to severe; right, other people at the same severity. The rest of this"
        f" page has {counts['train']} such knees to learn from, graded by"
        f" {len(voted.annotators)} annotators, who are all of one mind about"
        f" {100 * found.unanimous:.0f} % of the pictures; {counts['val']} to validate on and"
        f" {counts['test']} to test"
        " on.</p>"
        f'<div class="verdict"><b>{escape(verdict.headline)}</b>'
        "<p>What the generator learned, and what mixing did for two graders, follows.</p></div>"
    )


def _learned(scene: "Scene", room: Room) -> str:
    found = scene.evaluation
    severity = found["severity"]["rank_control"]
    rows = [
        [
            row[0].replace("accuracy (%)", "%").replace("mean error (ranks)", "error in ranks"),
            *row[1:],
        ]
        for row in probe_rows(found)
        if "balanced" not in row[0]
    ]
    chance = 100 * found["chance"]["balanced"]
    return (
        "<section><h2>What the generator learned</h2><p>Test pictures it has never seen, encoded"
        " without their grade: the original, its reconstruction, the same knee decoded at every"
        " rank, and the same rank with another knee's appearance in three steps.</p>"
        + _figure(room.strip(), "Test pictures, made again, at every rank, with other looks.")
        + '<div class="row"><div>'
        + _table(["rank read from", "z_o", "z_n"], rows)
        + f'<p class="soft">Chance is {chance:.0f} %. The rank should be in the ordinal code z_o'
        " and not in the non-ordinal code z_n."
        f" {_separation(found)}</p></div><div>"
        + control_chart(severity["at_ranks"], "Severity measured against rank asked for")
        + f'<p class="soft">Joint space measured from the pictures, in ranks, at the rank asked'
        f" for; dashed: as asked. Slope {severity['slope']:.2f}; in"
        f" {100 * severity['images_monotone']:.0f} % of the {found['images']} pictures it grows"
        " at every step.</p></div></div></section>"
    )


def _separation(found: Mapping[str, Any]) -> str:
    """Say plainly whether the two codes are apart."""
    probes, chance = found["probes"], found["chance"]["balanced"]
    linear = probes["nonordinal_linear"]["balanced"]
    if probes["ordinal_linear"]["balanced"] <= chance + 0.1:
        return "Neither code tells it: the training was too short."
    deep = probes.get("nonordinal_conv", {}).get("balanced", linear)
    if max(linear, deep) <= chance + 0.1:
        return "It is."
    if linear <= chance + 0.1:
        return "A linear probe finds little of it in z_n; a convolutional one still reads some."
    return "In this short training some of it stays in z_n."


def _mixes(room: Room) -> str:
    measured = room.measured()
    rows = [
        [
            _POLICIES[name],
            f"{_error(found):.2f}",
            "stays" if name in PRESERVING else f"{within_slope(found.read, found.intended):.2f}",
        ]
        for name, found in measured.items()
    ]
    return (
        "<section><h2>One pair, four policies</h2><p>A training picture and one a rank above it,"
        " mixed from one end to the other: severity alone, appearance alone, severity swapped,"
        " and towards a generated severity.</p>"
        + _figure(room.policies(), "Policies from lam 1 (the anchor) to 0.")
        + "<h2>The same pair, other mixers</h2><p>Mixing pixels shows two knees at once. Mixing"
        " codes is meant to show one.</p>"
        + _figure(room.mixers(), "Pixel mixers and the four policies on the same pairs.")
        + '<div class="row"><div>'
        + _table(["mixes of neighbouring ranks", "error (ranks)", "slope"], rows)
        + "</div><p>Does a mix show the severity that its label says? The joint space of"
        f" {next(iter(measured.values())).read.size} mixes a method was measured: the mean"
        " distance from the label, and how far severity follows the label within a pair (1 is"
        f" right). {_mixes_verdict(measured)} Pictures that always showed the middle of the pair"
        " would be 0.25 off, with slope 0.</p></div></section>"
    )


def _error(found: Readings) -> float:
    return float(abs(found.read - found.intended).mean())


def _mixes_verdict(measured: Mapping[str, Readings]) -> str:
    ours, pixels = _error(measured["ordinal_mix"]), _error(measured["mixup"])
    if ours < pixels:
        return f"Ordinal mixes are {ours:.2f} ranks off, Mixup's {pixels:.2f}."
    return f"Here they are no closer than Mixup's: {ours:.2f} ranks off against {pixels:.2f}."


def _study(verdict: Verdict, counts: Mapping[str, int]) -> str:
    lines, groups = verdict.lines, dict[str, dict[str, list[float]]]()
    for line in lines:
        row = groups.setdefault(grader_name(line.grader), {})
        row[mixer_name(line.mixer)] = [*line.accuracy]
    duels = "".join(f"<li>{escape(str(duel))}</li>" for duel in verdict.duels)
    seeds = max(len(line.ids) for line in lines)
    return (
        "<section><h2>Does it help when pictures are scarce?</h2>"
        f"<p>{counts['train']} training pictures, two graders, {seeds} seeds; the same pictures"
        " seen, the same validation rule, test pictures graded once.</p>"
        f'<div class="verdict"><b>{escape(verdict.headline)}</b><ul>{duels}</ul></div>'
        f'{dot_chart(groups, "Accuracy of every run")}<p class="soft">Accuracy on the test'
        f' pictures: a dot a run, a bar at the mean.</p><div class="scroll">{_numbers(lines)}</div>'
        f"<p>A difference counts as decided when it has the same sign with every seed and in 95 %"
        f" of test sets resampled from the {counts['test']} pictures. The generator learned from"
        " the same few pictures, so it knows nothing that a grader could not have seen; what the"
        " method does with thousands of pictures and a large generator is the business of the"
        " benchmark's plans, not of a demo of minutes.</p></section>"
    )


def _numbers(lines: Sequence[Line]) -> str:
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            "grader",
            "mixing",
            "accuracy (%)",
            "error (ranks)",
            "pictures seen",
            "seconds",
            "records",
        )
    )
    body = []
    for line in lines:
        links = "".join(
            f'<a href="bench/records/{name}.json" title="record {name}">{place}</a>'
            for place, name in enumerate(line.ids)
        )
        cells = [
            grader_name(line.grader), mixer_name(line.mixer), _mean(line.accuracy, 100, 1),
            _mean(line.mae, 1, 3), f"{line.images:,}", f"{line.seconds:.0f}",
        ]  # fmt: skip
        ours = ' class="ours"' if line.mixer == "dismix" else ""
        told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body.append(f"<tr{ours}>{told}<td>{links}</td></tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _mean(values: Sequence[float], scale: float, digits: int) -> str:
    mean, deviation = mean_sd([scale * value for value in values])
    spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{mean:.{digits}f}{spread}"


def _more(scene: "Scene", seconds: float) -> str:
    from dismix.bench.artifacts import generator_done
    from dismix.demo.story import BENCH, GENERATOR

    built = (generator_done(scene.folder, scene.run.name) or {}).get("seconds") or 0.0
    links = (
        (f"{BENCH}/report.html", "The study's report", "tables, statistics, budgets, every run"),
        (GENERATOR, "The generator's report", "probes, traverses, maps of the two codes"),
        (f"{BENCH}/records/", "The records", "a JSON file a run: settings, versions, predictions"),
    )
    told = "".join(
        f'<a href="{place}"><b>{name}</b><span>{what}</span></a>' for place, name, what in links
    )
    return (
        f'<section><h2>Look closer</h2><div class="links">{told}</div>'
        f'<p class="soft">The generator took {built:.0f} s, each run the seconds above; this call'
        f" {seconds:.0f} s, with finished parts reused. Everything can be repeated:</p><pre>"
        "dismix data phantom -o knees --subject knee        # or import your own pictures\n"
        "dismix generator train knees -o runs/knees --arch tiny\n"
        "dismix mix show runs/knees -o mixes.png\n"
        "dismix bench run demo --data mine=knees -o runs/bench\n"
        "dismix bench report demo -o runs/bench</pre></section></main>"
    )


def _figure(picture: Image.Image, caption: str) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure tabindex="0"><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        "</figure>"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )
