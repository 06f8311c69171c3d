"""A watched server, and a training job, of which recordings are asked for while they run."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import lanewise
from lanewise.tree.tree_file import load

SERVER = """
import http.server, os, signal, sys, torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()


def answer(text):
    with torch.inference_mode():
        return model(torch.full((1, 64), float(len(text)))).argmax().item()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(answer(self.path)).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


with http.server.{kind}(("127.0.0.1", 0), Handler) as server:
    print(server.server_port, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(3)
"""


class Running:
    """The server, and the door through which recordings are asked for."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, port: int, door: int) -> None:
        self.process, self.folder, self.port, self.door = process, folder, port, door

    def requests(self, count: int) -> None:
        for number in range(count):
            assert self.call(self.port, "GET", f"/{number}")[0] == 200

    def call(self, port: int, verb: str, path: str, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(verb, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def until_written(self, traces: int) -> dict[str, Any]:
        """What it says of itself once there are so many traces; requests go on coming."""
        for _ in range(300):
            self.requests(5)
            status = self.call(self.door, "GET", "/")[1]
            if len(status["traces"]) >= traces and status["state"] == "idle":
                return status
        raise AssertionError(status)

    def end(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def server(folder: Path, *options: str, kind: str = "HTTPServer") -> Generator[Running]:
    (folder / "serve.py").write_text(SERVER.replace("{kind}", kind))
    door = free_port()
    words = ["--step-on", "answer", "--record-port", str(door), *options, "serve.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lanewise", "watch", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield Running(process, folder, int(process.stdout.readline()), door)
    finally:
        process.kill()
        process.communicate()


def steps_of(trace: str | Path) -> int:
    return len(lanewise.read(trace, cache=False).steps)


@pytest.mark.parametrize("kind", ["HTTPServer", pytest.param("ThreadingHTTPServer", marks=pytest.mark.slow)])
def test_a_server_is_recorded_on_a_call_and_on_a_signal_and_goes_on(tmp_path: Path, kind: str) -> None:
    with server(tmp_path, "--record-signal", "USR2", kind=kind) as running:
        running.requests(8)
        assert running.call(running.door, "POST", "/record?steps=12") == (
            202, {"steps": 12, "folder": str(tmp_path / "serve-traces")}
        )  # fmt: skip
        code, said = running.call(running.door, "POST", "/record")
        assert (code, "under way" in said["problem"]) == (409, True)
        first = running.until_written(1)
        assert steps_of(first["traces"][0]) == 12
        running.process.send_signal(signal.SIGUSR2)
        second = running.until_written(2)
        assert steps_of(second["traces"][1]) == 10
        running.requests(40)
        errors = running.end()
    assert "the next 12 steps will be recorded" in errors
    assert "next: lanewise explain serve-traces/serve-" in errors
    watched = load(tmp_path / "serve.lw").info.watched
    assert watched is not None
    # All steps are counted; those that were recorded, and timed before it, were not watched.
    assert watched.steps_seen >= 100
    assert 40 <= watched.steps_watched <= watched.steps_seen - 12 - 10


def test_ctrl_c_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    with server(tmp_path, "--save-every", "0") as running:
        running.requests(8)
        running.call(running.door, "POST", "/record?steps=1000")
        # Some are timed, two warm the profiler up, the rest is recorded.
        running.requests(60)
        errors = running.end(signal.SIGINT)
    assert running.process.returncode == 3, errors
    (trace,) = (tmp_path / "serve-traces").iterdir()
    assert 20 <= steps_of(trace) <= 60
    watched = load(tmp_path / "serve.lw").info.watched
    assert watched is not None
    assert watched.steps_seen >= 60


@pytest.mark.slow
def test_a_signal_that_ends_it_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    with server(tmp_path, "--save-every", "0") as running:
        running.requests(8)
        running.call(running.door, "POST", "/record?steps=1000")
        running.requests(60)
        errors = running.end(signal.SIGTERM)
    assert running.process.returncode == -signal.SIGTERM, errors
    (trace,) = (tmp_path / "serve-traces").iterdir()
    assert 20 <= steps_of(trace) <= 60
    assert (tmp_path / "serve.lw").exists()


@pytest.mark.slow
def test_an_end_before_anything_could_be_recorded_is_said(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        running.requests(3)
        running.call(running.door, "POST", "/record")
        running.requests(2)
        errors = running.end()
    assert "nothing was recorded: the program ended too early" in errors
