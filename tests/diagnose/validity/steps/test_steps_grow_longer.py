from __future__ import annotations

import pytest

from lanewise.diagnose.explain import explain
from lanewise.diagnose.of_tree.explain_tree import explain_tree
from lanewise.report.model import Finding
from lanewise.tree.slowing.slowdown import Period
from lanewise.tree.watching.watched import Watched
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder
from tests.tree.samples import small_tree


def run(kernels: list[float]) -> TraceBuilder:
    """Device-bound steps with a kernel of so many us each."""
    b = TraceBuilder()
    for duration in kernels:
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=duration)
            b.synchronize()
    return b


def of_history(ns: list[float], calls: list[int]) -> Finding | None:
    history = tuple(Period(100, round(100 * each), 100, 100 * n) for each, n in zip(ns, calls, strict=True))
    tree = small_tree().with_info(watched=Watched(steps_seen=2_000, steps_watched=2_000, history=history))
    return next((one for one in explain_tree(tree).findings if one.code == "MEA115"), None)


def test_steps_that_grow_are_named_with_both_ends() -> None:
    result = found("MEA115", run([1_000 + 40 * step for step in range(20)]).build())
    assert title("MEA115", result) == "Steps grow longer: 1.67 ms at the end, 1.15 ms at the beginning (45 % more)."


def test_one_that_goes_up_and_down_is_none() -> None:
    assert "do not grow" in cleared("MEA115", run([1_000 + 400 * (step % 2) for step in range(20)]).build())


def test_too_few_steps_tell_nothing() -> None:
    assert "fewer than 12" in skipped("MEA115", run([1_000 + 40 * step for step in range(9)]).build())


@pytest.mark.parametrize("growth_from", [0.40, 0.60])
def test_its_threshold(growth_from: float) -> None:
    trace = run([1_000 + 40 * step for step in range(20)]).build()
    if growth_from < 0.45:
        found("MEA115", trace, growth_from=growth_from)
    else:
        cleared("MEA115", trace, growth_from=growth_from)


def test_a_watched_run_says_it_of_its_stretches() -> None:
    finding = of_history([1e6 + 2e4 * at for at in range(30)], [50] * 30)
    assert finding is not None
    assert finding.title == "Steps grow longer: 1.49 ms at the end, 1.09 ms at the beginning (37 % more)."


def test_calls_that_grow_are_named_even_if_the_step_does_not() -> None:
    finding = of_history([1e6] * 30, [50 + at for at in range(30)])
    assert finding is not None
    assert "74 calls of operators and modules per step at the end, 54 at the beginning" in finding.title


def test_a_steady_run_and_a_trace_of_one_say_nothing() -> None:
    assert of_history([1e6 + 1e4 * (at % 3) for at in range(30)], [50] * 30) is None
    report = explain(run([1_000.0] * 20).build())
    assert not [one for one in report.findings if one.code == "MEA115"]
