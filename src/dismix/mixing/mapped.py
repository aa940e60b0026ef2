"""Records of equal size in a memory-mapped file, or on a GPU where they fit."""

import mmap
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dismix.transfer import onto

# Mapped pages count as the process's memory until they are given back.
_RELEASE_BYTES = 64 * 2**20


class MappedRecords:
    """N records of a file.

    Args:
        path: File of at least ``count * record_bytes`` bytes.
        count: N, one or more.
        record_bytes: Bytes of a record.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(bytes(range(6))), file.flush()
        ...     records = MappedRecords(file.name, 3, 2)
        ...     records.read(torch.tensor([2, 0]), torch.device("cpu")).tolist()
        [[4, 5], [0, 1]]
    """

    def __init__(self, path: str | Path, count: int, record_bytes: int) -> None:
        self.count, self.record_bytes = count, record_bytes
        with open(path, "rb") as handle:
            self._mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        whole = np.frombuffer(self._mapping, np.uint8, count * record_bytes)
        self.array = whole.reshape(count, record_bytes)
        self._touched = 0
        self._resident: dict[torch.device, Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return self.count * self.record_bytes

    def read(self, rows: Tensor, device: torch.device) -> Tensor:
        """Return records (B, record bytes), uint8 on a device, of rows (B,) on the CPU."""
        if device.type != "cpu" and self.fits_on(device):
            return self._on(device)[onto(rows, device)]
        return self._gather(rows).to(device, non_blocking=True)

    def _gather(self, rows: Tensor) -> Tensor:
        raw = np.empty((len(rows), self.record_bytes), np.uint8)
        np.take(self.array, rows.numpy(), axis=0, out=raw, mode="clip")
        self._touched += raw.nbytes
        if self._touched > _RELEASE_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            # The pages stay in the system's cache: reading them again costs next to nothing.
            self._mapping.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
        return torch.from_numpy(raw)

    def fits_on(self, device: torch.device, share: float = 0.1) -> bool:
        """Tell whether all records take at most ``share`` of a GPU's free memory."""
        if device in self._resident:
            return True
        if device.type != "cuda":
            return False
        return self.nbytes <= share * torch.cuda.mem_get_info(device)[0]

    def _on(self, device: torch.device) -> Tensor:
        if device not in self._resident:
            self._resident[device] = torch.from_numpy(self.array.copy()).to(device)
        return self._resident[device]
