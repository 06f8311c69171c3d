"""The page of a job from a local server: that of each rank is made when it is asked for.

As for one trace it listens on the loopback address only, behind a random path. A rank's page is a server of its own,
started at its first click.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property

from lanewise.diagnose.sections.ranks import JobTold
from lanewise.show.loopback import Answer, PrivateServer
from lanewise.show.page.job_page import job_html
from lanewise.show.page.server import PageServer

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
        self._server = PrivateServer(lambda path, _: self.answer(path))
        self._rows = {one.rank: row for row, one in enumerate(told.job.ranks) if one.rank >= 0}

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return self._server.address

    @property
    def token(self) -> str:
        """The secret first part of every path."""
        return self._server.token

    def serve(self) -> None:
        """Answer until interrupted or closed."""
        self._server.serve()

    def close(self) -> None:
        """Stop answering, for the ranks, too."""
        self._server.close()
        for server in self._servers.values():
            server.close()

    @cached_property
    def _page(self) -> bytes:
        pages = {rank: f"/{self.token}/rank/{rank}" for rank in self._rows}
        return job_html(self._told, self._name, pages).encode()

    def answer(self, path: str) -> Answer:
        """What there is at a path below the token: the job's page, or where that of a rank is."""
        if path == "":
            return Answer(200, "text/html; charset=utf-8", self._page)
        word, _, number = path.partition("/")
        row = self._rows.get(int(number)) if word == "rank" and number.isascii() and number.isdigit() else None
        if row is None:
            return Answer(404, "text/plain", b"")
        with self._lock:
            server = self._servers.get(row)
            if server is None:
                server = self._servers[row] = self._page_of(row)
                threading.Thread(target=server.serve, daemon=True).start()
        return Answer(302, "text/plain", b"", server.address)
