"""Where a number comes from: commit, versions, hardware, date."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


def commit() -> str:
    """Return the commit of the source tree, with "+" when it has changes, or "".

    A package that is installed within somebody's project, in its ``.venv`` say, lies in that
    project's tree but is no part of it.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.stdout.strip() if result.returncode == 0 else ""

    try:
        found = git("rev-parse", "--short=12", "HEAD")
        if not git("ls-files", "--", Path(__file__).name):
            return ""
        return found + ("+" if found and git("status", "--porcelain", "-uno") else "")
    except OSError:
        return ""


def hardware(device: str | None = None) -> str:
    """Return the device that computes, in words.

    Args:
        device: Its kind where that is known ("cpu" beside a GPU); None is a GPU if there is one.
    """
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    return f"{_processor()}, {os.cpu_count()} cores"


def provenance(device: str | None = None) -> dict[str, Any]:
    """Return what a record needs to be repeated.

    Args:
        device: See `hardware`.

    Example:
        >>> sorted(provenance())
        ['commit', 'date', 'hardware', 'python', 'versions']
    """
    packages = ("dismix", "torch", "torchvision", "timm", "accelerate", "numpy")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "commit": os.environ.get("DISMIX_COMMIT") or commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "hardware": hardware(device),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
