"""Records of runs that never happened, to try the report on: numbers near the paper's.

Every record says so: its commit is "synthetic" and its hardware "none, synthetic".
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dismix.bench.paper import GRADERS, MIXERS, data_key, find_number
from dismix.graders.metrics import grade_metrics

COUNTS = {"idrid": [34, 5, 32, 19, 13], "koa": [128, 59, 89, 45, 10]}
SECONDS = {"none": 30.0, "mixup": 30.6, "cutmix": 30.9, "puzzlemix": 75.0, "comixup": 160.0,
           "guidedmixup": 34.0, "filtermix": 41.0, "dismix": 38.0}  # fmt: skip
ALL = ("none", "mixup", "cutmix", "puzzlemix", "comixup", "guidedmixup", "filtermix", "dismix")
PROVENANCE = {"commit": "synthetic", "date": "2026-01-01 00:00 UTC", "hardware": "none, synthetic"}


@dataclass
class Lab:
    """Writes synthetic records below a folder."""

    folder: Path
    counts: dict[str, list[int]] = field(default_factory=lambda: dict(COUNTS))

    def __post_init__(self) -> None:
        (self.folder / "records").mkdir(parents=True, exist_ok=True)

    def grader(self, data: str, grader: str, mixer: str, seed: int, **factors: Any) -> str:
        """Write a grader's run and return its id."""
        extra = factors.pop("content", {})
        all_factors = {"data": data, "grader": grader, "mixer": mixer, "seed": seed, **factors}
        rng = np.random.default_rng(int(_hash(all_factors), 16) % 2**32)
        counts = self.counts.get(data_key(data), [20, 12, 18, 10])
        truth = np.repeat(np.arange(len(counts)), counts)
        target = self._accuracy(data, grader, mixer, factors) + rng.normal(0, 0.008)
        # The same images are hard for every mixer, as on real data.
        ease = np.random.default_rng(len(truth)).uniform(size=len(truth))
        ease = 0.8 * ease + 0.2 * rng.uniform(size=len(truth))
        right = ease <= np.quantile(ease, min(0.99, max(0.05, target)))
        steps = np.where(rng.uniform(size=len(truth)) < 0.8, 1, 2) * rng.choice([-1, 1], len(truth))
        label = np.where(right, truth, np.clip(truth + steps, 0, len(counts) - 1))
        label = np.where(~right & (label == truth), np.where(truth > 0, truth - 1, 1), label)
        content = {
            "kind": "grader", "factors": all_factors, "seed": seed,
            "wall_s": round(SECONDS.get(mixer, 50.0) * rng.uniform(0.97, 1.03), 2),
            "generator_s": 402.0 if mixer == "dismix" else None,
            "images_seen": 200 * len(truth) * 4, "peak_memory_mib": 5300.0,
            "metrics": grade_metrics(label, truth, len(counts)),
            "predictions": {
                "image": [f"image_{i:03d}.png" for i in range(len(truth))],
                "grade": truth.tolist(), "label": label.tolist(), "probabilities": [],
            },
        }  # fmt: skip
        return self.write({**content, **extra})

    def failed(self, data: str, grader: str, mixer: str, seed: int, error: str) -> str:
        """Write a failed run."""
        factors = {"data": data, "grader": grader, "mixer": mixer, "seed": seed}
        return self.write(
            {"kind": "grader", "status": "failed", "factors": factors, "seed": seed,
             "metrics": None, "predictions": None, "error": error}
        )  # fmt: skip

    def overhead(self, data: str, grader: str, mixer: str, **factors: Any) -> str:
        """Write a timing run."""
        extra = factors.pop("content", {})
        percent = 100 * (SECONDS[mixer] / SECONDS["none"] - 1) * factors.get("p", 0.5) / 0.5
        named = {"data": data, "grader": grader, "mixer": mixer, **factors}
        return self.write(
            {"kind": "overhead", "factors": named, "seed": 0, "wall_s": 20.0,
             "generator_s": 402.0 if mixer == "dismix" else None,
             "metrics": {"overhead_percent": percent, "ms_per_step": 80.0, "ms_vanilla": 70.0},
             **extra}
        )  # fmt: skip

    def generator(self, data: str, ablation: str, z_o: float, z_n: float, **factors: Any) -> str:
        """Write a generator's run."""
        extra = factors.pop("content", {})
        metrics = {"z_o_linear_accuracy": z_o, "z_n_linear_accuracy": z_n, "psnr": 24.1}
        metrics |= {"z_o_linear_mae": 0.5, "z_n_linear_mae": 1.3, "lpips": 0.21}
        return self.write(
            {"kind": "generator", "factors": {"data": data, "ablation": ablation, **factors},
             "seed": 0, "metrics": metrics, "wall_s": 462.0, "generator_s": 402.0, **extra}
        )  # fmt: skip

    def write(self, content: dict[str, Any]) -> str:
        """Write a record and return its id."""
        record = {
            "format": 1, "plan": "synthetic", "status": "done", "config": {"epochs": 200},
            "provenance": PROVENANCE, "predictions": None, "error": None, **content,
        }  # fmt: skip
        record["id"] = _hash([record["kind"], record["factors"], record["config"], record["seed"]])
        path = self.folder / "records" / f"{record['id']}.json"
        path.write_text(json.dumps(record), encoding="utf-8")
        return str(record["id"])

    def _accuracy(self, data: str, grader: str, mixer: str, factors: dict[str, Any]) -> float:
        number = find_number("main", data_key(data), grader, MIXERS.get(mixer, mixer), "accuracy")
        base = find_number("main", data_key(data), grader, "Mixup", "accuracy")
        value = (number.mean if number else base.mean - 1 if base else 70.0) / 100
        value += 0.002 * (mixer == "dismix") - 0.015 * (mixer == "none")
        value -= 0.15 * (factors.get("scarcity", 1.0) < 1) + 0.001 * (
            factors.get("variability", 30) - 30
        )
        return value + 0.01 * (factors.get("labels") == "clean")


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def full_study(folder: Path, seeds: int = 3) -> Lab:
    """Write everything of the paper on two of its data sets, and ten seeds of CLOC on IDRiD."""
    lab = Lab(folder)
    for data in ("idrid", "koa"):
        for grader in GRADERS:
            for mixer in ALL:
                for seed in range(10 if (data, grader) == ("idrid", "cloc") else seeds):
                    lab.grader(data, grader, mixer, seed)
        for mixer in ("mixup", "guidedmixup", "dismix"):
            for seed in range(seeds):
                lab.grader(data, "cloc", mixer, seed, scarcity=0.1)
                lab.grader(data, "cloc", mixer, seed, labels="clean")
        for variability in (30, 50, 70):
            for p in (0.3, 0.5, 0.7):
                if (variability, p) != (30, 0.5):
                    lab.grader(data, "cloc", "dismix", 0, variability=variability, p=p)
        for policy in ("ordinal_mix", "nonordinal_mix", "order_swap", "generate_and_mix",
                       "preserving", "interpolating"):  # fmt: skip
            lab.grader(data, "cloc", "dismix", 0, policies=policy)
            lab.grader(data, "cloc", "dismix", 0, policies=policy, scarcity=0.1)
        lab.grader(data, "cloc", "dismix", 0, twins="without")
        lab.grader(data, "cloc", "mixup", 0, twins="without")
    for mixer in ALL[1:]:
        lab.overhead("idrid", "gol", mixer)
    for ablation, z_o, z_n in (("full", 0.64, 0.3), ("no_reversal", 0.63, 0.41),
                               ("one_codebook", 0.5, 0.5)):  # fmt: skip
        lab.generator("koa", ablation, z_o, z_n)
    lab.generator("idrid", "full", 0.6, 0.35, scarcity=0.1)
    return lab


def torn_study(folder: Path) -> Lab:
    """Write a study with holes: unknown data, failures, odd names, one seed here, three there."""
    lab = Lab(folder)
    odd = 'Knie <b>"α"</b> & Söhne'
    for mixer in ("none", "mixup", "dismix"):
        for seed in range(3 if mixer != "mixup" else 2):
            lab.grader(odd, "cloc", mixer, seed)
    lab.grader(odd, "my|grader <i>", "mixup", 0)
    lab.failed(
        odd, "my|grader <i>", "dismix", 0, "Traceback\nRuntimeError: <script>alert(1)</script>"
    )
    lab.failed(odd, "cloc", "mixup", 2, "Traceback\nOutOfMemoryError: no memory")
    return lab
