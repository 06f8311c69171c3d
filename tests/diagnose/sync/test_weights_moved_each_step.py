"""SYN109: a model that travels in the loop."""

from __future__ import annotations

import pytest

from lanewise.diagnose.engine import diagnose
from lanewise.measure.facts import Facts
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(
    weights: int = 60,
    *,
    both: bool = False,
    vary: bool = False,
    compute: float = 100,
    under: str = "aten::to",
    source: str = "pageable",
) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            for i in range(weights):
                for way in ("HtoD", "DtoH") if both else ("HtoD",):
                    with b.op(under), b.op("aten::_to_copy"), b.op("aten::copy_"):
                        size = 100_000 + i * 1000 + (step if vary else 0)
                        ends = {"source": source} if way == "HtoD" else {"destination": source}
                        b.copy(way, size=size, duration=20, **ends)
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
            b.synchronize()
    return b.build()


def test_costs_the_calls_and_the_operators_around_them() -> None:
    finding = found("SYN109", program())
    assert finding.gain_ns == pytest.approx(60 * 36_000 + 1_000)
    assert title("SYN109", finding).startswith("The same 60 tensors (7.77 MB) travel between host and GPU per step")


def test_a_few_tensors_that_come_back_are_a_model_and_a_few_that_do_not_are_a_batch() -> None:
    assert title("SYN109", found("SYN109", program(6, both=True))).startswith("The same 12 tensors")
    assert "6 copies per step" in cleared("SYN109", program(6))


def test_owns_the_time_of_the_general_rules() -> None:
    findings = {finding.code: finding for finding in diagnose(Facts(program(both=True)))[0]}
    assert findings["SYN103"].recoverable_us_per_step < 0.1 * findings["SYN103"].alone_us_per_step
    assert findings["SYN109"].recoverable_us_per_step > 0


def test_fires_from_fifty_copies() -> None:
    assert found("SYN109", program(50))
    assert cleared("SYN109", program(49))


def test_fires_from_a_fifth_of_the_step() -> None:
    # The copies' calls take 1.8 ms.
    assert found("SYN109", program(compute=6_000))
    assert cleared("SYN109", program(compute=8_000))


def test_copies_that_differ_between_steps_are_batches() -> None:
    assert "differ" in cleared("SYN109", program(vary=True))


def test_pinned_copies_that_return_at_once_are_deliberate() -> None:
    assert cleared("SYN109", program(source="pinned", compute=5_000))


def test_other_copies_are_silent() -> None:
    assert cleared("SYN109", program(under="mine::load"))


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::to"):
        pass
    assert skipped("SYN109", b.build())
