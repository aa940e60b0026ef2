"""Nothing but the page leaves, nothing but its own messages comes in."""

import asyncio
import base64
import json
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dismix.cli.app import app as commands
from dismix.errors import DisMixError
from dismix.explore.guard import LOOPBACK, MAX_MESSAGE, Guard
from dismix.explore.server import check_address, is_loopback, listen, read_password

HOST = {"host": "127.0.0.1:7860"}


async def _page(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    body = (await receive()).get("body", b"") if scope.get("method") == "POST" else b""
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"cache-control", b"public")]})  # fmt: skip
    await send({"type": "http.response.body", "body": b"page" + body})


def ask(
    guard: Guard, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Send a request through a guard; return status, headers and body of the answer."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    pairs = [
        (k.encode(), v.encode()) for k, v in (headers if headers is not None else HOST).items()
    ]
    scope = {"type": "http", "path": path, "headers": pairs, "method": "POST" if body else "GET"}
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"x")
    (tmp_path / "other.png").write_bytes(b"x")
    (folder / "link.png").symlink_to(tmp_path / "other.png")
    return folder


@pytest.fixture
def guard(files: Path) -> Guard:
    return Guard(_page, files, hosts=LOOPBACK, password=None)


def test_the_page_and_its_own_files_pass(guard: Guard, files: Path) -> None:
    for path in ("/", "/config", "/assets/index.js", f"/gradio_api/file={files}/a.png"):
        status, headers, _ = ask(guard, path)
        assert status == 200, path
    assert headers[b"cache-control"] == b"no-store"
    policy = headers[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "http" not in policy.replace("http-equiv", "")


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file={files}/../other.png",
        "/gradio_api/file={files}/%2e%2e/other.png",
        "/gradio_api/file={files}/link.png",
        "/gradio_api/file={files}-more/a.png",
        "/gradio_api/file=a.png",
        "/gradio_api/file=http://127.0.0.1:7860/config",
        "/gradio_api/file={files}/a.png\0.txt",
        "/assets/../../etc/passwd",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/gradio_api/proxy=https://x.hf.space/",
        "/gradio_api/call/predict",
        "/gradio_api/run/other",
        "/gradio_api/queue/join",
        "/gradio_api/openapi.json",
        "/gradio_api/component_server",
        "/gradio_api/vibe-edit",
        "/docs",
        "/openapi.json",
        "/monitoring",
        "/login",
        "//etc/passwd",
    ],
)
def test_nothing_else_is_served(guard: Guard, files: Path, path: str) -> None:
    assert ask(guard, path.replace("{files}", str(files)))[0] == 404


def test_other_hosts_and_other_sites_are_refused(guard: Guard) -> None:
    assert ask(guard, "/", {"host": "evil.example"})[0] == 403
    assert ask(guard, "/", {"host": "127.0.0.1.evil.example:7860"})[0] == 403
    assert ask(guard, "/", {})[0] == 403
    assert ask(guard, "/", {**HOST, "origin": "http://evil.example"})[0] == 403
    assert ask(guard, "/", {**HOST, "origin": "null"})[0] == 403
    assert ask(guard, "/", {**HOST, "origin": "http://127.0.0.1:7860"})[0] == 200
    assert ask(guard, "/", {"host": "[::1]:7860"})[0] == 200


