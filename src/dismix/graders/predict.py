"""Grades of image files: read as in training, in batches; bad files are named, not fatal.

The images may also be those of a manifest; what is known of them then stands beside the grades.
"""

import csv
import io
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dismix.data.decode import Channels, Fit
from dismix.data.encodings import refuse_undecodable
from dismix.data.grey import other_kind_note
from dismix.data.manifest import Manifest
from dismix.data.sources.walking import images_below
from dismix.data.store_settings import StoreSettings, load_image
from dismix.data.transforms import equalize
from dismix.errors import DisMixError
from dismix.graders.about import require_about
from dismix.graders.base import Grader
from dismix.graders.evaluation import grade_batch
from dismix.graders.report import same_ranks
from dismix.progress import Progress


@dataclass(frozen=True)
class Known:
    """What a manifest says of an image, by the rule that `dismix grader evaluate` judges by.

    Attributes:
        split: "train", "val" or "test".
        known_grade: Majority of the votes; the reference grade in the test split, or where
            nobody voted.
        known_rank: Mean of the votes, or that grade.
    """

    split: str
    known_grade: int
    known_rank: float


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
        known: What a manifest says of it; None for files from elsewhere.
    """

    image: str
    grade: int
    name: str
    probabilities: tuple[float, ...]
    expected_rank: float
    uncertainty: float | None
    known: Known | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; what is known is among them only where there is any."""
        own = {name: value for name, value in vars(self).items() if name != "known"}
        return own | ({} if self.known is None else vars(self.known))


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
        """Return a table: image, grade, name, p_<k>, expected_rank, uncertainty.

        Grades, k and expected ranks count from 0, the lowest, whatever the ranks are called.
        Images of a manifest have the columns split, known_grade and known_rank too.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        law = [f"p_{k}" for k in range(len(self.ranks))]
        known = [f.name for f in fields(Known)] if self.compared else []
        writer.writerow(["image", "grade", "name", *law, "expected_rank", "uncertainty", *known])
        for p in self.found:
            unsure = "" if p.uncertainty is None else f"{p.uncertainty:.6g}"
            shares = [f"{share:.6f}" for share in p.probabilities]
            row = [p.image, p.grade, p.name, *shares, f"{p.expected_rank:.6f}", unsure]
            if p.known is not None:
                row += [p.known.split, p.known.known_grade, f"{p.known.known_rank:.6g}"]
            writer.writerow(row)
        return text.getvalue()

    @property
    def compared(self) -> bool:
        """Whether grades are known that the predictions can be compared with."""
        return any(p.known is not None for p in self.found)

    def comparison(self) -> str:
        """Return how far predictions and known grades agree, in a few words.

        Example:
            >>> said = ("a.png", 2, "severe", (0, 0.2, 0.8), 1.8, None)
            >>> seen = tuple(Prediction(*said, Known("test", true, true)) for true in (2, 1))
            >>> Predictions(seen, (), ("none", "mild", "severe")).comparison()
            '1 of 2 as known (50.0 %), mean error 0.500 grades'
        """
        gaps = [abs(p.grade - p.known.known_grade) for p in self.found if p.known is not None]
        right = gaps.count(0)
        return (
            f"{right} of {len(gaps)} as known ({100 * right / len(gaps):.1f} %), "
            f"mean error {sum(gaps) / len(gaps):.3f} grades"
        )

    def to_json(self) -> str:
        """Return {"ranks", "predictions", "skipped"}."""
        content: dict[str, Any] = {
            "ranks": self.ranks,
            "predictions": [p.to_dict() for p in self.found],
            "skipped": [{"image": path, "reason": reason} for path, reason in self.skipped],
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def expand_paths(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Replace folders by the image files below them, in natural order; one path may stand alone."""
    files: list[Path] = []
    # A text alone would be taken letter by letter, and its "/" for the whole disk.
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        if not path.is_dir():
            refuse_undecodable([str(path)])
            files.append(path)
            continue
        # Pictures of kinds that are not read are listed as such, not passed over.
        below = images_below(path, unread=True)
        if not below:
            raise DisMixError("holds no images", file=path, cure="give files or another folder")
        files += below
    return files


def predict_files(
    grader: Grader,
    paths: str | Path | Sequence[str | Path],
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Predictions:
    """Grade image files.

    Args:
        grader: From `Grader.load`: it knows size, channels and equalisation.
        paths: Files, or folders of them; or one of these alone.
        batch_size: Images graded at once.
        progress: Called after each batch.
    """
    about = require_about(grader)
    return _graded(grader, about, expand_paths(paths), batch_size, progress)


def predict_manifest(
    grader: Grader,
    manifest: Manifest,
    *,
    split: str | None = None,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Predictions:
    """Grade the images of a manifest, with what it says of them beside the predictions.

    Args:
        grader: From `Grader.load`: it knows size, channels and equalisation.
        manifest: Images, called in the predictions as they are in it.
        split: "train", "val" or "test"; None takes all rows.
        batch_size: Images graded at once.
        progress: Called after each batch.
    """
    about = require_about(grader)
    rows = manifest if split is None else manifest.split(split)
    if len(rows) == 0:
        raise DisMixError(
            f"has no images in split '{split}'", file=manifest.path, cure="leave --split out"
        )
    same_ranks(about["ranks"], manifest)
    target = rows.target()
    said = zip(rows.table["split"], target.hard.tolist(), target.rank.tolist(), strict=True)
    known = [Known(*one) for one in said]
    return _graded(
        grader, about, rows.image_paths, batch_size, progress,
        names=rows.table["image"].tolist(), known=known,
    )  # fmt: skip


def _graded(
    grader: Grader,
    about: dict[str, Any],
    files: Sequence[Path],
    batch_size: int,
    progress: Progress | None,
    *,
    names: Sequence[str] | None = None,
    known: Sequence[Known] | None = None,
) -> Predictions:
    if note := other_kind_note(files, grey=about["grey"], bits=about["bits"]):
        warnings.warn(note, stacklevel=3)
    found: list[Prediction] = []
    skipped: list[tuple[str, str]] = []
    ranks = tuple(str(name) for name in about["ranks"])
    names = [str(path) for path in files] if names is None else names
    done = 0
    for good, bad, pixels in _batches(files, about, batch_size):
        skipped += [(names[row], reason) for row, reason in bad]
        if good:
            images = torch.from_numpy(np.stack(pixels)).to(grader.device)
            images = equalize(images) if about["equalize"] else images
            grades = grade_batch(grader, images).to("cpu")
            for i, row in enumerate(good):
                label = int(grades.label[i])
                unsure = None if grades.uncertainty is None else float(grades.uncertainty[i])
                law = tuple(grades.probabilities[i].tolist())
                rank = float(grades.rank[i])
                truth = None if known is None else known[row]
                found.append(Prediction(names[row], label, ranks[label], law, rank, unsure, truth))
        done += len(good) + len(bad)
        if progress is not None:
            progress("grading", done, len(files))
    return Predictions(tuple(found), tuple(skipped), ranks)


#: Positions of the files that were read, positions and reasons of the others, and the pixels.
_Part = tuple[list[int], list[tuple[int, str]], list[NDArray[np.uint8]]]


def _batches(files: Sequence[Path], about: dict[str, Any], batch_size: int) -> Iterator[_Part]:
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
            good: list[int] = []
            bad: list[tuple[int, str]] = []
            pixels: list[NDArray[np.uint8]] = []
            for row, content in enumerate(pool.map(read, part), start):
                if isinstance(content, str):
                    bad.append((row, content))
                else:
                    good.append(row)
                    pixels.append(content)
            yield good, bad, pixels
