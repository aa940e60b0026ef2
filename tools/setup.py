"""Make `.venv` ready: `python3 tools/setup.py`, called by every `make` target.

Nothing is done when `.venv` already matches pyproject.toml, constraints.txt and the Python
version. Installs with uv when that works (seconds) and with pip otherwise (a minute or
two). Both get pip's own settings: find-links, index and certificate.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "dismix-setup.stamp"


def wanted() -> str:
    """Return a digest of everything the environment depends on."""
    digest = hashlib.sha256(f"{sys.version_info[:3]} {sysconfig.get_platform()} {ROOT}".encode())
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def of_other_python() -> bool:
    """Return whether `.venv` has another Python than this one, such as 3.11 where 3.12 is asked."""
    asked = [PYTHON, "-c", "import sys; print(*sys.version_info[:2])"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.split() != [str(part) for part in sys.version_info[:2]]


def pip_setting(name: str) -> str:
    """Return one of pip's settings, from its environment variable or its files."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"), "")
    if not value:
        command = [PYTHON, "-m", "pip", "config", "get", f"global.{name}"]
        value = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return value.strip()


def uv_install(arguments: list[str]) -> bool:
    """Install with uv; return whether that worked."""
    if subprocess.run([PYTHON, "-m", "pip", "install", "-q", "uv"], check=False).returncode:
        return False
    command = [PYTHON, "-m", "uv", "pip", "install", "-q", "--python", str(PYTHON)]
    for link in pip_setting("find-links").split():
        command += ["--find-links", link]
    if index := pip_setting("index-url"):
        command += ["--index-url", index]
    environment = dict(os.environ)
    if certificate := pip_setting("cert"):
        environment.setdefault("SSL_CERT_FILE", certificate)
    return subprocess.run(command + arguments, env=environment, check=False).returncode == 0


def main() -> None:
    """Create or refresh the environment."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this very line must run on old versions)
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"DisMix needs Python 3.11 or newer, this is {version}; try PYTHON=python3.11")
    if STAMP.is_file() and STAMP.read_text() == wanted():
        return
    print("setting up .venv (once, one to three minutes) ...", flush=True)
    if not PYTHON.is_file() or of_other_python():
        venv.create(VENV, with_pip=True, clear=True)
    STAMP.unlink(missing_ok=True)
    arguments = ["-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[dev]"]
    if not uv_install(arguments):
        print("uv did not work here, installing with pip ...", flush=True)
        command = [PYTHON, "-m", "pip", "install", "-q", *arguments]
        if subprocess.run(command, check=False).returncode:
            sys.exit("packages could not be installed (see above); give pip an index it can reach")
    STAMP.write_text(wanted())
    print("ready", flush=True)


if __name__ == "__main__":
    main()
