"""What a training leaves to read: a line of metrics an epoch, and picture strips."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dismix import atomic

if TYPE_CHECKING:
    from dismix.generator.images import SplitImages
    from dismix.generator.model import Generator

METRICS = "metrics.jsonl"


class RunLog:
    """Appends to ``metrics.jsonl`` and draws strips.

    Args:
        run: Run folder.
        epoch: Epochs already done; later lines, left by a killed run, are dropped.
        active: False writes nothing (other processes of the same training).
    """

    def __init__(self, run: Path, epoch: int, *, active: bool = True) -> None:
        self.run, self.active = run, active
        if not active:
            return
        run.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(run) if line["epoch"] <= epoch]
        atomic.write_text(run / METRICS, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one epoch."""
        if self.active:
            with open(self.run / METRICS, "a", encoding="utf-8") as file:
                file.write(json.dumps(dict(metrics)) + "\n")

    def strip(self, model: "Generator", split: "SplitImages", epoch: int) -> None:
        """Draw originals, reconstructions and traverses of a few images."""
        if self.active:
            from dismix.generator.strips import draw_strip
            from dismix.show.contact_sheet import save_picture

            picture = draw_strip(model, split)
            save_picture(picture, self.run / "strips" / f"epoch_{epoch:04d}.png")


def read_metrics(run: Path) -> list[dict[str, float]]:
    """Read the metrics of a run; a last line cut short by a kill is passed over."""
    path = run / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found: list[dict[str, float]] = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found
