"""A running program whose module becomes slower says so: on standard error, in its tree, in what is explained of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.diagnose.of_tree.explain_tree import explain_tree  # noqa: E402
from lanewise.errors import UsageError  # noqa: E402
from lanewise.tree.slowing import against_baseline, lookout  # noqa: E402
from lanewise.tree.slowing.slowdown import Slowdown  # noqa: E402
from lanewise.tree.tree_file import load  # noqa: E402
from tests.capture.context.paths import calls  # noqa: E402


class Sleeper(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0005

    def forward(self, x: Any) -> Any:
        # Asleep on purpose: a busy machine changes little about it.
        x = x + 1
        time.sleep(self.seconds)
        return x * 2


def run(model: Any, steps: int) -> None:
    x = torch.ones(4, 4)
    with torch.no_grad():
        for _ in range(steps):
            model(x)


def planted(told: list[Slowdown], step: int = 0) -> list[Slowdown]:
    """What was told of the module that was made slower, from that step on."""
    return [one for one in told if "1" in one.path and one.at > step]


@pytest.fixture
def _asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "CROWDED", 1e9)
    monkeypatch.setattr(lookout, "_COST", 1e9)


@pytest.mark.usefixtures("_asleep")
def test_a_module_that_becomes_slower_is_named(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*[Sleeper() for _ in range(5)])
    said: list[str] = []
    told: list[Slowdown] = []
    with lanewise.watch(tmp_path / "run.lw", way="native", save_every=0, on_slowdown=told.append, log=said.append):
        for at in range(0, 1800, 40):
            if at == 720:
                model[1].seconds *= 3
            run(model, 40)
            if planted(told, 720):
                break
    # On a busy machine other changes may be found as well, this one in two parts, and when it began is less certain.
    found = planted(told, 720)[0]
    line = next(text for text in said if text.startswith(f"slower since step {found.since}") and "forward" in text)
    assert "test_slower_places.py" in line
    assert 640 <= found.since <= 800
    watched = load(tmp_path / "run.lw").info.watched
    assert watched is not None
    assert watched.slowdowns == tuple(told)
    report = explain_tree(load(tmp_path / "run.lw"))
    finding = next(one for one in report.findings if one.code == "MEA116")
    assert finding.location is not None
    assert finding.location.file.endswith("test_slower_places.py")


def test_what_goes_wrong_in_looking_ends_only_the_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout.Lookout, "look", lambda *_: 1 / 0)
    said: list[str] = []
    watcher = lanewise.watch(way="native", measure=False, log=said.append)
    with watcher:
        run(torch.nn.Linear(4, 4), 100)
    assert [text for text in said if "not followed any more" in text]
    assert watcher.problem == ""
    assert calls(watcher.tree, "aten::linear") == 100


def test_the_time_of_looking_is_no_context_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_: Any, seen: int, watched: int) -> int:
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass
        return watched + 1

    monkeypatch.setattr(lookout.Lookout, "look", look)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    with lanewise.watch(way="native", measure=False) as watcher:
        for _ in range(100):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    assert watcher.tree is not None
    assert watcher.tree.metrics["host"].sum() < 0.5 * 100 * 5e6


def test_it_is_known_in_which_places_a_thread_waited_for_a_processor() -> None:
    one = min(os.sched_getaffinity(0))
    others = os.sched_getaffinity(0)
    busy = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{one}])\nwhile True: pass"])
    x = torch.ones(64, 64)
    try:
        with lanewise.watch(way="native", measure=False, alerts=False) as watcher:
            os.sched_setaffinity(0, [one])
            torch.mm(x, x)
            before = waited_ns()
            begin = time.monotonic()
            while waited_ns() - before < 3e8 and time.monotonic() - begin < 60:
                for _ in range(1000):
                    torch.mm(x, x)
            collector: Any = watcher._collector
            sums = collector.sums()
            waited = waited_ns() - before
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, others)
    ticks, known = (np.concatenate([np.frombuffer(one[at], np.int64) for one in sums.threads]) for at in (2, 3))
    assert (known <= ticks).all()
    assert 0.5 * waited < known.sum() * sums.ns_per_tick < 1.1 * waited + 5e7


def waited_ns() -> int:
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def test_without_alerts_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout.Lookout, "look", lambda *_: 1 / 0)
    said: list[str] = []
    with lanewise.watch(way="native", measure=False, alerts=False, log=said.append):
        run(torch.nn.Linear(4, 4), 100)
    assert not [text for text in said if "followed" in text]


def test_a_place_that_takes_longer_than_in_a_baseline_is_named_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against_baseline, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(against_baseline, "CROWDED", 1e9)
    model = torch.nn.Sequential(*[Sleeper() for _ in range(5)])
    with lanewise.watch(tmp_path / "monday.lw", way="native", measure=False):
        run(model, 100)
    model[1].seconds *= 3
    said: list[str] = []
    told: list[Slowdown] = []
    tuesday = lanewise.watch(
        tmp_path / "tuesday.lw", way="native", measure=False, save_every=0.1, on_slowdown=told.append, log=said.append,
        baseline=tmp_path / "monday.lw",
    )  # fmt: skip
    with tuesday:
        for _ in range(40):
            run(model, 55)
            if planted(told):
                break
    # On a busy machine other places may take longer as well.
    assert planted(told), said
    assert [line for line in said if line.startswith("slower than in monday.lw: ")]
    assert all(found.against == "monday.lw" for found in planted(told))
    watched = load(tmp_path / "tuesday.lw").info.watched
    assert watched is not None
    assert set(planted(told)) <= set(watched.slowdowns)
    finding = next(one for one in explain_tree(load(tmp_path / "tuesday.lw")).findings if one.code == "MEA116")
    assert "takes longer than in monday.lw: " in finding.title


def test_a_baseline_needs_a_file_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="when the file is written"):
        lanewise.watch(baseline=tmp_path / "monday.lw")
