"""The figures of the benchmark: what is put in comes out, and drift that hits both sides does not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the benchmark's stages do")

from benchmarks.context.stages import packed
from benchmarks.context.summary import summary
from benchmarks.context.table import rows
from benchmarks.crew import Crew


def drifting(count: int) -> list[float]:
    """Speeds of a machine that is sometimes twice as slow."""
    draw = random.Random(1)
    return [draw.choice((1.0, 1.3, 2.0)) for _ in range(count)]


def test_pairs_and_turns() -> None:
    speeds = drifting(40)
    pairs = {
        f"{side}_{clock}ns": [round(1e6 * factor * speed) for speed in speeds for _ in range(2)]
        for side, factor in (("within", 1.2), ("without", 1.0))
        for clock in ("", "cpu_")
    }
    rest = {"switch_ns": [1, 5000, 1, 7000] * 40, "stop_ns": 3e6, "device": "", "callbacks": 1, "callback_ns": 1.0}
    line = summary({"pairs llama watch": [pairs | rest | {"counts": {}, "losses": {}}]})["pairs llama watch"]
    assert line["ratio"] == line["ratio_cpu"] == pytest.approx(1.2, abs=1e-3)
    assert line["interval"] == pytest.approx([1.2, 1.2], abs=1e-3)
    assert line["rounds"] == 40
    assert (line["on_us"], line["off_us"]) == (5.0, 7.0)
    # A watched step of 1 ms takes 0.2 ms more, among 50 steps.
    turns = {
        "period": 3,
        "within_ns": [round(3.2e6 * speed) for speed in [1.0] * 30 for _ in range(2)],
        "without_ns": [3_000_000] * 60,
    }
    line = summary({"turns small_llama watch": [turns]})["turns small_llama watch"]
    assert line["ratio"] == pytest.approx(1.004, abs=1e-5)
    assert line["watched_step_adds_us"] == 200.0


def test_arms_stand_beside_what_has_nothing_attached() -> None:
    arms = {"null": "null", "null again": "null", "watch": "watch", "profiler": "profiler"}
    factor = {("watch", "during"): 1.2, ("profiler", "during"): 2.0, ("profiler", "after"): 1.3}
    # One process is slower than the others throughout, and the machine is slower in one phase than in another.
    own = {"null": 1.0, "null again": 1.1, "watch": 1.5, "profiler": 0.9}
    phases = {
        phase: [
            {
                name: {program: [round(1e6 * speed * slow * own[name] * factor.get((arm, phase), 1.0))]}
                for name, arm in arms.items()
            }
            for program in ("llama", "adds", "wide")
            for speed in drifting(6)
        ]
        for phase, slow in (("before", 1.0), ("during", 1.4), ("after", 0.8))
    }
    found = summary({"arms": [{"arms": arms, "lost": {}, **phases}]})
    assert found["arms"]["llama watch"]["rounds"] == [6, 6, 6]
    assert found["arms"]["llama watch"]["during"] == pytest.approx(1.2, abs=2e-3)
    assert found["arms"]["llama watch"]["after"] == pytest.approx(1.0, abs=2e-3)
    assert found["arms"]["adds profiler"]["during"] == pytest.approx(2.0, abs=2e-3)
    assert found["arms"]["wide profiler"]["after"] == pytest.approx(1.3, abs=2e-3)
    table = {row[0]: row for row in rows(found)}
    assert table["torch.profiler"][1:5] == ["2.000 (2.000 to 2.000)"] * 3 + ["1.300 (1.300 to 1.300)"]


def test_windows_of_two_profilers() -> None:
    rounds = [
        {
            name: {"kernels": {"gemm": [4, round(1e6 * heat * more)], "other": [2, round(1e5 * heat * more)]}}
            for name, more in (("watch a", 1.005), ("watch b", 1.005), ("trace", 1.0))
        }
        for heat in drifting(9)
    ]
    rounds[3]["watch a"]["kernels"]["gemm"][0] = 3
    line = summary({"windows wide": [packed(rounds)]})["windows wide"]
    assert (
        line["beside_trace"]["total"]["ratio"] == line["both_beside_trace"]["ratio"] == pytest.approx(1.005, abs=1e-4)
    )
    assert line["beside_watch"]["range"] == [1.0, 1.0]
    assert line["windows_with_other_counts"] == {"watch a": 1, "watch b": 0, "trace": 0}


def test_a_crew_goes_on_without_who_fails_or_is_late() -> None:
    def good() -> Callable[..., dict[str, Any]]:
        def answer(wait: float = 0.0, fail: bool = False) -> dict[str, Any]:
            time.sleep(wait)
            if fail:
                raise ValueError("no")
            return {"waited": wait}

        return answer

    def bad() -> Callable[..., dict[str, Any]]:
        raise RuntimeError("never")

    with Crew({"a": good, "b": good, "c": good, "bad": bad}, seconds=20) as crew:
        assert crew.names == ["a", "b", "c"]
        assert crew.ask("a", late=20) == {"waited": 0.0}
        assert crew.ask("b", late=20, fail=True) == {"error": "ValueError: no"}
        assert crew.ask("c", late=0.2, wait=20.0) == {"error": "late"}
        assert crew.ask_all(["a", "b"], late=20) == {"a": {"waited": 0.0}, "b": {"error": "ValueError: no"}}
        assert crew.lost == {"bad": "RuntimeError: never", "b": "ValueError: no", "c": "late"}
