"""Servers on this machine, for as long as a test needs them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        """A client that left is no news."""


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address at which requests are answered so."""
    server = _Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
