"""Web servers on the loopback address whose terminal stays the user's.

A private one listens on a port that the system chooses, behind a random path; a request that names another host (a page
elsewhere that was made to resolve to this machine) is refused.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

__all__ = ["NOT_FOUND", "Answer", "LoopbackServer", "PrivateServer"]

_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)
"""What every answer of a private server says besides."""


class Answer(NamedTuple):
    """Status, content type and body; `elsewhere`: the address that it sends to, if any."""

    status: int
    type_: str
    body: bytes
    elsewhere: str = ""


NOT_FOUND = Answer(404, "text/plain", b"not found\n")


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


class PrivateServer:
    """Answers until it is closed.

    Attributes:
        token: the secret first part of every path. address: where it is, with the token.

    Args:
        respond: what it says to a path below the token, and the first value of each argument.
    """

    def __init__(self, respond: Callable[[str, dict[str, str]], Answer]) -> None:
        self.token = secrets.token_urlsafe(24)
        self._http = LoopbackServer(0, _handler(self, respond))
        port = self._http.server_port
        self.address = f"http://127.0.0.1:{port}/{self.token}/"
        # What a browser on this machine may call it.
        self.hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))

    def serve(self) -> None:
        """Answer until interrupted or closed."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()


def _handler(server: PrivateServer, respond: Callable[[str, dict[str, str]], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("Host", "") not in server.hosts:
                self._send(Answer(403, "text/plain", b"this server answers to its own address only\n"))
                return
            url = urlsplit(self.path)
            token, _, path = url.path.removeprefix("/").partition("/")
            if not secrets.compare_digest(token.encode(), server.token.encode()):
                self._send(NOT_FOUND)
                return
            try:
                answer = respond(path, {key: values[0] for key, values in parse_qs(url.query).items()})
            except Exception as error:
                # The page says that there is no answer; the terminal says why.
                self._send(Answer(500, "text/plain", b"failed\n"))
                raise error
            self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.type_)
            self.send_header("Content-Length", str(len(answer.body)))
            if answer.elsewhere:
                self.send_header("Location", answer.elsewhere)
            for name, value in _HEADERS:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
            """Nothing: the terminal is the user's."""

    return Handler
