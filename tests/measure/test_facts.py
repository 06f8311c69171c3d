"""`Facts`: what it reads of the recorder, what it computes once, and what it says of a device."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.diagnose.explain import explain
from lanewise.measure.core import Core, remembered
from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder
from tests.support.corpus import REPOSITORY

TWINS = REPOSITORY / "tests" / "data" / "twins"


@pytest.mark.parametrize("name", ["mnist", "item_loop-bad", "llm-decode", "softmax-naive"])
def test_facts_of_a_trace_are_those_of_its_report(name: str) -> None:
    trace = read(str(TWINS / f"{name}.json.gz"), cache=False)
    facts, report = Facts(trace), explain(trace)
    assert facts.unprofiled_ns is not None
    assert report.regime.step_us == pytest.approx(facts.steps.step_ns / 1e3)
    assert report.regime.name == REGIMES[facts.regime.name][1]
    assert Facts(trace, unprofiled_ns=7_000).steps.step_ns == 7_000


def test_any_pure_function_becomes_a_value_that_is_computed_once() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.wait(10)
    facts = Facts(b.build())
    asked: list[object] = []

    def of_trace(trace: Trace) -> int:
        asked.append(trace)
        return len(trace)

    def of_core(core: Core) -> np.ndarray:
        asked.append(core)
        return core.steps.steady

    @remembered
    def called(core: Core) -> float:
        asked.append("called")
        return core.steps.step_ns

    assert facts.of(of_trace) == facts.of(of_trace) == len(facts.trace)
    assert facts.of(of_core) is facts.of(of_core)
    assert called(facts) == called(facts) == facts.steps.step_ns
    assert asked == [facts.trace, facts, "called"]
    called(Facts(facts.trace))
    assert asked[-2:] == ["called", "called"], "other facts, another value"


def test_one_value_says_whether_there_is_a_device() -> None:
    def trace(*, launch: bool = False, work: bool = False, cut: bool = False) -> Trace:
        b = TraceBuilder()
        with b.step(), b.op("aten::add"):
            b.wait(10)
            if work:
                b.launch()
            elif launch:
                b.call("cudaLaunchKernel")
        built = b.build()
        built.reading.truncated = cut
        return built

    assert Facts(trace(work=True)).device_records == "some"
    assert Facts(trace(launch=True)).device_records == "lost"
    assert Facts(trace(launch=True, cut=True)).device_records == "lost"
    assert Facts(trace(cut=True)).device_records == "cut off"
    assert Facts(trace()).device_records == "none"
    assert [Facts(trace(cut=cut)).on_cpu for cut in (False, True)] == [True, False]
