"""Several processes leave each other before Python ends."""

import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHED = """
import sys
from torch import distributed
from dismix.accelerators import make_accelerator

made = make_accelerator(cpu=True)
made = make_accelerator(cpu=True)
assert (made.num_processes, distributed.is_initialized()) == (2, True)


left = distributed.destroy_process_group

def noted():
    left()
    print("left", flush=True)

distributed.destroy_process_group = noted
if "fail" in sys.argv:
    raise RuntimeError("an error of this process")
"""


# Ports of their own: tests run beside each other.
@pytest.mark.parametrize(("words", "times", "port"), [((), 2, 29641), (("fail",), 0, 29642)])
def test_each_leaves_once_unless_an_error_ends_it(
    tmp_path: Path, words: tuple[str, ...], times: int, port: int
) -> None:
    script = tmp_path / "launched.py"
    script.write_text(LAUNCHED, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    command += [f"--master_port={port}", str(script), *words]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.stdout.count("left") == times
    assert (made.returncode == 0) == (not words)
    assert "an error of this process" in made.stderr or not words
