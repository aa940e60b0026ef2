import numpy as np
import pytest

from dismix.errors import DisMixError
from dismix.graders.metrics import grade_metrics
from dismix.study.choices import METRICS
from dismix.study.pooled import compare, learned, pool, results


def made(fold, mixer, seed, wrong, count=20):
    """A record whose grader errs by one grade on the first images of a fold."""
    truth = [i % 3 for i in range(count)]
    said = [(t + 1) % 3 if i < wrong else t for i, t in enumerate(truth)]
    law = (0.1 + 0.7 * np.eye(3)[said]).tolist()
    return {
        "seed": seed, "factors": {"fold": fold, "mixer": mixer},
        "predictions": {"image": [f"{fold[0]}_{i}.png" for i in range(count)], "grade": truth,
                        "label": said, "probabilities": law},
    }  # fmt: skip


def records(**wrong):
    return [
        made(f"{fold}/3", mixer, seed, count)
        for fold in (3, 1, 2) for mixer, count in wrong.items() for seed in (0, 1)
    ]  # fmt: skip


def test_every_image_counts_once_and_metrics_are_those_of_the_graders():
    pooled = pool(records(none=6, mixup=6, dismix=2))
    assert len({*pooled.images}) == 60
    assert pooled.folds.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    for mixer in ("none", "dismix"):
        right = grade_metrics(
            pooled.labels[mixer][0], pooled.truth, 3, probabilities=pooled.laws[mixer][0]
        )
        for name in METRICS:
            assert pooled.values(name, mixer)[0].mean() == pytest.approx(right[name])


def test_a_clear_gain_is_found_and_equal_graders_are_equal():
    pooled = pool(records(none=8, mixup=8, dismix=1))
    found = compare(pooled, METRICS["accuracy"], 0.02)
    assert found["dismix", "none"].finding == "helps"
    assert found["dismix", "none"].gain.mean == pytest.approx(0.35)
    assert found["dismix", "none"].by_fold == pytest.approx((0.35,) * 3)
    assert found["mixup", "none"].gain.mean == 0
    error = compare(pooled, METRICS["mae"], 0.03)["dismix", "none"]
    assert error.gain.mean > 0
    shown = results(pooled, 3)
    assert shown["dismix"]["accuracy"]["mean"] == pytest.approx(0.95)
    assert shown["none"]["by_fold"]["accuracy"] == pytest.approx([0.6] * 3)


def test_equal_decisions_rule_out_a_gain_only_on_many_images():
    for images, finding in ((20, "cannot tell"), (200, "no gain")):
        pooled = pool([
            made(f"{fold}/3", mixer, 0, 4, images)
            for fold in (1, 2, 3) for mixer in ("none", "mixup", "dismix")
        ])  # fmt: skip
        for name in ("accuracy", "mae"):
            found = compare(pooled, METRICS[name], 0.02)["dismix", "none"]
            assert found.finding == finding
            # A share p of images that differ would stay unseen with the chance of the tail.
            assert (1 - found.gain.high) ** (3 * images) == pytest.approx(0.0125)
            assert found.gain.low == -found.gain.high
        assert compare(pooled, METRICS["rps"], 0.02)["dismix", "none"].gain.high == 0


def test_intervals_stay_within_what_a_number_can_be():
    uneven = [made(f"{fold}/3", mixer, 0, 5 if fold == 1 else 0)
              for fold in (1, 2, 3) for mixer in ("none", "mixup", "dismix")]  # fmt: skip
    shown = results(pool(uneven), 3)["none"]
    assert shown["accuracy"]["high"] == 1.0
    assert shown["mae"]["low"] == 0.0
    assert shown["accuracy"]["low"] < shown["accuracy"]["mean"] < 1


def test_graders_that_learned_nothing_tell_nothing():
    lazy = records(none=0, mixup=0, dismix=0)
    for record in lazy:
        record["predictions"]["label"] = [1] * 20
    pooled = pool(lazy)
    assert not learned(pooled, METRICS["mae"])
    assert compare(pooled, METRICS["mae"], 0.03)["dismix", "none"].finding == "cannot tell"
    assert learned(pool(records(none=3, mixup=3, dismix=3)), METRICS["mae"])


def test_groups_are_those_of_the_manifest():
    one = records(none=3, mixup=3, dismix=3)
    groups = {f"{fold}/3": [f"p{i // 2}" for i in range(20)] for fold in (1, 2, 3)}
    assert len({*pool(one, groups).groups.tolist()}) == 30
    assert len({*pool(one).groups.tolist()}) == 60


def test_what_does_not_fit_together_is_refused():
    some = records(none=1, mixup=1, dismix=1)
    with pytest.raises(DisMixError, match="1 runs are missing"):
        pool(some[:-1])
    some[1]["predictions"]["image"] = some[1]["predictions"]["image"][::-1]
    with pytest.raises(DisMixError, match="different images"):
        pool(some)


def test_a_study_that_older_code_began_is_finished():
    """Its first runs name images by fewer parts of their path."""
    runs = records(none=6, mixup=6, dismix=2)
    for run in runs[::2]:
        said = run["predictions"]
        said["image"] = [f"knees/{name}" for name in said["image"]]
    assert len(pool(runs).images) == 60
