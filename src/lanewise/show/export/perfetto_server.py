"""Hands a trace to the Perfetto UI by its deep link: the UI, open in the browser, fetches it from this machine.

The UI's own policy allows exactly one local address, 127.0.0.1:9001, so the port cannot be chosen. The trace lies behind
a random path, and only the UI's origin may read it.
"""

from __future__ import annotations

import secrets
from http.server import BaseHTTPRequestHandler
from typing import Any

from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.export.perfetto import perfetto_json
from lanewise.show.loopback import LoopbackServer

__all__ = ["ORIGIN", "PORT", "PerfettoServer"]

ORIGIN = "https://ui.perfetto.dev"
PORT = 9001


class PerfettoServer:
    """Serves one converted trace until it is closed. UsageError if the port is taken."""

    def __init__(self, facts: Facts, report: Report, *, port: int = PORT) -> None:
        self._path = f"/{secrets.token_urlsafe(24)}/trace.json"
        body = "".join(perfetto_json(facts, report)).encode("utf-8", "backslashreplace")
        try:
            self._http = LoopbackServer(port, _handler(self._path, body))
        except OSError as error:
            raise UsageError(
                f"port {port}, the only one that the Perfetto UI may read from, is taken "
                f"({error.strerror}); close what uses it, or: lanewise export TRACE --to perfetto"
            ) from None

    @property
    def address(self) -> str:
        """Where the trace is."""
        return f"http://127.0.0.1:{self._http.server_port}{self._path}"

    @property
    def deep_link(self) -> str:
        """What to open: the Perfetto UI, told where the trace is."""
        return f"{ORIGIN}/#!/?url={self.address}"

    def serve(self) -> None:
        """Answer until interrupted or closed."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()


def _handler(path: str, body: bytes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = secrets.compare_digest(self.path.encode(), path.encode())
            answer = body if known else b"not found\n"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json" if known else "text/plain")
            self.send_header("Content-Length", str(len(answer)))
            self.send_header("Access-Control-Allow-Origin", ORIGIN)
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
            """Nothing: the terminal is the user's."""

    return Handler
