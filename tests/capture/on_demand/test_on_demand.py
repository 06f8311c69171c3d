"""Recordings that are asked for while a program is watched: by code, a signal and a call, in one process."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import lanewise
from lanewise.capture.context.watcher import Watcher
from lanewise.capture.file.rotation import name_now, rotate
from lanewise.errors import LanewiseError, UsageError
from lanewise.trace.metadata import from_metadata
from lanewise.tree.tree_file import load

Step = Callable[[], None]


@pytest.fixture
def step() -> Step:
    """A training step."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def one() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    return one


def until_written(watcher: Watcher, step: Step, traces: int) -> list[int]:
    """Steps of each trace, once there are so many."""
    for _ in range(400):
        step()
        if len(watcher.traces) >= traces and not watcher._recordings.busy:
            return [len(lanewise.read(path, cache=False).steps) for path in watcher.traces]
    raise AssertionError(watcher._recordings.status())


def call(port: int, verb: str, path: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(verb, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("way", ["native", "windows"])
def test_each_recording_has_the_steps_asked_for_and_the_tree_goes_on(tmp_path: Path, step: Step, way: str) -> None:
    said: list[str] = []
    ran = 0

    def counted() -> None:
        nonlocal ran
        ran += 1
        step()

    sampled = {"every": 30, "steps": 2} if way == "windows" else {}
    watcher = lanewise.watch(tmp_path / "train.lw", way=way, measure=False, log=said.append, **sampled)
    with watcher:
        for _ in range(60):
            counted()
        before = watcher.tree.info.watched
        watcher.record(7)
        with pytest.raises(LanewiseError, match="under way"):
            watcher.record()
        assert until_written(watcher, counted, 1) == [7]
        watcher.record(12, stacks=True)
        assert until_written(watcher, counted, 2) == [7, 12]
        between = watcher.tree.info.watched
        for _ in range(60):
            counted()
    with pytest.raises(LanewiseError, match="about to end"):
        watcher.record()
    after = load(tmp_path / "train.lw").info.watched
    assert before is not None
    assert between is not None
    assert after is not None
    assert before.steps_watched < after.steps_watched
    # Nothing was watched while it was recorded, or timed for that.
    assert after.steps_seen - after.steps_watched >= 7 + 12 + 2 * 7
    assert after.steps_watched > between.steps_watched
    assert ran - 3 <= after.steps_seen <= ran
    trace = lanewise.read(watcher.traces[1], cache=False)
    recorded = from_metadata(trace.metadata)
    assert recorded is not None
    assert (recorded.step_source, recorded.flags["stacks"], recorded.active) == ("optimizer", True, 12)
    assert recorded.unprofiled is not None
    assert {path.parent for path in watcher.traces} == {tmp_path / "train-traces"}
    assert [line for line in said if line.startswith("next: lanewise explain")]
    assert watcher.problem == ""


def test_a_signal_and_a_call_ask_and_are_given_back(tmp_path: Path, step: Step) -> None:
    asked = lanewise.watch(
        tmp_path / "train.lw", record_signal="USR2", record_port=0, record_steps=3, record_keep=1, measure=False
    )
    with asked as watcher:
        port = watcher._asking.port_in_use
        step()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert call(port, "GET", "/")[1]["state"] == "waiting for a step"
        assert until_written(watcher, step, 1) == [3]
        code, said = call(port, "POST", "/record?steps=4&memory=yes")
        assert (code, said) == (202, {"steps": 4, "folder": str(tmp_path / "train-traces")})
        first = watcher.traces
        while watcher.traces == first:
            step()
        assert until_written(watcher, step, 1) == [4]
    # One is kept.
    assert list((tmp_path / "train-traces").iterdir()) == list(watcher.traces)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    with pytest.raises(ConnectionError):
        call(port, "GET", "/")


def test_what_cannot_be_asked_for_is_refused_with_a_reason(tmp_path: Path) -> None:
    refused = {
        "/record?steps=0": 400,
        "/record?steps=many": 400,
        "/record?steps=99999999999999999999": 400,
        "/record?steps=": 400,
        "/record?shape=yes": 400,
        "/": 404,
        "/%2e%2e/record": 404,
    }
    with lanewise.watch(tmp_path / "train.lw", record_port=0) as watcher:
        port = watcher._asking.port_in_use
        for path, code in refused.items():
            found, said = call(port, "POST", path)
            assert (found, bool(said["problem"])) == (code, True), path
        # A page in a browser, and a name that was pointed here.
        assert call(port, "POST", "/record", Origin="http://example.com")[0] == 403
        assert call(port, "GET", "/", Host="example.com:80")[0] == 403
        assert call(port, "GET", "/nothing")[0] == 404
        assert call(port, "GET", "/")[1]["state"] == "idle"
        listening = watcher._asking._by_http._server.socket
        if (child := os.fork()) == 0:
            # The port is the first process's: a child that outlives it does not hold it.
            os._exit(listening.fileno() != -1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "asked", [{"record_signal": "KILL"}, {"record_port": 70_000}, {"record_steps": 0}, {"record_keep": 0}]
)
def test_options_that_make_no_sense_are_refused_at_once(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        lanewise.watch(**asked)


def test_a_port_or_a_signal_that_cannot_be_had_is_said_and_the_program_is_watched(step: Step) -> None:
    said: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        try:
            with lanewise.watch(record_signal="USR1", record_port=port, log=said.append) as watcher:
                step()
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert [line for line in said if "SIGUSR1 does not ask for a recording: the program uses it itself" in line]
    assert [line for line in said if f"at port {port}: Address already in use; choose another, or 0" in line]
    assert len(watcher.tree) > 10


def test_a_program_that_profiles_itself_keeps_its_profiler(tmp_path: Path, step: Step) -> None:
    with lanewise.watch(tmp_path / "train.lw", measure=False) as watcher:
        step()
        watcher.record(3)
        with torch.profiler.profile() as theirs:
            for _ in range(30):
                step()
        for _ in range(30):
            step()
    assert theirs.key_averages()
    assert watcher.traces == () or len(watcher.traces) == 1


def test_a_disk_that_cannot_be_written_is_said_and_the_next_recording_works(tmp_path: Path, step: Step) -> None:
    said: list[str] = []
    (tmp_path / "train-traces").write_text("no folder")
    with lanewise.watch(tmp_path / "train.lw", measure=False, log=said.append) as watcher:
        step()
        watcher.record(3)
        while watcher._recordings.busy:
            step()
        (tmp_path / "train-traces").unlink()
        watcher.record(4)
        while watcher._recordings.busy:
            step()
    assert [line for line in said if "cannot write to" in line]
    assert watcher.traces[-1].parent == tmp_path / "train-traces"


def test_the_oldest_traces_go_and_nothing_else_does(tmp_path: Path) -> None:
    moments = ["20261128-235959", "20261129-000000", "20261129-000001"]
    ours = [tmp_path / f"serve-{moment}-rank1.json.gz" for moment in moments]
    ours.append(tmp_path / "serve-20261129-000001-rank1-2.json.gz")
    theirs = [
        tmp_path / name
        for name in (
            "serve-20261128-235959.json.gz",
            "serve.json.gz",
            "other-20261128-235959-rank1.json.gz",
            "serve-rank1.lw",
        )
    ]
    for path in (*ours, *theirs):
        path.write_text("")
    rotate(tmp_path, "serve", "-rank1", 2, ".json.gz")
    assert sorted(tmp_path.iterdir()) == sorted([*ours[2:], *theirs])
    rotate(tmp_path / "missing", "serve", "", 2, ".json.gz")
    assert name_now("serve").startswith("serve-2")
