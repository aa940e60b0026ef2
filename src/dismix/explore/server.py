"""Starts the page: where it listens, who may come, and what is cleaned up afterwards."""

import ipaddress
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dismix.errors import DisMixError
from dismix.explore.guard import LOOPBACK, Guard
from dismix.explore.session import Session

PASSWORD_LENGTH = 10


def is_loopback(host: str) -> bool:
    """Tell whether an address reaches this machine only.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_password(file: Path) -> str:
    """Return the first line of a file as a password.

    Args:
        file: Kept out of the command line, which every user of a machine can read.
    """
    try:
        password = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DisMixError(
            f"the password cannot be read ({error})", file=file, cure="give a text file"
        ) from error
    if len(password) < PASSWORD_LENGTH:
        raise DisMixError(
            f"the password has {len(password)} characters", file=file,
            cure=f"put at least {PASSWORD_LENGTH} into its first line",
        )  # fmt: skip
    return password


def check_address(host: str, password: str | None) -> None:
    """Refuse to be reached from elsewhere without a password."""
    if not is_loopback(host) and password is None:
        raise DisMixError(
            f"{host} can be reached from other machines, and no password was given",
            column="--host", cure="add --password-file FILE, or leave --host out",
        )  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one."""
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(kind, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        raise DisMixError(
            f"cannot listen on {host} port {port} ({error.strerror})", column="--port",
            cure="choose another port; 0 takes any free one",
        ) from error  # fmt: skip
    return sock


def make_app(session: Session, files: Path, host: str, password: str | None) -> Guard:
    """Return the guarded page.

    Args:
        session: An open run.
        files: Empty folder for uploads on their way and for gallery pictures.
        host: Address that is listened on.
        password: Asked for everywhere, or None.
    """
    import fastapi
    import gradio as gr

    from dismix.explore.page import build_page
    from dismix.explore.uploads import MAX_BYTES

    # Gradio looks it up with every upload, not only while the page is built.
    os.environ["GRADIO_TEMP_DIR"] = str(files)
    page = build_page(session, files)
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    style = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    gr.mount_gradio_app(
        app, page, "/", allowed_paths=[], show_error=False, max_file_size=MAX_BYTES,
        ssr_mode=False, pwa=False, mcp_server=False, enable_monitoring=False,
        run_history=False, footer_links=[], css=style, theme=_theme(),
    )  # fmt: skip
    return Guard(app, files, hosts=own_hosts(host), password=password)


def own_hosts(host: str) -> tuple[str, ...] | None:
    """Return the names under which requests may come, None for any.

    Args:
        host: Address that is listened on; 127.0.0.2 is this machine's own too.
    """
    return (*LOOPBACK, host) if is_loopback(host) else None


def _theme() -> "object":
    """Return a plain theme whose fonts are the system's: nothing is loaded from elsewhere."""
    import gradio as gr

    sans = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
    return gr.themes.Default(primary_hue="cyan", neutral_hue="slate", font=sans,
                          font_mono=["ui-monospace", "monospace"])  # fmt: skip


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Make SIGTERM leave through the stack: its default ends Python with the pictures on disk.

    Uvicorn catches the signal and, once it has shut down, raises it again for whoever comes next.
    """
    if threading.current_thread() is not threading.main_thread():  # Python refuses it elsewhere
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def serve(
    session: Session,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    password: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Serve the page until interrupted or terminated; its temporary folder goes either way.

    Args:
        session: An open run.
        host: Address to listen on; other than this machine's own needs a password.
        port: 0 takes any free one.
        password: Asked for everywhere, or None.
        tell: Called with the page's address once it can be opened.
    """
    import uvicorn

    check_address(host, password)
    with (
        listen(host, port) as sock,
        _termination_unwinds(),
        tempfile.TemporaryDirectory(prefix="dismix-explore-") as name,
    ):
        app = make_app(session, Path(name), host, password)
        if tell is not None:
            shown = f"[{host}]" if ":" in host else host
            tell(f"http://{shown}:{sock.getsockname()[1]}")
        settings = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, ws="none"
        )
        uvicorn.Server(settings).run(sockets=[sock])
