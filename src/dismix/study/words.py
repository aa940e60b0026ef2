"""The verdict in sentences that a reader can act on."""

from collections.abc import Mapping

from dismix.study.choices import Metric
from dismix.study.verdict import NAMES, Comparison, Verdict, decide

Comparisons = Mapping[tuple[str, str], Comparison]


def number(metric: Metric, value: float) -> str:
    """Return a value of a metric as text.

    Example:
        >>> from dismix.study.choices import METRICS
        >>> number(METRICS["accuracy"], 0.6213), number(METRICS["mae"], 0.4)
        ('62.1 %', '0.400')
    """
    return bare(metric, value) + metric.unit


def gained(metric: Metric, value: float, *, signed: bool = False) -> str:
    """Return a difference of two values of a metric as text.

    Example:
        >>> from dismix.study.choices import METRICS
        >>> gained(METRICS["accuracy"], 0.0213, signed=True), gained(METRICS["mae"], 0.03)
        ('+2.1 points', '0.030')
    """
    return bare(metric, value, signed=signed) + metric.gain_unit


def bare(metric: Metric, value: float, *, signed: bool = False) -> str:
    """Return the digits of a value or a difference, without a unit."""
    text = f"{metric.scale * value:{'+' if signed else ''}.{1 if metric.scale > 1 else 3}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def span(metric: Metric, comparison: Comparison) -> str:
    """Return "+0.010 (-0.020 to +0.040)", with the unit after the first number."""
    gain = comparison.gain
    low, high = (bare(metric, v, signed=True) for v in (gain.low, gain.high))
    return f"{gained(metric, gain.mean, signed=True)} ({low} to {high})"


def spell(
    comparisons: Comparisons, metric: Metric, worth: float, images: int, *, learned: bool = True
) -> Verdict:
    """Return the verdict with its reasons.

    Args:
        comparisons: See `dismix.study.verdict.decide`.
        metric: What was compared.
        worth: Smallest gain worth having.
        images: N.
        learned: Whether any grader is better than one and the same grade for all.
    """
    answer, mixer = decide(comparisons, learned=learned)
    reasons = [_reason(comparisons[name, "none"], metric, worth) for name in ("mixup", "dismix")]
    if not learned:
        return Verdict(
            answer, mixer, "Cannot tell: no grader is shown to have learned anything",
            ("None of the three is shown to grade held-out images better than giving all of them "
             "one and the same grade would.",
             "Trainings were too short, or the images too few or too small: try --epochs, a larger "
             "--budget, --size or another --backbone."),
        )  # fmt: skip
    if answer == "yes":
        return Verdict(
            answer, mixer, f"Yes: train with {NAMES[mixer]}",
            (*reasons, _choice(comparisons, metric, mixer)),
        )  # fmt: skip
    if answer == "no":
        hurts = all(comparisons[m, "none"].finding == "hurts" for m in ("mixup", "dismix"))
        headline = "No: mixing makes it worse here" if hurts else "No: mixing does not help here"
        closing = (
            "Train without mixing. Mixed images usually take longer to learn from: who will train "
            "much longer than here should ask again with --epochs."
        )
        return Verdict(answer, mixer, headline, (*reasons, closing))
    needed = max(
        c.needed for (_, against), c in comparisons.items()
        if against == "none" and c.finding == "cannot tell"
    )  # fmt: skip
    closing = (
        "Until there is evidence, train without mixing: it costs least. To see a gain of "
        f"{gained(metric, worth)} one would need about {needed:,} images of this kind, or longer "
        "trainings if these were too short to learn from."
    )
    if worth <= 0:
        # No number of images rules out every gain.
        closing = (
            "Until there is evidence, train without mixing: it costs least. Any gain was to count, "
            "however small, which no number of images can rule out: --worth names the smallest "
            "that matters."
        )
    elif needed <= images:
        closing = (
            "Until there is evidence, train without mixing: it costs least. The intervals are "
            "narrow enough to see a gain worth having, but not to rule one out: more images or "
            "repeats would settle it."
        )
    return Verdict(answer, mixer, f"Cannot tell with {images:,} images", (*reasons, closing))


def _reason(comparison: Comparison, metric: Metric, worth: float) -> str:
    name, shown = NAMES[comparison.mixer], span(metric, comparison)
    own, plain = (number(metric, value) for value in comparison.values)
    better = sum(gain > 0 for gain in comparison.by_fold)
    facts = (
        f"{metric.words} {own} against {plain} without mixing, better in {better} of "
        f"{len(comparison.by_fold)} folds; gain {shown}"
    )
    if comparison.finding in ("helps", "hurts"):
        return f"{name} {comparison.finding}: {facts}."
    if comparison.finding == "no gain":
        return (
            f"{name} brings no gain worth having: {facts}. A gain of {gained(metric, worth)} or "
            "more is ruled out."
        )
    return f"{name}: no evidence of a gain. Its {facts}, which fits both help and harm."


def _choice(comparisons: Comparisons, metric: Metric, mixer: str) -> str:
    both = all(comparisons[m, "none"].finding == "helps" for m in ("mixup", "dismix"))
    pair = comparisons["dismix", "mixup"]
    shown = span(metric, pair)
    if both and mixer == "dismix":
        return f"Both help, and DisMix is better than Mixup: {shown}."
    if both:
        return (
            f"Both help. DisMix is not shown to be better than Mixup ({shown}), and Mixup needs "
            "no generator."
        )
    if mixer == "dismix" and pair.finding == "cannot tell":
        return f"Against Mixup itself the evidence is weaker: {shown}."
    return f"DisMix against Mixup: {shown}."
