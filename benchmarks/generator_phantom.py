"""What a tiny generator separates on the phantom knees, on a CPU.

    python benchmarks/generator_phantom.py [--subject fundus] [--data-seed N] [--set name=value]

Draws 1000/200/300 pictures of 64 px with the default annotators, trains `--arch tiny` with the
default recipe, and measures on the test pictures, encoded without labels: how well the rank
can be read from each code, and the true rank factor (joint-space width or lesion area, in
ranks) measured from the decoded pictures themselves along an ordinal and a non-ordinal
traverse. Nothing is chosen on these pictures.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dismix import Generator, read_manifest
from dismix.data.phantom import PhantomSpec, build_phantom, measured_severity
from dismix.data.transforms import from_unit
from dismix.generator.fidelity import psnr
from dismix.generator.images import load_split
from dismix.generator.probes import probe_generator
from dismix.generator.start_run import train_generator
from dismix.generator.strips import draw_strip
from dismix.generator.traverse import nonordinal_traverse, ordinal_traverse
from dismix.progress import bar
from dismix.provenance import provenance
from dismix.show.contact_sheet import save_picture

RANKS = 5


def severity(images: torch.Tensor, subject: str) -> NDArray[np.float64]:
    """Measure the rank factor of images (B, channels, H, W) in [-1, 1], in ranks (B,)."""
    return np.asarray(measured_severity(from_unit(images).numpy(), subject, RANKS))


def measure(model: Generator, data: Path, subject: str) -> dict[str, object]:
    """Return every number of the table."""
    manifest, device = read_manifest(data), torch.device("cpu")
    train, test = (load_split(manifest, s, 64, device=device) for s in ("train", "test"))
    images = test.images(torch.arange(len(test)), device)
    with torch.no_grad():
        rebuilt = model.decode(model.encode(images)).clamp(-1, 1)
    probes = probe_generator(model, train, test)
    at_ranks = ordinal_traverse(model, images, torch.arange(RANKS).float())
    found = np.stack([severity(part, subject) for part in at_ranks])
    lams = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    looks = nonordinal_traverse(model, images, images.roll(1, 0), None, lams)
    moved = np.stack([severity(part, subject) for part in looks])
    return {
        "psnr": round(float(psnr(rebuilt, images).mean()), 2),
        **{name: round(result.accuracy, 3) for name, result in probes.items()},
        "severity_error_of_reconstructions": round(
            float(np.abs(severity(rebuilt, subject) - severity(images, subject)).mean()), 3
        ),
        "severity_at_ranks": found.mean(1).round(2).tolist(),
        "images_with_monotone_traverse": round(
            float((np.diff(found, axis=0) > 0).all(0).mean()), 3
        ),
        "nonordinal_mean_change": (moved - moved[0]).mean(1).round(2).tolist(),
        "nonordinal_mean_absolute_change": np.abs(moved - moved[0]).mean(1).round(2).tolist(),
    }


def main() -> None:
    """Run and print one JSON record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--subject", default="knee", choices=["knee", "fundus"])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument("--data-seed", type=int, default=7, help="of the pictures")
    parser.add_argument("--strip", type=Path, help="write a picture strip here")
    options = parser.parse_args()
    settings = dict(text.split("=", 1) for text in options.set)
    with tempfile.TemporaryDirectory() as folder, bar() as progress:
        data, run = Path(folder) / "data", Path(folder) / "run"
        spec = PhantomSpec(
            subject=options.subject, train=1000, val=200, test=300, seed=options.data_seed
        )
        build_phantom(spec, data, progress=progress)
        start = time.perf_counter()
        best = train_generator(
            data, run, arch="tiny", settings=settings, seed=options.seed, cpu=True,
            cache=Path(folder) / "cache", progress=progress,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        model = Generator.load(run)
        record = {"training_seconds": round(seconds), "threads": torch.get_num_threads()}
        record |= {"epoch": best["epoch"], "mixing_accuracy": round(best["score"], 3)}
        record |= measure(model, data, options.subject)
        if options.strip:
            test = load_split(read_manifest(data), "test", 64, device=torch.device("cpu"))
            save_picture(draw_strip(model, test, 6), options.strip)
    print(json.dumps({**record, "settings": settings, **provenance()}, indent=1))


if __name__ == "__main__":
    main()
