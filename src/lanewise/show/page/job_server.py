"""The page of a job from a local server: that of each rank is made when it is asked for.

As for one trace it listens on the loopback address only, behind a random path. A rank's page is a server of its own,
started at its first click.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from typing import Any

from lanewise.diagnose.sections.ranks import JobTold
from lanewise.show.loopback import LoopbackServer
from lanewise.show.page.job_page import job_html
from lanewise.show.page.server import HEADERS, PageServer

__all__ = ["JobServer"]


class JobServer:
    """Serves a job until it is closed.

    Args:
        told: what is said of it. name: of its folder.
        page_of: makes the server of a rank's page, by its row; slow, and called once for each.
    """

    def __init__(self, told: JobTold, name: str, page_of: Callable[[int], PageServer]) -> None:
        self._told, self._name, self._page_of = told, name, page_of
        self._lock = threading.Lock()
        self._servers: dict[int, PageServer] = {}
        self._token = secrets.token_urlsafe(24)
        self._http = LoopbackServer(0, self._handler())
        self._rows = {one.rank: row for row, one in enumerate(told.job.ranks) if one.rank >= 0}

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://127.0.0.1:{self._http.server_port}/{self._token}/"

    def serve(self) -> None:
        """Answer until interrupted or closed."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering, for the ranks, too."""
        self._http.shutdown()
        self._http.server_close()
        for server in self._servers.values():
            server.close()

    @cached_property
    def _page(self) -> bytes:
        pages = {rank: f"/{self._token}/rank/{rank}" for rank in self._rows}
        return job_html(self._told, self._name, pages).encode()

    def answer(self, path: str) -> tuple[int, str]:
        """Status for a path below the token, and where it leads if that is elsewhere."""
        if path == "":
            return 200, ""
        word, _, number = path.partition("/")
        row = self._rows.get(int(number)) if word == "rank" and number.isascii() and number.isdigit() else None
        if row is None:
            return 404, ""
        with self._lock:
            server = self._servers.get(row)
            if server is None:
                server = self._servers[row] = self._page_of(row)
                threading.Thread(target=server.serve, daemon=True).start()
        return 302, server.address

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        job = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.headers.get("Host", "") not in job.hosts:
                    self._send(403, b"this server answers to its own address only\n")
                    return
                token, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
                if not secrets.compare_digest(token.encode(), job.token.encode()):
                    self._send(404, b"not found\n")
                    return
                status, elsewhere = job.answer(path)
                self._send(status, job.page if status == 200 else b"", elsewhere)

            def _send(self, status: int, body: bytes, elsewhere: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8" if status == 200 else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                if elsewhere:
                    self.send_header("Location", elsewhere)
                for name, value in HEADERS:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
                """Nothing: the terminal is the user's."""

        return Handler

    @property
    def page(self) -> bytes:
        """The page of the job."""
        return self._page

    @property
    def token(self) -> str:
        """The secret first part of every path."""
        return self._token

    @cached_property
    def hosts(self) -> frozenset[str]:
        """What a browser on this machine may call us."""
        port = self._http.server_port
        return frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))