def test_messages_name_only_own_files(guard: Guard, files: Path, tmp_path: Path) -> None:
    def verdict(value: Any) -> int:
        body = json.dumps({"data": [value], "fn_index": 3}).encode()
        status, _, answer = ask(guard, "/gradio_api/run/predict", body=body)
        assert (answer == b"page" + body) == (status == 200)
        return status

    assert verdict(50) == 200
    assert verdict({"path": f"{files}/a.png", "url": None}) == 200
    own = f"http://127.0.0.1:7860/gradio_api/file={files}/a.png"
    assert verdict({"path": f"{files}/a.png", "url": own}) == 200
    assert verdict({"path": f"{tmp_path}/other.png"}) == 403
    assert verdict({"path": f"{files}/link.png"}) == 403
    assert verdict([{"deep": {"path": "/etc/passwd"}}]) == 403
    assert verdict({"path": "http://127.0.0.1/x.png"}) == 403
    assert verdict({"path": f"{files}/a.png", "url": "http://127.0.0.1:1/x"}) == 403
    assert verdict({"path": ["/etc/passwd"]}) == 403
    assert ask(guard, "/gradio_api/run/predict", body=b"no json")[0] == 403
    assert ask(guard, "/gradio_api/run/predict", body=bytes(MAX_MESSAGE + 1))[0] == 403
    assert ask(guard, "/gradio_api/run/predict", body=b"[" * 100_000)[0] == 403


def test_password_on_every_path(files: Path) -> None:
    guard = Guard(_page, files, hosts=None, password="correct horse")

    def login(text: str) -> dict[str, str]:
        return {
            "host": "box:1",
            "authorization": "Basic " + base64.b64encode(text.encode()).decode(),
        }

    for path in ("/", "/config", f"/gradio_api/file={files}/a.png", "/nothing"):
        status, headers, _ = ask(guard, path, {"host": "box:1"})
        assert status == 401
        assert b"www-authenticate" in headers
        assert ask(guard, path, login("me:wrong"))[0] == 401
    assert ask(guard, "/", login("me:correct horse"))[0] == 200
    assert ask(guard, "/", {"host": "box:1", "authorization": "Basic ???"})[0] == 401
    assert ask(guard, "/", {"host": "box:1", "authorization": "Bearer correct horse"})[0] == 401


def test_websockets_are_closed(guard: Guard) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard({"type": "websocket", "path": "/"}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_other_machines_need_a_password(tmp_path: Path) -> None:
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("box.example")
    for host in ("0.0.0.0", "192.168.1.4", "::", "box"):
        with pytest.raises(DisMixError, match="no password was given; add --password-file"):
            check_address(host, None)
        check_address(host, "long enough one")
    check_address("127.0.0.1", None)
    short = tmp_path / "short"
    short.write_text("abc\nand more that does not count\n")
    with pytest.raises(DisMixError, match="has 3 characters; put at least 10"):
        read_password(short)
    with pytest.raises(DisMixError, match="cannot be read"):
        read_password(tmp_path / "absent")
    short.write_text("a good password \n")
    assert read_password(short) == "a good password"


def test_ports_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DisMixError, match=f"cannot listen on 127.0.0.1 port {port}"):
            listen("127.0.0.1", port)
    with listen("127.0.0.1", 0) as free:
        assert free.getsockname()[1] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not the run folder of a generator"),
        (["nowhere", "--host", "0.0.0.0"], "no password was given"),
        (["nowhere", "--device", "cuda:9"], "there is no device 'cuda:9'"),
    ],
)
def test_mistakes_on_the_command_line(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    result = CliRunner().invoke(commands, ["explore", *words])
    assert isinstance(result.exception, DisMixError)
    assert message in str(result.exception)


def test_without_gradio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(commands, ["explore", "nowhere"])
    assert "pip install 'dismix[explore]'" in str(result.exception)


def test_addresses_that_are_none_are_refused_not_stumbled_over(guard: Guard, files: Path) -> None:
    assert ask(guard, "/", {"host": "[::1"})[0] == 403
    assert ask(guard, "/", {**HOST, "origin": "http://[::1"})[0] == 403
    own = str(files / "a.png")
    assert guard.harmless(json.dumps({"path": own}).encode())
    assert not guard.harmless(json.dumps({"path": own, "url": "http://[::1"}).encode())
    open_to_all = Guard(_page, files, hosts=None, password=None)
    assert ask(open_to_all, "/", {"origin": "null"})[0] == 403
