"""An endpoint on this machine that answers chat completions by a script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import answering

Answer = tuple[int, dict[str, str], bytes]


def says(text: str, status: int = 200, **headers: str) -> Answer:
    """A chat completion with this text; `Retry_After` becomes `Retry-After`."""
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


def refuses(status: int, message: str = "", **headers: str) -> Answer:
    """An error as such endpoints give it."""
    body = json.dumps({"error": {"message": message}}).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


@dataclass
class Server:
    """`script` answers the n-th request, n from 0, or sleeps for as long as it says first."""

    script: Callable[[int, dict[str, Any]], Answer]
    delay: Callable[[int], float] = lambda number: 0.0
    base: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    most_at_once: int = 0
    _now: int = 0

    def entered(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> int:
        with self.lock:
            self.requests.append(body)
            self.headers.append(headers)
            self.paths.append(path)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            return len(self.requests) - 1

    def left(self) -> None:
        with self.lock:
            self._now -= 1


@contextmanager
def serving(script: Any, delay: Callable[[int], float] = lambda number: 0.0) -> Iterator[Server]:
    """A server of answers: one for all requests, a list in order (the last again and again), or a function."""
    if isinstance(script, tuple):
        script = [script]
    if isinstance(script, list):
        listed = script
        script = lambda number, body: listed[min(number, len(listed) - 1)]  # noqa: E731
    server = Server(script, delay)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = server.entered(self.path, dict(self.headers), body)
            try:
                time.sleep(server.delay(number))
                status, headers, payload = server.script(number, body)
                server.left()  # before the client can know
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
            except BrokenPipeError:
                pass  # the client has given up

        def log_message(self, *args: Any) -> None:
            """Silent."""

    with answering(Handler) as url:
        server.base = f"{url}/v1"
        yield server
