"""An evaluation in words and tables: for the terminal, Markdown and the report."""

from collections.abc import Mapping, Sequence
from typing import Any

#: The paper's probe table (KOA): accuracy in per cent on z_o and z_n.
PAPER_PROBES: dict[str, tuple[float, float]] = {
    "full": (65.04, 19.65),
    "without gradient reversal": (62.13, 22.95),
    "without similarity term": (59.22, 24.35),
    "one codebook": (33.01, 33.01),
}

#: Slope of a judge's readings of real images from which it is believed, and the share of it that
#: decoded pictures must reach.
READABLE, FOLLOWED = 0.5, 0.25


def probe_rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """Return rows (what, z_o, z_n) of the probe table, in per cent and ranks."""
    rows = []
    for kind, words in (("linear", "linear"), ("conv", "convolutional")):
        pair = [
            evaluation["probes"].get(f"{branch}_{kind}") for branch in ("ordinal", "nonordinal")
        ]
        if None in pair:
            continue
        for field, unit, scale in (
            ("accuracy", "accuracy (%)", 100),
            ("balanced", "balanced accuracy (%)", 100),
            ("mae", "mean error (ranks)", 1),
        ):
            digits = 1 if scale == 100 else 2
            rows.append(
                [f"{words} probe, {unit}", *(f"{scale * p[field]:.{digits}f}" for p in pair)]
            )
    return rows


def paper_rows() -> list[list[str]]:
    """Return the paper's probe table as rows (what, z_o, z_n)."""
    return [
        [f"paper, KOA: {name}", f"{o:.2f}", f"{n:.2f}"] for name, (o, n) in PAPER_PROBES.items()
    ]


def fidelity_rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """Return rows (measure, mean, worst tenth) of the reconstructions."""
    found = evaluation["reconstruction"]
    names = {"psnr": "PSNR (dB)", "ssim": "SSIM", "lpips": "LPIPS"}
    return [
        [words, f"{found[name]:.3f}", f"{found[f'{name}_worst_tenth']:.3f}"]
        for name, words in names.items()
        if name in found
    ]


def control_rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """Return rows (what, at ranks 0..C-1, slope, images monotone) of rank control."""
    rows = []
    if "judge" in evaluation:
        readings = evaluation["judge"]["by_true_rank"]
        rows.append(["judge, real images by true rank", _numbers(readings), "", ""])
    readers = {"judge, decoded at ranks": evaluation.get("rank_control")}
    readers["picture, decoded at ranks"] = evaluation.get("severity", {}).get("rank_control")
    for words, found in readers.items():
        if found is not None:
            share = f"{100 * found['images_monotone']:.0f} %"
            rows.append([words, _numbers(found["at_ranks"]), f"{found['slope']:.2f}", share])
    return rows


def mixes_text(evaluation: Mapping[str, Any]) -> str:
    """Return the shares of mixes that the judge reads as asked, beside chance.

    Example:
        >>> mixes_text({"mixing_accuracy": {"judged": {"test": 0.488}, "chance": {"test": 0.46}}})
        '48.8 % of test (one rank for all: 46.0 %)'
    """
    found = evaluation["mixing_accuracy"]
    # Evaluations by an earlier version do not know chance.
    chance = found.get("chance", {})
    return ", ".join(
        f"{100 * share:.1f} % of {name}"
        + (f" (one rank for all: {100 * chance[name]:.1f} %)" if name in chance else "")
        for name, share in found.get("judged", {}).items()
    )


def control_note(evaluation: Mapping[str, Any]) -> str:
    """Return a line for generators whose pictures hardly follow the asked rank, else nothing.

    Held against the judge's readings of real images: a judge that cannot read them is told.

    Example:
        >>> read = {"judge": {"by_true_rank": [0.0, 1.0, None, 2.4]}}
        >>> control_note({**read, "rank_control": {"slope": 0.03}})[:53]
        'the pictures hardly follow the asked rank (slope 0.03'
        >>> control_note({**read, "rank_control": {"slope": 0.6}})
        ''
        >>> blind = {"judge": {"by_true_rank": [0.9, 0.9]}, "rank_control": {"slope": 0.6}}
        >>> control_note(blind)[:58]
        'the judge hardly tells the ranks of real images apart (slo'
    """
    real = real_slope(evaluation.get("judge", {}).get("by_true_rank", []))
    if real is None or "rank_control" not in evaluation:
        return ""
    if note := blind_judge_note(real):
        return note
    made = evaluation["rank_control"]["slope"]
    if made > FOLLOWED * real:
        return ""
    return (
        f"the pictures hardly follow the asked rank (slope {made:.2f}, real images {real:.2f}), so "
        "mixes would have labels that they do not show; train longer (--epochs)"
    )


