"""The page from a local server, for traces too large to send: the browser asks for what is on screen.

It reads nothing but the trace, and source lines where it was told to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.diagnose.where.marked import marked_events
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.diff.diff_page import Base, diff_html
from lanewise.show.loopback import NOT_FOUND, Answer, PrivateServer
from lanewise.show.page.before_after import before_after_block
from lanewise.show.page.html import page, report_html
from lanewise.show.page.payload import overview_block, tables_block, tree_block
from lanewise.show.page.timeline import MAX_SLICES
from lanewise.show.page.window_queries import Windows
from lanewise.tree.inside_kernels import Inside

__all__ = ["PageServer"]


class PageServer:
    """Serves one trace until it is closed.

    Args:
        facts, report: what to show.
        max_slices: up to this many slices travel inside the page; above, the page asks for windows.
        sources: folder of the program's sources, to show lines of them beside the calls.
        base: an earlier run that it is compared with. Both timelines then travel inside the page, up to `max_slices` each.
        insides: what was sampled inside of kernels, by their names.
    """

    def __init__(
        self,
        facts: Facts,
        report: Report,
        *,
        max_slices: int = MAX_SLICES,
        sources: Path | None = None,
        base: Base | None = None,
        insides: Mapping[str, Inside] | None = None,
    ) -> None:
        self._facts, self._report, self._sources, self._base = facts, report, sources, base
        self._insides = insides
        self._inside = len(facts.trace) <= max_slices
        self._max_slices = max_slices
        self._lock = threading.Lock()
        self._preparing: threading.Thread | None = None
        self._server = PrivateServer(self._respond)

    @property
    def address(self) -> str:
        """What to open in a browser."""
        view = "#view=compare" if self._base is not None else ""
        return f"{self._server.address}{view}"

    @property
    def token(self) -> str:
        """The secret first part of every path."""
        return self._server.token

    def serve(self) -> None:
        """Answer until interrupted or closed."""
        self._server.serve()

    def close(self) -> None:
        """Stop answering."""
        self._server.close()

    @cached_property
    def _page(self) -> str:
        if self._base is not None:
            return diff_html(self._facts, self._report, self._base, max_slices=self._max_slices, sources=self._sources)
        if self._inside:
            return report_html(
                self._facts,
                self._report,
                max_slices=self._max_slices,
                sources=self._sources,
                insides=self._insides,
            )
        return page(self._report, overview_block(self._facts, self._report), {}, server=f"/{self.token}")

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self._facts)

    @cached_property
    def _tables(self) -> bytes:
        return tables_block(self._facts)

    @cached_property
    def _tree(self) -> bytes:
        return tree_block(self._facts, sources=self._sources, insides=self._insides)

    @cached_property
    def _predicted(self) -> bytes:
        return before_after_block(self._facts, self._report)

    @cached_property
    def _marked(self) -> dict[str, np.ndarray]:
        return marked_events(self._facts, self._report)

    @cached_property
    def _overview(self) -> bytes:
        return self._windows.overview()

    def answer(self, path: str, query: dict[str, str]) -> tuple[str, bytes] | None:
        """Content type and body for a path below the token; None for what there is not.

        Raises:
            ValueError: an argument is missing or is no number.
        """
        routes: dict[str, Callable[[], tuple[str, bytes] | None]] = {
            "": lambda: ("text/html; charset=utf-8", self._page.encode("utf-8")),
            "timeline": lambda: (_BINARY, self._overview),
            "tables": lambda: (_BINARY, self._tables),
            "tree": lambda: (_BINARY, self._tree),
            "predicted": lambda: (_BINARY, self._predicted),
            "slices": lambda: (
                _BINARY,
                self._windows.slices(_whole(query, "from"), _whole(query, "to"), _number(query, "pixel")),
            ),
            "marked": lambda: (
                _BINARY,
                self._windows.marked(self._marked.get(query.get("code", ""), np.empty(0, np.int64))),
            ),
            "details": lambda: _json(self._windows.details(_whole(query, "event"))),
            "measure": lambda: _json(self._windows.measure(_whole(query, "from"), _whole(query, "to"))),
            "search": lambda: _json(self._windows.search(query.get("text", "")[:500])),
        }
        route = routes.get(path)
        if route is None:
            return None
        # Derived facts are computed once: by one request at a time. What is on screen must not wait for the trees of a
        # large trace, which take long: questions about what is there already only read.
        if _MADE_ONCE[path] in self.__dict__:
            return route()
        with self._lock:
            found = route()
        if path == "" and not self._inside and self._base is None:
            self._prepare()
        return found

    def _prepare(self) -> None:
        """Lay the timeline out while the overview is read: it is what one looks at next."""
        if self._preparing is None:
            self._preparing = threading.Thread(target=self.answer, args=("timeline", {}), daemon=True)
            self._preparing.start()

    def _respond(self, path: str, query: dict[str, str]) -> Answer:
        try:
            found = self.answer(path, query)
        except ValueError as error:
            return Answer(400, "text/plain", f"{error}\n".encode())
        return NOT_FOUND if found is None else Answer(200, *found)


# What each path is answered from, made at its first request.
_MADE_ONCE = {
    "": "_page",
    "timeline": "_overview",
    "tables": "_tables",
    "tree": "_tree",
    "predicted": "_predicted",
    "marked": "_marked",
    **dict.fromkeys(("slices", "details", "measure", "search"), "_windows"),
}
_BINARY = "application/octet-stream"


def _json(value: Any) -> tuple[str, bytes] | None:
    if value is None:
        return None
    return "application/json", json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def _number(query: dict[str, str], name: str) -> float:
    try:
        value = float(query[name])
    except (KeyError, ValueError):
        raise ValueError(f"{name}: a number is needed") from None
    if not 0 <= value < 2**53:
        raise ValueError(f"{name}: out of range")
    return value


def _whole(query: dict[str, str], name: str) -> int:
    return int(_number(query, name))
