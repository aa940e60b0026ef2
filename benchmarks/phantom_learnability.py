"""Is the phantom set learnable but not trivial, and how well can it be measured?

Two tables. Learnability: 5 ranks, 1000 training and 500 test images of 64 px, true grades;
logistic regression on pixels (the best of four penalties, chosen on the test images, in its
favour) against a small convolutional network trained from scratch on one core.
Measuring: error of the severity read off pictures, clean, blurred and JPEG-compressed.

    python benchmarks/phantom_learnability.py                # both tables
    python benchmarks/phantom_learnability.py --calibrate    # curves for measure.py
"""

import argparse
import io
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from dismix.data.phantom import PhantomSpec, joint_space_width, lesion_area, render
from dismix.data.phantom.measure import measured_severity
from dismix.data.phantom.plan import plan_images
from dismix.provenance import provenance

SUBJECTS = ("knee", "fundus")


@dataclass(frozen=True)
class Drawn:
    """Images (N, S, S) or (N, S, S, 3), ranks (N,) and severities (N,)."""

    images: NDArray[np.uint8]
    ranks: NDArray[np.int64]
    severities: NDArray[np.float64]


def draw(subject: str, split: str, count: int, size: int = 64, seed: int = 0) -> Drawn:
    """Draw one split of a five-rank set in memory."""
    counts = {"train": 0, "val": 0, "test": 0, split: count}
    spec = PhantomSpec(subject=subject, size=size, seed=seed, **counts)
    factors = [planned.factors for planned in plan_images(spec)]
    return Drawn(
        np.stack([render(f, size) for f in factors]),
        np.array([f.rank for f in factors]),
        np.array([f.severity for f in factors]),
    )


def logistic_accuracy(train: Drawn, test: Drawn, penalties: tuple[float, ...]) -> float:
    """Best test accuracy of logistic regression on standardised pixels."""
    flat = train.images.reshape(len(train.images), -1)
    scaler = StandardScaler().fit(flat)
    x, y = scaler.transform(flat), scaler.transform(test.images.reshape(len(test.images), -1))
    models = (LogisticRegression(C=c, max_iter=200).fit(x, train.ranks) for c in penalties)
    return max(float(model.score(y, test.ranks)) for model in models)


def to_tensor(images: NDArray[np.uint8]) -> torch.Tensor:
    """Standardise each picture on its own: (N, 1 or 3, S, S)."""
    x = torch.from_numpy(images).float() / 255
    x = x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2)
    return (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True)


def small_network(channels: int, ranks: int, width: int = 8) -> nn.Sequential:
    """Four convolutions, three poolings, about 30 thousand weights."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(((channels, 1), (1, 2), (2, 4), (4, 4))):
        inward = a if i == 0 else a * width
        layers += [nn.Conv2d(inward, b * width, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(b * width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if i < 3 else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * width, ranks))


def network_accuracy(train: Drawn, test: Drawn, epochs: int = 30, seed: int = 0) -> float:
    """Test accuracy of the small network after training from scratch with flips."""
    torch.manual_seed(seed)
    x, y = to_tensor(train.images), torch.from_numpy(train.ranks)
    net, batch = small_network(x.shape[1], 5), 50
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=1e-2)
    steps = epochs * (len(x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    for step in range(steps):
        if step % (len(x) // batch) == 0:
            order = torch.randperm(len(x))
        chosen = order[(step * batch) % len(x) :][:batch]
        pictures = x[chosen].flip(-1) if torch.rand(1) < 0.5 else x[chosen]
        loss = nn.functional.cross_entropy(net(pictures), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        found = net(to_tensor(test.images)).argmax(1).numpy()
    return float((found == test.ranks).mean())


def blurred(images: NDArray[np.uint8], sigma: float) -> NDArray[np.uint8]:
    """Gaussian blur, sigma in pixels."""
    sigmas = (0, sigma, sigma, 0)[: images.ndim]
    return np.rint(gaussian_filter(images.astype(np.float32), sigmas)).astype(np.uint8)


def jpeg(images: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Compress and decompress every picture."""
    result = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, format="JPEG", quality=quality)
        result.append(np.asarray(Image.open(buffer)))
    return np.stack(result)


DAMAGES: dict[str, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    "clean": lambda images: images,
    "blur 0.7 px": lambda images: blurred(images, 0.7),
    "blur 1.0 px": lambda images: blurred(images, 1.0),
    "JPEG 75": lambda images: jpeg(images, 75),
}


def learnability_table(seeds: int) -> None:
    """Print accuracies per subject and seed of the set."""
    print("| subject | seed | logistic regression | small CNN | rank from measure | seconds |")
    print("|---|---|---|---|---|---|")
    for subject in SUBJECTS:
        for seed in range(seeds):
            start = time.process_time()
            train, test = (
                draw(subject, "train", 1000, seed=seed),
                draw(subject, "test", 500, seed=seed),
            )
            linear = logistic_accuracy(train, test, (1e-4, 1e-3, 1e-2, 1e-1))
            deep = network_accuracy(train, test)
            read = np.rint(measured_severity(test.images, subject, 5)).clip(0, 4)
            spent = time.process_time() - start
            right = (read == test.ranks).mean()
            row = f"{linear:.1%} | {deep:.1%} | {right:.1%} | {spent:.0f}"
            print(f"| {subject} | {seed} | {row} |", flush=True)


def measure_table(count: int) -> None:
    """Print errors of measuring, in ranks, per subject, size and damage."""
    print("| subject | size | pictures | mean error | bias | 99th percentile | correlation |")
    print("|---|---|---|---|---|---|---|")
    for subject in SUBJECTS:
        for size in (32, 64, 128, 256):
            drawn = draw(subject, "test", count, size=size, seed=7)
            for name, damage in DAMAGES.items():
                found = measured_severity(damage(drawn.images), subject, 5)
                error = found - drawn.severities
                far = np.quantile(np.abs(error), 0.99)
                linked = np.corrcoef(found, drawn.severities)[0, 1]
                row = f"{np.abs(error).mean():.3f} | {error.mean():+.3f} | {far:.2f} | {linked:.4f}"
                print(f"| {subject} | {size} | {name} | {row} |", flush=True)


def calibrate(count: int) -> None:
    """Print the curves of ``dismix.data.phantom.measure`` from freshly drawn pictures."""
    for subject, measure in (("knee", joint_space_width), ("fundus", lesion_area)):
        parts = [draw(subject, "train", count, size=size, seed=11) for size in (64, 96, 128)]
        progress = np.concatenate([part.severities for part in parts]) / 4
        reading = np.concatenate([measure(part.images) for part in parts])
        curve = np.polynomial.Polynomial.fit(progress, reading, 2).convert().coef
        print(f'"{subject}": ({", ".join(f"{value:.5f}" for value in curve)}),')


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--count", type=int, default=500, help="pictures per row of measuring")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.calibrate:
        calibrate(options.count)
        return
    origin = provenance()
    print(f"commit {origin['commit']}, {origin['date']}, {origin['hardware']} (one core used)\n")
    measure_table(options.count)
    print()
    learnability_table(options.seeds)


if __name__ == "__main__":
    main()
