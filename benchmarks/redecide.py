"""Records of runs as they are when the most probable rank decides instead of cut points.

    python benchmarks/redecide.py FROM TO [--methods poe gol]

Until 2026-11-19 POE and GOL decided where the expected rank lies between cut points fitted on
validation; since then their most probable rank does. The decision teaches nothing and chooses no
checkpoint (`select` is "loss", a score of the laws), so a run of today has the laws of a run of
then. This writes the records of FROM's runs of these methods to TO with grades, metrics, settings
and id as of today; "decided" says from which record and when. What the record does not hold is left
out: the decisions on validation images, and with them the measures made of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dismix.atomic import write_text
from dismix.bench.specs import short_id
from dismix.graders.metrics import grade_metrics
from dismix.graders.settings import choose_settings
from dismix.laws import majority_rank
from dismix.provenance import commit

#: Laws are kept with four digits: what was equal may differ by the last of them.
ROUNDED = 1.01e-4
#: Measures of the laws alone, which the decision leaves as they were.
OF_LAWS = ("count", "rps", "mae_expected", "loss")


def id_of(record: dict[str, Any]) -> str:
    """Return the id of a grader's run, as the benchmark makes it."""
    config = record["config"]
    generator = config["generator"]
    parts = {
        "format": 1, "kind": "grader", "data": config["data"]["content"],
        "grader": config["grader"], "weights": config["weights"], "mixer": config["mixer"],
        "generator": None if generator is None else generator["id"], "seed": record["seed"],
    }  # fmt: skip
    return short_id(parts)


def redecide(record: dict[str, Any], today: str) -> dict[str, Any]:
    """Return the record of the same run with the decision of today."""
    if id_of(record) != record["id"]:
        raise SystemExit(f"{record['id']}: the record does not hold all that its id is made of")
    grader = record["config"]["grader"]
    chosen = choose_settings(grader["method"], changes={"decide": "mode"}).to_dict()
    if grader["select"] != ["loss"] or "cuts" in chosen or grader["hparams"]:
        raise SystemExit(f"{record['id']}: the decision may have chosen the checkpoint")
    said, old = record["predictions"], record["metrics"]
    laws = torch.tensor(said["probabilities"], dtype=torch.float64)
    label = majority_rank(laws, tie=ROUNDED)
    settings = {name: value for name, value in grader.items() if name != "cuts"}
    settings["hparams"] = chosen["hparams"]
    made = grade_metrics(
        label.numpy(), np.array(said["grade"]), laws.shape[1], probabilities=laws.numpy()
    )
    new = record | {
        "config": record["config"] | {"grader": settings},
        "metrics": made | {name: old[name] for name in OF_LAWS},
        "predictions": said | {"label": label.tolist()},
        "validation": {name: record["validation"][name] for name in OF_LAWS},
        "decided": {"record": record["id"], "commit": today},
    }
    return new | {"id": id_of(new)}


def main() -> None:
    """Write the records and say what changed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--methods", nargs="+", default=["poe", "gol"])
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    today = commit()
    for file in sorted(args.source.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["factors"]["grader"] not in args.methods or "decided" in record:
            continue
        new = redecide(record, today)
        text = json.dumps(new, ensure_ascii=False, allow_nan=False)
        write_text(args.target / f"{new['id']}.json", text + "\n")
        before, after = (r["metrics"] for r in (record, new))
        print(
            f"{record['id']} -> {new['id']}  {record['factors']['grader']}"
            f"  {record['factors']['mixer']}  {100 * before['accuracy']:.1f} / {before['mae']:.3f}"
            f" -> {100 * after['accuracy']:.1f} / {after['mae']:.3f}"
        )


if __name__ == "__main__":
    main()
