"""The most memory that a run takes."""

import resource
import sys
from pathlib import Path

import torch


class PeakMemory:
    """Measures from its making on: the GPU's memory, or the process's where there is none.

    Args:
        device: Where the run computes.

    Example:
        >>> PeakMemory(torch.device("cpu")).mib() > 1
        True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            self._reset()

    def mib(self) -> float:
        """Return the peak so far, in MiB."""
        if self.device.type == "cuda":
            return round(torch.cuda.max_memory_allocated(self.device) / 2**20, 1)
        for line in _status():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)

    def _reset(self) -> None:
        # Linux forgets the peak of earlier runs of this process when asked to.
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return


def _status() -> list[str]:
    try:
        return Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
