"""Images per second of the image store next to torchvision's ImageFolder and DataLoader.

    python benchmarks/data_loading.py                      # 1000 made-up JPEGs of 512 px
    python benchmarks/data_loading.py --folder DATA/train  # your images, one folder per grade

Both sides run in this process, one after the other, on the same files and the same two
cores, shuffled, in batches of the same size, with the same transforms:

* fetch: decoded, resized (antialiased bicubic) uint8 batches;
* augment: the same, then flips, rotation below 20 degrees (bilinear) and [-1, 1] scaling,
  which torchvision does in its workers and DisMix in the training process.

The files are read once before anything is timed, so no side pays for a cold disk, and the
workers of the DataLoader are kept between epochs. Of the later epochs the fastest counts,
on both sides. Memory is the peak of a fresh process that builds a store and augments one
epoch of it.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dismix._compat import import_torchvision
from dismix.data.batches import Batches
from dismix.data.store import ImageStore, StoreSettings, build_store

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, help="class-per-folder tree of images")
    parser.add_argument("--images", type=int, default=1000, help="number of made-up images")
    parser.add_argument("--source-size", type=int, default=512, help="their side")
    parser.add_argument("--size", type=int, default=256, help="side after resizing")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4, help="epochs, the first included")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--equalize", action="store_true", help="equalise on both sides too")
    parser.add_argument("--memory-of", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def use_cores(count: int) -> None:
    """Keep this process and its children on the first few cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    torch.set_num_threads(count)


def make_images(folder: Path, count: int, side: int) -> None:
    """Write smooth colour images with fine grain, about as hard to decode as photographs."""
    generator = np.random.default_rng(0)
    for i in range(count):
        coarse = generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
        grain = generator.normal(0, 6, (side, side, 1))
        pixels = np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8)
        path = folder / str(i % 5) / f"{i:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path, quality=92)


def image_files(folder: Path) -> list[Path]:
    """List the images of a class-per-folder tree."""
    return sorted(path for path in folder.glob("*/*") if path.suffix.lower() in SUFFIXES)


def rates(epoch: Callable[[int], Iterable[int]], epochs: int) -> tuple[float, float]:
    """Return images/s of the first epoch and of the fastest later one."""
    results = []
    for number in range(epochs):
        start = time.perf_counter()
        images = sum(epoch(number))
        results.append(images / (time.perf_counter() - start))
    return results[0], max(results[1:])


def torchvision_rates(options: argparse.Namespace, augmented: bool) -> tuple[float, float]:
    """Time the plain way: ImageFolder, transforms, DataLoader with one worker per core."""
    import_torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    filters = transforms.InterpolationMode
    steps: list[object] = [transforms.Resize((options.size,) * 2, filters.BICUBIC)]
    if augmented:
        steps += [
            *([transforms.RandomEqualize(p=1.0)] if options.equalize else []),
            transforms.RandomHorizontalFlip(),
            transforms.RandomVerticalFlip(),
            transforms.RandomRotation(20, filters.BILINEAR),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    else:
        steps.append(transforms.PILToTensor())
    loader = torch.utils.data.DataLoader(
        ImageFolder(str(options.folder), transforms.Compose(steps)),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.cores,
        persistent_workers=True,
    )
    return rates(lambda _: (len(images) for images, _ in loader), options.epochs)


def store_rates(options: argparse.Namespace, augmented: bool) -> tuple[float, float]:
    """Time the store; its first epoch includes reading, decoding and writing everything."""
    files = image_files(options.folder)
    opened: list[ImageStore] = []
    with tempfile.TemporaryDirectory() as cache:

        def store() -> ImageStore:
            if not opened:
                settings = StoreSettings(size=options.size)
                opened.append(build_store(files, settings, cache, workers=options.cores))
            return opened[0]

        def fetched(epoch: int) -> Iterable[int]:
            order = torch.randperm(len(files), generator=torch.Generator().manual_seed(epoch))
            images = store()
            return (len(images[rows]) for rows in order.split(options.batch))

        def batched(epoch: int) -> Iterable[int]:
            batches = Batches(
                store(), None, options.batch, drop_last=False, equalize=options.equalize
            )
            batches.set_epoch(epoch)
            return (len(batch) for batch in batches)

        return rates(batched if augmented else fetched, options.epochs)


def print_peak_memory(options: argparse.Namespace) -> None:
    """Build and augment a store of ``memory_of`` images and print the peak in MB."""
    import resource

    files = image_files(options.folder)
    files = [files[i % len(files)] for i in range(options.memory_of)]
    with tempfile.TemporaryDirectory() as cache:
        store = build_store(files, StoreSettings(size=options.size), cache, workers=options.cores)
        for _ in Batches(store, None, options.batch, drop_last=False):
            pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def peak_memory(options: argparse.Namespace, count: int) -> float:
    """Measure the peak memory of ``count`` images in a fresh process, in MB."""
    command = [sys.executable, __file__, "--folder", str(options.folder)]
    for name in ("size", "batch", "cores"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--memory-of", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def circumstances() -> str:
    """Return date, hardware, commit and versions in one line."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(": ")[1] for line in lines if line.startswith("model name")), cpu)
    here = Path(__file__).parent
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=here, capture_output=True, text=True, check=False).stdout
    versions = f"torch {torch.__version__}, torchvision {import_torchvision().__version__}"
    return f"{date.today()}, {cpu}, commit {commit.strip() or 'unknown'}, {versions}"


def report(options: argparse.Namespace) -> None:
    """Run everything and print a Markdown table."""
    files = image_files(options.folder)
    for path in files:
        path.read_bytes()
    with Image.open(files[0]) as image:
        kind = f"{image.format} {image.width} x {image.height}"
    print(f"{circumstances()}\n")
    print(
        f"{len(files)} images ({kind}) to {options.size} px, batches of {options.batch},"
        f" {options.cores} cores{', equalised' if options.equalize else ''}\n"
    )
    print("| images/s | torchvision, first epoch | later | DisMix, first epoch | later | factor |")
    print("|---|---|---|---|---|---|")
    for name, augmented in (("fetch", False), ("augment", True)):
        first, later = torchvision_rates(options, augmented)
        our_first, our_later = store_rates(options, augmented)
        cells = [f"{rate:.0f}" for rate in (first, later, our_first, our_later)]
        print(f"| {name} | {' | '.join(cells)} | {our_later / later:.1f}x |", flush=True)
    peaks = {count: peak_memory(options, count) for count in (len(files), 4 * len(files))}
    text = ", ".join(f"{peak:.0f} MB with {count} images" for count, peak in peaks.items())
    print(f"\nPeak memory of DisMix: {text}")


def main() -> None:
    """Make images where none are given, then measure."""
    options = arguments()
    use_cores(options.cores)
    if options.memory_of:
        print_peak_memory(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.folder is None:
            options.folder = Path(folder)
            make_images(options.folder, options.images, options.source_size)
        report(options)


if __name__ == "__main__":
    main()
