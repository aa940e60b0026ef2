"""How many images a second does the generator train on and decode, and what is the limit?

Random pictures on the device, all terms of the recipe, bf16 autocast, channels_last; the clock
is read after a synchronisation. The limit counts multiplications of encoder and decoder only
(LPIPS, discriminator and trunk come on top), at an assumed 790 TFLOP/s.

    python benchmarks/generator_speed.py --arch vq-f8 --compile --steps 30
    python benchmarks/generator_speed.py --arch light --decode-only
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dismix.accelerators import make_accelerator
from dismix.generator.codes import Codes
from dismix.generator.config import GeneratorConfig
from dismix.generator.fast_decode import FastDecoder
from dismix.generator.guide import Guide
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.generator.perceptual import LPIPS
from dismix.generator.recipe_choice import choose_recipe
from dismix.generator.steps import Steps
from dismix.generator.training import build_training
from dismix.labels import OrdinalTarget
from dismix.provenance import provenance

PEAK = 790e12


def operations(module: nn.Module, *inputs: Tensor) -> float:
    """Floating-point operations of one call, counting convolutions and linear layers."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs)
    return float(counter.get_total_flops())


def per_second(step: Callable[[], object], images: int, steps: int, warm: int = 5) -> float:
    """Images a second of a step, after some that do not count."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(warm):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return images * steps / (time.perf_counter() - start)


def training_rate(args: argparse.Namespace, device: torch.device) -> float:
    """Training images a second with every term of the recipe."""
    settings = dict(text.split("=", 1) for text in args.set)
    recipe = choose_recipe(
        args.recipe, args.arch,
        {"batch_size": args.batch, "compile": args.compile, **settings},
    )  # fmt: skip
    config = GeneratorConfig.from_dict({**recipe.structure, "num_ranks": 5, "arch": args.arch})
    probe = Generator.seeded(config, 0)
    size, channels = probe.image_size, probe.in_channels
    pixels = torch.randint(256, (256, channels, size, size), dtype=torch.uint8).to(device)
    labels = OrdinalTarget.from_labels([i % 5 for i in range(256)], 5).to(device)
    perceptual = None
    if recipe.weight("perceptual") > 0:
        perceptual = LPIPS.pretrained(channels_last=True).to(device)
    split, guide = SplitImages(pixels, labels, False), None
    if any(recipe.weight(name) > 0 for name in ("guide", "mix", "seen")):
        # Untrained, which costs the same.
        guide = Guide(5, recipe.guide_kind, channels).to(device).eval().requires_grad_(False)
    training = build_training(
        config, recipe, split, seed=0, device=device, perceptual=perceptual, guide=guide
    )
    if args.freeze:
        for name, parameter in training.model.named_parameters():
            if name.startswith(training.model.architecture.frozen_prefixes):
                parameter.requires_grad_(False)
    steps = Steps(training, make_accelerator(cpu=device.type == "cpu"))
    rows = torch.arange(args.batch)
    images, levels = split.images(rows, device), labels[rows.to(device)].levels
    training.objective.train()
    epoch = 0 if args.plain else recipe.plain_epochs

    def step() -> object:
        return steps(images, levels, epoch, 1, 0.5)

    rate = per_second(step, args.batch, args.steps)
    if args.profile:
        print(profiled(step, device))
    return rate


def profiled(step: Callable[[], object], device: torch.device, steps: int = 3) -> str:
    """Where the time of a step goes, by operator."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU]
    with profile(activities=kinds) as found:
        for _ in range(steps):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    order = f"self_{device.type}_time_total"
    return found.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=70)


@torch.no_grad()
def decode_rate(args: argparse.Namespace, device: torch.device) -> float:
    """Decoded images a second by the fast decoder."""
    model = Generator.seeded(GeneratorConfig(num_ranks=5, arch=args.arch), 0).eval().to(device)
    decode = FastDecoder(model, compiled=args.compile)
    size = model.latent_size
    codes = Codes(*(torch.randn(args.batch, 4, size, size, device=device) for _ in range(2)))
    return per_second(lambda: decode(codes), args.batch, args.steps)


def limits(arch: str, freeze: bool) -> dict[str, float]:
    """Arithmetic limits in images a second."""
    model = Generator.seeded(GeneratorConfig(num_ranks=5, arch=arch), 0).eval()
    image = torch.randn(1, model.in_channels, model.image_size, model.image_size)
    features = model.encoder(image)
    down, up = operations(model.encoder, image), operations(model.decoder, features)
    training = (down if freeze else 3 * down) + 3 * up
    return {"decode_limit": PEAK / up, "training_limit": PEAK / training,
            "encoder_gflop": down / 1e9, "decoder_gflop": up / 1e9}  # fmt: skip


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="light")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--search", action="store_true", help="let cuDNN try its algorithms")
    parser.add_argument("--freeze", action="store_true", help="freeze the encoder's way down")
    parser.add_argument("--decode-only", action="store_true")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--plain", action="store_true", help="the steps that only rebuild")
    parser.add_argument("--profile", action="store_true", help="print where a step's time goes")
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = args.search
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found: dict[str, float] = {}
    if not args.train_only:
        found["decoded_per_second"] = decode_rate(args, device)
    if not args.decode_only:
        found["trained_per_second"] = training_rate(args, device)
    if device.type == "cuda":
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if not args.no_limits:
        found |= limits(args.arch, args.freeze)
    rounded = {name: round(value, 1) for name, value in found.items()}
    print(json.dumps({**vars(args), **rounded, "provenance": provenance()}))


if __name__ == "__main__":
    main()