def real_slope(by_true_rank: Sequence[float | None]) -> float | None:
    """Return how far a judge's readings of real images rise from one true rank to the next.

    Args:
        by_true_rank: (C,) mean readings, see `judge_readings`.

    Example:
        >>> round(real_slope([0.0, 1.0, None, 2.4]), 2), real_slope([None, 0.3]) is None
        (0.8, True)
    """
    known = [(rank, reading) for rank, reading in enumerate(by_true_rank) if reading is not None]
    if len(known) < 2:
        return None
    (low, lowest), (high, highest) = known[0], known[-1]
    return (highest - lowest) / (high - low)


def blind_judge_note(slope: float | None) -> str:
    """Return a line for a judge that hardly reads real images, by `real_slope`, else nothing.

    Example:
        >>> blind_judge_note(0.1)[:58]
        'the judge hardly tells the ranks of real images apart (slo'
        >>> blind_judge_note(0.8), blind_judge_note(None)
        ('', '')
    """
    if slope is None or slope >= READABLE:
        return ""
    return (
        f"the judge hardly tells the ranks of real images apart (slope {slope:.2f}), so what it"
        " reads in made ones says little; give it more passes (--judge-epochs) or images"
    )


def look_rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """Return rows (who reads, mean absolute change of rank at growing shares of another's z_n)."""
    readers = {"judge": evaluation.get("look_control")}
    readers["picture"] = evaluation.get("severity", {}).get("look_control")
    return [
        [words, _numbers(found["mean_absolute_change"])]
        for words, found in readers.items()
        if found is not None
    ]


def summary(evaluation: Mapping[str, Any]) -> str:
    """Return a few lines for the terminal."""
    o, n = (
        [evaluation["probes"][f"{branch}_{kind}"] for kind in ("linear", "conv")]
        for branch in ("ordinal", "nonordinal")
    )
    lines = [
        f"{evaluation['images']} {evaluation['split']} images, encoded without labels; chance "
        f"{100 * evaluation['chance']['balanced']:.0f} % balanced",
        "reconstruction   "
        + "  ".join(f"{name} {mean}" for name, mean, _ in fidelity_rows(evaluation))
        + ("" if "lpips" in evaluation["reconstruction"] else "  LPIPS - (`dismix doctor`)"),
    ]
    for name, (linear, conv) in (("z_o", o), ("z_n", n)):
        lines.append(
            f"rank in {name}      linear {100 * linear['accuracy']:.1f} % (balanced "
            f"{100 * linear['balanced']:.1f})  conv {100 * conv['accuracy']:.1f} % (balanced "
            f"{100 * conv['balanced']:.1f})"
        )
    for name, book in evaluation["codebooks"].items():
        lines.append(
            f"codes {name:10s} {100 * book['usage']:.1f} % in use, perplexity "
            f"{book['perplexity']:.0f}"
        )
    if "judge" in evaluation:
        lines.append(f"judge            {100 * evaluation['judge']['accuracy']:.1f} % accurate")
        lines.append(f"mixes as asked   {mixes_text(evaluation)}")
    for words, readings, slope, share in control_rows(evaluation):
        tail = f"  slope {slope}, {share} of images monotone" if slope else ""
        lines.append(f"{words:32s} {readings}{tail}")
    for words, readings in look_rows(evaluation):
        lines.append(f"{words + ', looks of another':32s} {readings}")
    note = control_note(evaluation)
    return "\n".join([*lines, f"note: {note}"] if note else lines)


def _numbers(values: list[float | None]) -> str:
    return " ".join("-" if value is None else f"{value:.2f}" for value in values)
