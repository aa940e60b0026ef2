"""Miniatures of each source in its publisher's layout: same names, quirks and folders."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Builder = Callable[[Path], Path]


def picture(path: Path, seed: int = 0, mode: str = "RGB", size: int = 32) -> Path:
    """Write a small noisy picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size, size, 3) if mode == "RGB" else (size, size)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write_csv(path: Path, rows: list[list[object]], delimiter: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def build_idrid(root: Path) -> Path:
    part = root / "B. Disease Grading"
    for split, folder, grades in (
        ("Training", "a. Training Set", [3, 0, 2, 1]),
        ("Testing", "b. Testing Set", [4, 2]),
    ):
        trailing = [""] * 9 if split == "Training" else []
        rows: list[list[object]] = [
            ["Image name", "Retinopathy grade", "Risk of macular edema ", *trailing]
        ]
        for number, grade in enumerate(grades, 1):
            name = f"IDRiD_{number:03d}"
            rows.append([name, grade, 2, *trailing])
            picture(part / "1. Original Images" / folder / f"{name}.jpg", seed=grade)
        letter = "a" if split == "Training" else "b"
        write_csv(
            part / "2. Groundtruths" / f"{letter}. IDRiD_Disease Grading_{split} Labels.csv", rows
        )
    return root


def build_koa(root: Path) -> Path:
    patient = 9000000
    for split, each in (("train", 2), ("val", 1), ("test", 1)):
        for grade in range(5):
            for _ in range(each):
                patient += 1
                for side in "LR":
                    picture(root / split / str(grade) / f"{patient}{side}.png", patient, mode="L")
    picture(root / "auto_test" / "0" / "9000001L.png", mode="L")
    (root / ".DS_Store").write_text("")
    return root


CHAOYANG = {
    "train": [
        ("535940-IMG009x024", 2, (2, 2, 2)),
        ("535940-IMG013x008", 0, (1, 0, 0)),
        ("353042_4-IMG005x014", 1, (1, 1, 1)),
        ("533847-IMG002x010", 3, (3, 2, 3)),
    ],
    "test": [
        ("535940-IMG009x022", 2, (2, 2, 2)),
        ("535957-IMG005x005", 3, (3, 3, 3)),
    ],
}


def build_chaoyang(root: Path) -> Path:
    for split, patches in CHAOYANG.items():
        entries = []
        for seed, (stem, label, votes) in enumerate(patches):
            name = f"{split}/{stem}-{label}.JPG"
            picture(root / name, seed + len(split))
            entry: dict[str, object] = {"label": label, "name": name}
            entries.append(entry | dict(zip(("label_A", "label_B", "label_C"), votes, strict=True)))
        (root / f"{split}.json").write_text(json.dumps(entries))
    return root


RESIDENTS = [f"Resident{i}" for i in range(1, 8)]
GLEASON: dict[str, list[list[object]]] = {
    "train": [
        ["p1_0_0", "NC", "NC", "", "", "G3", "", "", "NC"],
        ["p2_0_1", "G4", "", "G4", "", "", "G5", "G4", ""],
        ["p3_0_1", "G5", "", "G5", "", "", "", "", ""],
    ],
    "val": [["p4_1_0", "G3", "G3", "", "", "", "", "", ""]],
    "test": [
        ["p5_0_0", "G3", "G3", "G3", "G3", "", "", "", "", "G3"],
        ["p6_0_0", "G3", "G3", "G3", "G3", "", "", "", "", "G4"],
        ["p7_0_0", "NC", "", "NC", "", "", "", "", "", "NC"],
    ],
}


def build_crowdgleason(root: Path) -> Path:
    for split, rows in GLEASON.items():
        header: list[object] = ["Patch filename", "label", *RESIDENTS]
        header += ["ground truth"] if split == "test" else []
        write_csv(root / f"{split}.csv", [header, *rows])
        for seed, row in enumerate(rows):
            folder = "test" if split == "test" else "train"
            picture(root / "patches" / folder / f"{row[0]}.png", seed)
    return root


def build_folders(root: Path) -> Path:
    for split in ("train", "test"):
        for seed, grade in enumerate(("grade 2", "grade 10", "grade 1")):
            picture(root / split / grade / f"p{seed}_{split}.png", seed)
    return root


def build_table(root: Path) -> Path:
    for seed, name in enumerate("abc"):
        picture(root / "scans" / f"{name}.png", seed)
    rows: list[list[object]] = [
        ["image", "split", "grade"],
        ["scans/a.png", "train", 0],
        ["scans/b.png", "train", 1],
        ["scans/c.png", "test", 2],
    ]
    return write_csv(root / "labels.csv", rows)


BUILDERS: dict[str, Builder] = {
    "chaoyang": build_chaoyang,
    "crowdgleason": build_crowdgleason,
    "folders": build_folders,
    "idrid": build_idrid,
    "koa": build_koa,
    "table": build_table,
}


@pytest.fixture
def build(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that builds the miniature of a source and returns its path."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        return BUILDERS[name](folder)

    return make


@pytest.fixture
def draw() -> Callable[..., Path]:
    return picture


@pytest.fixture
def save_csv() -> Callable[..., Path]:
    return write_csv
