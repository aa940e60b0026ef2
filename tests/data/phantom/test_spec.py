import json

import numpy as np
import pytest

from dismix.data.phantom import PhantomSpec
from dismix.errors import DisMixError


def test_survives_json():
    spec = PhantomSpec(
        subject="fundus", num_ranks=3, confusion=np.eye(3).tolist(), rank_balance=[1, 2, 1]
    )
    again = PhantomSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert hash(again) == hash(spec)


@pytest.mark.parametrize("name", ["exact", "mild", "strong"])
@pytest.mark.parametrize("num_ranks", [2, 5, 8])
def test_named_confusions_are_stochastic_and_local(name, num_ranks):
    matrix = PhantomSpec(num_ranks=num_ranks, confusion=name).confusion_matrix()
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    far = np.abs(np.subtract.outer(np.arange(num_ranks), np.arange(num_ranks))) > 1
    assert (matrix[far] == 0).all()
    assert (matrix.argmax(axis=1) == np.arange(num_ranks)).all()


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        ({"subject": "hand"}, "subject"),
        ({"num_ranks": 1}, "num_ranks"),
        ({"size": 31}, "size"),
        ({"train": -1}, "train"),
        ({"train": 0, "val": 0, "test": 0}, "train"),
        ({"seed": -1}, "seed"),
        ({"annotators": 1.5}, "annotators"),
        ({"jitter": 0.5}, "jitter"),
        ({"rank_balance": [1, 2]}, "rank_balance"),
        ({"rank_balance": [0, 0, 0, 0, 0]}, "rank_balance"),
        ({"rank_balance": [1, 1, 1, 1, float("nan")]}, "rank_balance"),
        ({"confusion": "milde"}, "confusion"),
        ({"confusion": [[1.0, 0.0], [0.0]], "num_ranks": 2}, "confusion"),
        ({"confusion": [[0.9, 0.2], [0.0, 1.0]], "num_ranks": 2}, "confusion"),
        ({"confusion": [[1.2, -0.2], [0.0, 1.0]], "num_ranks": 2}, "confusion"),
    ],
)
def test_mistakes_name_the_field(wrong, column):
    with pytest.raises(DisMixError) as caught:
        PhantomSpec(**wrong)
    assert caught.value.column == column
    assert caught.value.cure


def test_unknown_field_in_json():
    with pytest.raises(DisMixError, match="ranks"):
        PhantomSpec.from_json({"ranks": 5})
