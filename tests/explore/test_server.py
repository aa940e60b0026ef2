"""The server: what is left on the disk after it was ended."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from dismix.explore import server
from dismix.explore.guard import Guard


async def _nothing(scope, receive, send):
    """Stand in for the page."""


@pytest.mark.parametrize(
    ("sent", "left_by", "delay"),
    [
        (signal.SIGTERM, SystemExit, 0.0),
        (signal.SIGTERM, SystemExit, 0.5),
        (signal.SIGINT, KeyboardInterrupt, 0.5),
    ],
)
def test_pictures_are_deleted_however_it_ends(monkeypatch, sent, left_by, delay):
    kept: list[Path] = []

    def make_app(session, files, host, password):
        kept.append(files)
        (files / "picture.png").write_bytes(b"of a patient")
        return _nothing

    def tell(address):
        threading.Timer(delay, os.kill, (os.getpid(), sent)).start()

    monkeypatch.setattr(server, "make_app", make_app)
    before = signal.getsignal(signal.SIGTERM)
    # On a busy machine uvicorn may take the signal for itself and just return.
    with contextlib.suppress(left_by):
        server.serve(None, port=0, tell=tell)
    (files,) = kept
    assert not files.exists()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("host", "asked", "passes"),
    [
        ("127.0.0.2", "127.0.0.2:7860", True), ("127.0.0.2", "localhost:7860", True),
        ("127.0.0.2", "evil.example", False), ("127.0.0.1", "127.0.0.2:7860", False),
    ],
)  # fmt: skip
def test_the_address_that_is_listened_on_is_answered(host, asked, passes, tmp_path):
    guard = Guard(_nothing, tmp_path, hosts=server.own_hosts(host), password=None)
    scope = {"path": "/", "headers": [(b"host", asked.encode())]}
    assert guard.verdict(scope) == (200 if passes else 403)
    assert server.own_hosts("0.0.0.0") is None
