"""The local server: this machine only, behind its token, and nothing but the trace."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.errors import MissingDependencyError
from lanewise.show.page.html import bundle
from lanewise.show.page.packing import unpack
from lanewise.show.page.server import PageServer
from tests.web.traces import training


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    try:
        bundle()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    facts = facts_of(training())
    made = PageServer(facts, report_of(facts), max_slices=10)
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join(5)


def ask(
    server: PageServer, path: str, *, token: str | None = None, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    url = urlsplit(server.address)
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=20)
    prefix = server.token if token is None else token
    connection.request(method, f"/{prefix}/{path}", headers={"Host": host or url.netloc})
    answer = connection.getresponse()
    result = answer.status, dict(answer.headers.items()), answer.read()
    connection.close()
    return result


def test_it_listens_on_the_loopback_address_only(server: PageServer) -> None:
    assert urlsplit(server.address).hostname == "127.0.0.1"
    assert server._server._http.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32


def test_without_the_token_there_is_nothing(server: PageServer) -> None:
    for token in ("", "wrong", server.token[:-1], server.token + "x", "..", server.token.lower() + "é".encode().hex()):
        assert ask(server, "timeline", token=token)[0] == 404


def test_a_page_elsewhere_that_resolves_to_this_machine_is_refused(server: PageServer) -> None:
    assert ask(server, "", host="evil.example")[0] == 403
    assert ask(server, "", host=f"localhost:{urlsplit(server.address).port}")[0] == 200


@pytest.mark.parametrize("path", ["../../etc/passwd", "nothing", "timeline/", "%2e%2e/", "details", "slices?from=1"])
def test_unknown_paths_and_missing_arguments(server: PageServer, path: str) -> None:
    assert ask(server, path)[0] in {400, 404}


@pytest.mark.parametrize(
    "query", ["from=x&to=1&pixel=1", "from=-1&to=1&pixel=1", "from=0&to=1&pixel=nan", "from=0&to=1e400&pixel=1"]
)
def test_arguments_that_are_no_numbers_are_refused_in_one_line(server: PageServer, query: str) -> None:
    status, _, body = ask(server, f"slices?{query}")
    assert status == 400
    assert body.count(b"\n") == 1


def test_only_reading_is_possible(server: PageServer) -> None:
    assert ask(server, "", method="POST")[0] == 501


def test_answers_are_not_kept_framed_or_shared(server: PageServer) -> None:
    _, headers, body = ask(server, "")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    assert b"connect-src 'self'" in body


def test_every_route_answers(server: PageServer) -> None:
    columns, extra = unpack(ask(server, "timeline")[2])
    assert len(columns["start"]) == 0
    window, _ = unpack(ask(server, f"slices?from=0&to={extra['span'][1]}&pixel=1")[2])
    assert len(window["start"]) == extra["total"]
    event = int(window["id"][0])
    assert json.loads(ask(server, f"details?event={event}")[2])["slice"]["id"] == event
    assert ask(server, "details?event=99999999")[0] == 404
    assert json.loads(ask(server, "search?text=mul_kernel")[2])["total"] == 120
    assert json.loads(ask(server, "measure?from=0&to=1000000")[2])["deviceSlices"] > 0
    assert unpack(ask(server, "tables")[2])[1]["tables"]
    assert unpack(ask(server, "tree")[2])[1]["views"]


def test_what_is_on_screen_does_not_wait_for_slow_trees() -> None:
    facts = facts_of(training())
    server = PageServer(facts, report_of(facts), max_slices=10)
    try:
        query = {"from": "0", "to": "1000000", "pixel": "1"}
        for path in ("", "timeline", "slices"):
            assert server.answer(path, query) is not None
        with server._lock:  # as while a tree is built
            for path in ("", "timeline", "slices"):
                answered: list[object] = []
                thread = threading.Thread(
                    target=lambda path=path, into=answered: into.append(server.answer(path, query)), daemon=True
                )
                thread.start()
                thread.join(5)
                assert answered, path
    finally:
        server._server._http.server_close()


def test_a_page_that_is_closed_meanwhile_and_an_answer_that_fails_leave_no_traceback(
    server: PageServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = urlsplit(server.address)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", url.port or 0)) as plain:
            plain.sendall(f"GET /{server.token}/ HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
            # An abrupt end, as of a browser that is stopped.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ask(server, "")[0] == 200
    assert capfd.readouterr().err == ""

    def fail(low: int, high: int) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(server._windows, "measure", fail)
    assert ask(server, "measure?from=0&to=1")[0] == 500
    deadline = time.monotonic() + 5
    lines = ""
    while "no room" not in lines and time.monotonic() < deadline:
        lines += capfd.readouterr().err
    assert lines == "lanewise: a request failed: MemoryError: no room\n"
