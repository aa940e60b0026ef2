"""Trains a quick generator with guide and mixes; each process keeps what it ends with.

python pair.py DATA RUN CACHE        (or under torch.distributed.run)
"""

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from dismix.generator import training as module
from dismix.generator.start_run import train_generator

QUICK = {
    "epochs": 2, "guide_steps": 2, "nonordinal_codes": 32, "ordinal_codes": 16, "strip_every": 0,
    "discriminator_width": 8, "batch_size": 8, "guide": 0.1, "mix": 0.3, "mix_realism": 0.1,
    "evaluate_every": 1,
}  # fmt: skip


def main(data: Path, run: Path, cache: Path) -> None:
    torch.set_num_threads(1)
    # Other first states in each process: whatever is not shared shows in the end.
    torch.manual_seed(int(os.environ.get("RANK", "0")))
    kept = []
    plain = module.build_training

    def build(*arguments, **more):
        kept.append(plain(*arguments, **more))
        return kept[-1]

    module.build_training = build
    train_generator(data, run, arch="tiny", settings=QUICK, size=32, cpu=True, cache=cache)
    training = kept[0]
    tensors = {f"model.{k}": v for k, v in training.model.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in training.average.tensors.items()}
    tensors |= {f"guide.{k}": v for k, v in training.objective.guide.state_dict().items()}
    rank = os.environ.get("RANK", "0")
    # Convolutions are laid out channels last while they train.
    plain = {k: v.detach().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
    save_file(plain, run / f"rank{rank}.safetensors")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
