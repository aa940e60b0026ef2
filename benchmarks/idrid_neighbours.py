"""Do neighbours in IDRiD's numbering show the same patient? What that means for a random split.

    python benchmarks/idrid_neighbours.py IDRID/manifest.csv

The data set names no patients. If the two eyes of one person follow each other, images one number
apart are more alike, in colour and in grade, than images two or more apart, and a validation part
drawn at random holds eyes whose fellows are trained on. The published test part is apart.
"""

import argparse
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dismix.data.manifest import Manifest, read_manifest
from dismix.generator.images import load_split
from dismix.provenance import provenance

LAGS = (1, 2, 3, 5, 10, 20, 50)
SIZE, BLACK = 64, 20


def colours(data: Manifest, split: str) -> NDArray[np.float64]:
    """Return means and spreads of the channels within the fundus, and the fundus's share."""
    import torch

    images = load_split(data, split, SIZE, device=torch.device("cpu"))
    pixels = (images.images(torch.arange(len(images)), "cpu").float() + 1) * 127.5
    found = []
    for image in pixels.flatten(2).double().numpy():
        inside = image[:, image.mean(0) > BLACK]
        found.append([*inside.mean(1), *inside.std(1), inside.shape[1] / image.shape[1]])
    return np.array(found)


def main() -> None:
    """Print a table for each published part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    data = read_manifest(parser.parse_args().manifest)
    made = provenance()
    print(f"{made['date']}, commit {made['commit']}")
    for name, splits in (("train and validation", ("train", "val")), ("test", ("test",))):
        splits = tuple(split for split in splits if (data.table["split"] == split).any())
        parts = [data.split(split) for split in splits]
        number = [
            int(re.findall(r"\d+", Path(p).stem)[-1]) for d in parts for p in d.table["image"]
        ]
        order = np.argsort(number)
        looks = np.concatenate([colours(data, split) for split in splits])[order]
        looks = (looks - looks.mean(0)) / looks.std(0)
        grades = np.concatenate([d.grades for d in parts])[order]
        number_there = np.array(number)[order]
        print(
            f"\n{name}, {len(order)} images\n| apart | same grade | colour distance, median | q1 |"
        )
        print("| --- | --- | --- | --- |")
        for lag in LAGS:
            here = number_there[lag:] - number_there[:-lag] == lag
            far = np.linalg.norm(looks[lag:] - looks[:-lag], axis=1)[here]
            same = (grades[lag:] == grades[:-lag])[here]
            low, middle = np.quantile(far, [0.25, 0.5])
            print(f"| {lag} | {100 * same.mean():.1f} % | {middle:.2f} | {low:.2f} |")


if __name__ == "__main__":
    main()
