"""Grades of image files: read as in training, in batches; bad files are named, not fatal."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dismix.data.decode import Channels, Fit
from dismix.data.sources.base import IMAGE_SUFFIXES
from dismix.data.store_settings import StoreSettings, load_image
from dismix.data.transforms import equalize
from dismix.errors import DisMixError
from dismix.graders.base import Grader
from dismix.progress import Progress


@dataclass(frozen=True)
class Prediction:
    """What a grader says about one file.

    Attributes:
        image: Path as it was given.
        grade: Decision, 0..C-1.
        name: Name of that rank.
        probabilities: C numbers.
        expected_rank: The method's point estimate.
        uncertainty: In the method's own unit, or None.
    """

    image: str
    grade: int
    name: str
    probabilities: tuple[float, ...]
    expected_rank: float
    uncertainty: float | None


@dataclass(frozen=True)
class Predictions:
    """Predictions of the files that could be read, and why others could not.

    Attributes:
        found: In the order of the files.
        skipped: (path, reason) of unreadable files.
        ranks: Names of the ranks.
    """

    found: tuple[Prediction, ...]
    skipped: tuple[tuple[str, str], ...]
    ranks: tuple[str, ...]

    def to_csv(self) -> str:
        """Return a table: image, grade, name, p_<k>, expected_rank, uncertainty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        law = [f"p_{k}" for k in range(len(self.ranks))]
        writer.writerow(["image", "grade", "name", *law, "expected_rank", "uncertainty"])
        for p in self.found:
            unsure = "" if p.uncertainty is None else f"{p.uncertainty:.6g}"
            shares = [f"{share:.6f}" for share in p.probabilities]
            row = [p.image, p.grade, p.name, *shares, f"{p.expected_rank:.6f}", unsure]
            writer.writerow(row)
        return text.getvalue()

    def to_json(self) -> str:
        """Return {"ranks", "predictions", "skipped"}."""
        content: dict[str, Any] = {
            "ranks": self.ranks,
            "predictions": [vars(p) for p in self.found],
            "skipped": [{"image": path, "reason": reason} for path, reason in self.skipped],
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def expand_paths(paths: Iterable[str | Path]) -> list[Path]:
    """Replace folders by the image files below them, sorted."""
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        below = sorted(p for p in path.rglob("*") if p.name.lower().endswith(IMAGE_SUFFIXES))
        if not below:
            raise DisMixError("holds no images", file=path, cure="give files or another folder")
        files += below
    return files


def predict_files(
    grader: Grader,
    paths: Sequence[str | Path],
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Predictions:
    """Grade image files.

    Args:
        grader: From `Grader.load`: it knows size, channels and equalisation.
        paths: Files, or folders of them.
        batch_size: Images graded at once.
        progress: Called after each batch.
    """
    files, about = expand_paths(paths), grader.about
    if not about:
        raise DisMixError(
            "this grader does not know how its images were read",
            cure="load a trained one with Grader.load, or give tensors to predict",
        )
    found: list[Prediction] = []
    skipped: list[tuple[str, str]] = []
    ranks = tuple(str(name) for name in about["ranks"])
    done = 0
    for good, bad, pixels in _batches(files, about, batch_size):
        skipped += bad
        if good:
            images = torch.from_numpy(np.stack(pixels)).to(grader.device)
            grades = grader.predict(equalize(images) if about["equalize"] else images).to("cpu")
            for i, path in enumerate(good):
                label = int(grades.label[i])
                unsure = None if grades.uncertainty is None else float(grades.uncertainty[i])
                law = tuple(grades.probabilities[i].tolist())
                rank = float(grades.rank[i])
                found.append(Prediction(str(path), label, ranks[label], law, rank, unsure))
        done += len(good) + len(bad)
        if progress is not None:
            progress("grading", done, len(files))
    return Predictions(tuple(found), tuple(skipped), ranks)


_Part = tuple[list[Path], list[tuple[str, str]], list[NDArray[np.uint8]]]


def _batches(files: list[Path], about: dict[str, Any], batch_size: int) -> Iterator[_Part]:
    channels: Channels = 1 if about["grey"] else 3
    settings = StoreSettings(about["size"], channels, cast(Fit, about["fit"]), bits=about["bits"])

    def read(path: Path) -> NDArray[np.uint8] | str:
        try:
            return load_image(path, settings)
        except DisMixError as error:
            return error.problem if error.file is not None else str(error)
        except OSError as error:
            return error.strerror or str(error)

    with ThreadPoolExecutor(4) as pool:
        for start in range(0, len(files), batch_size):
            part = files[start : start + batch_size]
            good: list[Path] = []
            bad: list[tuple[str, str]] = []
            pixels: list[NDArray[np.uint8]] = []
            for path, content in zip(part, pool.map(read, part), strict=True):
                if isinstance(content, str):
                    bad.append((str(path), content))
                else:
                    good.append(path)
                    pixels.append(content)
            yield good, bad, pixels
