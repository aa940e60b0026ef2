"""Draw what DisMix gains on each other mixer, from the records, as SVG files.

    python benchmarks/gains_figure.py results/bench/idrid results/bench/koa -o results/figures

A file for each data set and metric. The same figures, in the colours of the page, stand in every
report of `dismix bench report`.
"""

import argparse
from pathlib import Path

from dismix import atomic
from dismix.bench.report_gains import gains_by_data, gains_svg
from dismix.bench.report_study import read_study
from dismix.bench.tables import METRICS


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="of records")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    for folder in args.folders:
        study = read_study(folder)
        for metric in METRICS:
            for data, words, own in gains_by_data(study, metric):
                file = args.output / f"gains_{data}_{metric.key}.svg"
                atomic.write_text(file, gains_svg(own, words, metric, heading=True) + "\n")
                print(file)


if __name__ == "__main__":
    main()
