"""Draws belong to names: no place in a file, no folder above the data."""

from pathlib import Path

import numpy as np
from scipy import stats

from dismix.data.draws import drawn_order, image_keys, keyed_uniforms


def test_draws_are_uniform_and_independent():
    draws = keyed_uniforms([f"{i}.png" for i in range(4000)], 3, seed=1, purpose="test")
    assert draws.min() >= 0
    assert draws.max() < 1
    for column in draws.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    off_diagonal = np.corrcoef(draws.T)[np.triu_indices(3, 1)]
    assert np.abs(off_diagonal).max() < 0.06


def test_a_draw_depends_on_key_seed_and_purpose_only():
    def draw(key="a", seed=0, purpose="x", width=2):
        return keyed_uniforms(["z", key], width, seed=seed, purpose=purpose)[1, :2].tolist()

    assert draw() == keyed_uniforms(["a"], 2, seed=0, purpose="x")[0].tolist()
    # More than one hash block must not change the first numbers.
    assert draw() == draw(width=20)
    changed = [draw(key="b"), draw(seed=1), draw(seed=-1), draw(purpose="y")]
    assert all(other != draw() for other in changed)


def test_wide_draws_do_not_repeat():
    draws = keyed_uniforms(["a"], 40, seed=0, purpose="x")
    assert draws.shape == (1, 40)
    assert len(np.unique(draws)) == 40


def test_drawn_order_ignores_the_order_given():
    names = [f"{i}.png" for i in range(50)]
    order = [names[i] for i in drawn_order(names, seed=3, purpose="x")]
    back = names[::-1]
    assert order == [back[i] for i in drawn_order(back, seed=3, purpose="x")]
    assert sorted(order) == sorted(names)
    assert order != names


def test_image_keys_leave_out_the_folder_above():
    here = [Path("/here/train/1.png"), Path("/here/test/1.png"), Path("/here/test/2.png")]
    there = [Path("/far/away") / path.relative_to("/here") for path in here]
    assert image_keys(here) == image_keys(there) == ["train/1.png", "test/1.png", "test/2.png"]
    assert image_keys(here[1:]) == ["1.png", "2.png"]
    assert image_keys(here[1:], 2) == ["test/1.png", "test/2.png"]
    assert image_keys(here, 1) == image_keys(here, 2)
    assert image_keys([Path("1.png")], 2) == ["1.png"]
    assert image_keys([]) == []


def test_draws_of_a_set_with_names_that_clash_are_by_two_parts_for_all():
    # As in IDRiD, whose published results hang on it: also names that occur once, such as 3.
    train = [Path(f"/idrid/a. Training Set/{i}.jpg") for i in (1, 2, 3)]
    test = [Path("/idrid/b. Testing Set/1.jpg")]
    assert image_keys(train) == ["1.jpg", "2.jpg", "3.jpg"]
    assert image_keys(train + test)[2] == "a. Training Set/3.jpg"
