"""A web server on the loopback address whose terminal stays the user's."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["LoopbackServer"]


class LoopbackServer(ThreadingHTTPServer):
    """Answers in threads that end with the process.

    A browser that closes a page in the middle of an answer is no fault; anything else that goes wrong in an answer is
    one line.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called where a handler raised."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            sys.stderr.write(f"lanewise: a request failed: {type(error).__name__}: {error}\n")
