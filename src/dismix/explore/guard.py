"""What may reach the page at all: an ASGI layer before everything that Gradio would answer.

- Only the paths the page needs; files only from the session's own temporary folder, also where
  a message to the page names one: Gradio would read any picture in the system's temporary folder.
- Requests for another host (DNS rebinding) or from another site's pages are refused.
- Away from this machine a password, for every path.
- The browser is told to load nothing from anywhere else.
"""

import base64
import binascii
import hmac
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

API = "/gradio_api"
#: Where the page sends what people do.
MESSAGES = f"{API}/run/predict"
EXACT = {
    "/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt",
    f"{API}/upload", f"{API}/upload_progress", f"{API}/startup-events", f"{API}/reset",
    f"{API}/info", f"{API}/theme.css", MESSAGES,
}  # fmt: skip
BELOW = ("/assets/", "/static/", f"{API}/heartbeat/")
FILES = f"{API}/file="
#: Bytes of a message to the page; uploads go another way.
MAX_MESSAGE = 2**20
HEADERS = [
    (b"content-security-policy",
     b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline';"
     b" script-src 'self' 'unsafe-inline' 'unsafe-eval'; font-src 'self' data:;"
     b" connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self';"
     b" form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]  # fmt: skip
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Guard:
    """Passes on what is allowed.

    Args:
        app: What answers.
        files: Folder from which files may be served.
        hosts: Names under which requests may come, None for any.
        password: Asked for on every path, None for none.
    """

    def __init__(
        self, app: App, files: Path, *, hosts: tuple[str, ...] | None, password: str | None
    ) -> None:
        self.app, self.files = app, files.resolve()
        self.hosts, self.password = hosts, password

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # The page needs no websockets.
            await send({"type": "websocket.close", "code": 1008})
            return
        status = self.verdict(scope)
        if status != 200:
            await _refuse(send, status)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in HEADERS}
                kept = [pair for pair in message.get("headers", []) if pair[0] not in names]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        if scope["path"] == MESSAGES:
            body = await _body(receive)
            if body is None or not self.harmless(body):
                await _refuse(send, 403)
                return
            receive = _replay(body, receive)
        await self.app(scope, receive, with_headers)

    def harmless(self, body: bytes) -> bool:
        """Tell whether a message names no file or address but the session's own files."""
        try:
            waiting = [json.loads(body)]
        except (ValueError, RecursionError):
            return False
        while waiting:
            value = waiting.pop()
            if isinstance(value, list):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()
                path, url = value.get("path"), value.get("url")
                if path is not None and not (isinstance(path, str) and self._own_file(path)):
                    return False
                if url is not None and not (isinstance(url, str) and self._own_url(url)):
                    return False
        return True

    def verdict(self, scope: Scope) -> int:
        """Return 200 for what may pass, else the status to refuse with."""
        headers = {name.lower(): value for name, value in scope.get("headers", [])}
        host = headers.get(b"host", b"").decode("latin-1")
        if self.hosts is not None and _name(host) not in self.hosts:
            return 403
        origin = headers.get(b"origin")
        if origin is not None and _parts(origin.decode("latin-1")).netloc not in {host} - {""}:
            return 403
        if self.password is not None and not _knows(headers.get(b"authorization"), self.password):
            return 401
        return 200 if self.allowed(scope["path"]) else 404

    def allowed(self, path: str) -> bool:
        """Tell whether a path is one that the page needs."""
        if path in EXACT:
            return True
        if path.startswith(FILES):
            return self._own_file(path.removeprefix(FILES))
        return path.startswith(BELOW) and ".." not in unquote(path)

    def _own_file(self, name: str) -> bool:
        name = unquote(name)
        if not os.path.isabs(name) or "\0" in name:
            return False
        return Path(name).resolve().is_relative_to(self.files)

    def _own_url(self, url: str) -> bool:
        # The page writes its own address before it; nothing is fetched from there.
        path = unquote(_parts(url).path)
        return path.startswith(FILES) and self._own_file(path.removeprefix(FILES))


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body of a request, or None when it is larger than any message."""
    parts: bytes = b""
    while len(parts) <= MAX_MESSAGE:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return parts
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting = [body]

    async def again() -> MutableMapping[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def _parts(address: str) -> SplitResult:
    """Return the parts of an address; one that is none has no parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _name(host: str) -> str:
    return _parts(f"//{host}").hostname or ""


def _knows(header: bytes | None, password: str) -> bool:
    """Tell whether a Basic authorization holds the password, under any name."""
    if header is None or not header.lower().startswith(b"basic "):
        return False
    try:
        pair = base64.b64decode(header[6:], validate=True)
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(pair.partition(b":")[2], password.encode())


async def _refuse(send: Send, status: int) -> None:
    texts = {401: b"a password is needed", 403: b"refused", 404: b"not found"}
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="DisMix explorer", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": texts[status] + b"\n"})
