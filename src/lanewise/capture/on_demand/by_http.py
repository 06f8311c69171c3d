"""A call on loopback asks for a recording: `curl -X POST http://127.0.0.1:PORT/record?steps=20`.

Only programs of this machine can call, and no web page that somebody has open in a browser here: those say where they
come from.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lanewise.capture.on_demand.on_demand import OnDemand
from lanewise.capture.on_demand.ordered import read_order
from lanewise.capture.thread_identity import own_threads
from lanewise.errors import LanewiseError, UsageError

__all__ = ["HttpAsks"]

_LOOPBACK = "127.0.0.1"
_HERE = (_LOOPBACK, "localhost")
_HELP = "GET / tells what goes on; POST /record?steps=20&stacks=yes has the next 20 steps recorded"


class HttpAsks:
    """Answers on one port until `close`. LanewiseError if the port cannot be had.

    Args:
        port: 0 for any that is free.

    Attributes:
        port: the one in use.
    """

    def __init__(self, port: int, recordings: OnDemand) -> None:
        class Handler(_Handler):
            on_demand = recordings

        try:
            self._server = HTTPServer((_LOOPBACK, port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise LanewiseError(f"no recordings can be asked for at port {port}: {why}; choose another, or 0") from None
        self.port: int = self._server.server_port
        self._over = False
        # Not by `threading`, which would list it among the threads of the program.
        _thread.start_new_thread(self._answer, ())

    def close(self) -> None:
        """Answer no more."""
        self._over = True
        # Whoever waits for a call wakes up.
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)

    def forked(self) -> None:
        """This is another process: the port is the first one's."""
        with contextlib.suppress(OSError):
            self._server.socket.close()

    def _answer(self) -> None:
        own_threads.add(threading.get_native_id())
        while not self._over:
            with contextlib.suppress(Exception):
                self._server.handle_request()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    on_demand: OnDemand
    timeout = 5
    server_version = "lanewise"
    sys_version = ""

    def do_GET(self) -> None:
        """What goes on."""
        if not self._from_elsewhere():
            if urlsplit(self.path).path == "/":
                self._say(200, {"process": os.getpid(), **self.on_demand.status()})
            else:
                self._say(404, {"problem": _HELP})

    def do_POST(self) -> None:
        """The next steps are to be recorded."""
        if self._from_elsewhere():
            return
        asked = urlsplit(self.path)
        if asked.path != "/record":
            self._say(404, {"problem": _HELP})
            return
        try:
            order = read_order(dict(parse_qsl(asked.query, keep_blank_values=True)), self.on_demand.usual)
        except UsageError as error:
            self._say(400, {"problem": str(error)})
            return
        refused = self.on_demand.ask(order)
        if refused:
            self._say(409, {"problem": refused})
        else:
            self._say(202, {"steps": order.steps, "folder": str(self.on_demand.folder)})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
        """Nothing: standard error is the program's."""

    def _from_elsewhere(self) -> bool:
        """Whether a web page asks, or somebody who takes this for another server; then it is refused."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host in _HERE and self.headers.get("Origin") is None:
            return False
        self._say(403, {"problem": f"only programs of this machine may ask, at http://{_LOOPBACK}"})
        return True

    def _say(self, status: int, answer: dict[str, Any]) -> None:
        body = (json.dumps(answer) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
