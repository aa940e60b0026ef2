"""How many test images does every run get wrong, or right, whatever grader and mixer?

    python benchmarks/stubborn_images.py results/bench/idrid results/bench/idrid_40

Reads the predictions of the records. Only the images between, wrong in some runs and right in
others, can tell mixers apart.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

OFTEN = 0.8


def main() -> None:
    """Print a row for each grade, and one for all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    right: dict[str, list[bool]] = defaultdict(list)
    grades: dict[str, int] = {}
    runs = 0
    for folder in parser.parse_args().folders:
        for file in sorted((folder / "records").glob("*.json")):
            found = json.loads(file.read_text(encoding="utf-8"))["predictions"]
            runs += 1
            for image, grade, label in zip(
                found["image"], found["grade"], found["label"], strict=True
            ):
                grades[image] = grade
                right[image].append(grade == label)
    share = {image: sum(found) / len(found) for image, found in right.items()}
    print(f"{runs} runs")
    print(f"| grade | images | wrong in {OFTEN:.0%} of the runs | between | right in {OFTEN:.0%} |")
    print("| --- | --- | --- | --- | --- |")
    groups = {str(grade): [grade] for grade in sorted({*grades.values()})}
    for name, members in {**groups, "all": sorted({*grades.values()})}.items():
        shares = [share[image] for image, grade in grades.items() if grade in members]
        wrong = sum(1 - value >= OFTEN for value in shares)
        sure = sum(value >= OFTEN for value in shares)
        print(f"| {name} | {len(shares)} | {wrong} | {len(shares) - wrong - sure} | {sure} |")


if __name__ == "__main__":
    main()
