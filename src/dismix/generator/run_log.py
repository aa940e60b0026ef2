"""What a training leaves to read: a line of metrics an epoch, and picture strips."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dismix import atomic
from dismix.errors import DisMixError

if TYPE_CHECKING:
    from dismix.generator.images import SplitImages
    from dismix.generator.model import Generator

METRICS = "metrics.jsonl"


def require_tensorboard() -> Any:
    """Return torch's writer for TensorBoard, or say how to get it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise DisMixError(
            "TensorBoard is not installed", cure="pip install 'dismix[tensorboard]'"
        ) from error
    return SummaryWriter


class RunLog:
    """Appends to ``metrics.jsonl`` and draws strips; shows both to TensorBoard if asked.

    Args:
        run: Run folder.
        epoch: Epochs already done; later lines, left by a killed run, are dropped.
        active: False writes nothing (other processes of the same training).
        tensorboard: Also write ``tensorboard/`` in the run folder.
    """

    def __init__(
        self, run: Path, epoch: int, *, active: bool = True, tensorboard: bool = False
    ) -> None:
        self.run, self.active = run, active
        self.board: Any = None
        if not active:
            return
        run.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(run) if line["epoch"] <= epoch]
        atomic.write_text(run / METRICS, "".join(json.dumps(line) + "\n" for line in kept))
        if tensorboard:
            folder = str(run / "tensorboard")
            self.board = require_tensorboard()(folder, purge_step=epoch + 1)

    def write(self, metrics: Mapping[str, float]) -> None:
        """Append one epoch."""
        if not self.active:
            return
        try:
            with open(self.run / METRICS, "a", encoding="utf-8") as file:
                file.write(json.dumps(dict(metrics)) + "\n")
        except OSError as error:
            raise atomic.cannot_write(self.run / METRICS, error) from error
        if self.board is not None:
            for name, value in metrics.items():
                self.board.add_scalar(_tag(name), value, int(metrics["epoch"]))
            self.board.flush()

    def strip(self, model: "Generator", split: "SplitImages", epoch: int) -> None:
        """Draw originals, reconstructions and traverses of a few images."""
        if self.active:
            from dismix.generator.strips import draw_strip
            from dismix.show.contact_sheet import save_picture

            picture = draw_strip(model, split)
            save_picture(picture, self.run / "strips" / f"epoch_{epoch:04d}.png")
            if self.board is not None:
                pixels = np.asarray(picture.convert("RGB"))
                self.board.add_image("strip", pixels, epoch, dataformats="HWC")

    def close(self) -> None:
        """Finish TensorBoard's files."""
        if self.board is not None:
            self.board.close()


def _tag(name: str) -> str:
    """Group curves: weights of terms, critics, validation, codebooks, the rest.

    Example:
        >>> _tag("w_realism"), _tag("psnr_val"), _tag("loss")
        ('weights/realism', 'validation/psnr_val', 'training/loss')
    """
    if name.startswith("w_"):
        return f"weights/{name.removeprefix('w_')}"
    if name.endswith("_val") or name in ("mixing_accuracy_train", "score"):
        return f"validation/{name}"
    if name.startswith(("usage_", "perplexity_", "revived_")):
        return f"codebooks/{name}"
    return f"{'critics' if name.startswith('critic') else 'training'}/{name}"


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
