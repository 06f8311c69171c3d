"""REG101 to REG106: exactly one holds, by the share of its class and its lead over the next."""

from __future__ import annotations

import pytest

from lanewise.diagnose.rule import Clear, Found
from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES, regime_of
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, outcome, title
from tests.support.builder import TraceBuilder

CODES = [code for code, _ in REGIMES.values()]


def run(*, kernel: float = 0, copy: float = 0, collective: float = 0, step: float = 1000) -> Trace:
    """Four steps of 1000 us, one after the other on one stream: what is given, and the host for the rest."""
    b = TraceBuilder()
    for _ in range(4):
        begin = b.now
        with b.step(head=0, tail=0):
            if copy:
                b.copy("HtoD", duration=copy, delay=0)
            if collective:
                b.collective(duration=collective, stream="7", delay=0)
            with b.op("aten::mm", head=0, tail=0):
                b.launch("gemm", duration=kernel or 1, delay=0)
            b.wait(begin + step - b.now)
    return b.build()


def holds(trace: Trace) -> str:
    """The code of the one regime that holds."""
    outcomes = {code: outcome(code, trace) for code in CODES}
    (code,) = [code for code, result in outcomes.items() if isinstance(result, Found)]
    assert all(isinstance(result, Clear) for other, result in outcomes.items() if other != code)
    return code


@pytest.mark.parametrize(
    ("code", "trace"),
    [
        ("REG101", run(kernel=100)),
        ("REG102", run(kernel=900)),
        ("REG103", run(copy=700, kernel=100)),
        ("REG104", run(collective=700, kernel=100)),
        ("REG105", run(kernel=500)),
    ],
)
def test_exactly_one_holds(code: str, trace: Trace) -> None:
    assert holds(trace) == code
    result = found(code, trace)
    assert title(code, result)
    assert result.gain_ns == 0


def test_a_run_on_the_cpu_cannot_be_told() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.wait(10)
    trace = b.build()
    assert holds(trace) == "REG106"
    assert title("REG106", found("REG106", trace)) == "Undetermined: the trace holds no device work."


def test_the_others_say_what_the_run_is() -> None:
    assert cleared("REG101", run(kernel=900)) == "the run is compute"
    assert cleared("REG102", run(kernel=100)) == "the run is host"


def test_the_threshold_is_a_lead_of_ten_points() -> None:
    found("REG102", run(kernel=552))
    cleared("REG102", run(kernel=545))
    found("REG105", run(kernel=545))
    found("REG101", run(kernel=450))
    cleared("REG101", run(kernel=455))


def test_the_threshold_is_forty_percent() -> None:
    # Three classes share the step: 400 us of copies lead by 10 points, 390 us do not reach the share.
    found("REG103", run(copy=404, kernel=296))
    cleared("REG103", run(copy=398, kernel=301))
    assert regime_of({"host": 0.40, "compute": 0.30, "transfer": 0.30}) == "host"
    assert regime_of({"host": 0.39, "compute": 0.29, "transfer": 0.29}) == "mixed"


def test_the_threshold_of_what_cannot_be_told_is_a_fifth() -> None:
    assert regime_of({"host": 0.80, "unknown": 0.20}) == "host"
    assert regime_of({"host": 0.79, "unknown": 0.21}) == "undetermined"
    assert regime_of({}) == "undetermined"


def test_a_collective_that_spins_while_the_host_is_behind_is_the_hosts_time() -> None:
    b = TraceBuilder()
    for _ in range(4):
        begin = b.now
        with b.step(head=0, tail=0):
            b.collective(duration=900, delay=0)
            b.wait(begin + 950 - b.now)
            with b.op("aten::mm", head=0, tail=0):
                b.launch("gemm", duration=40, delay=0)
            b.wait(begin + 1000 - b.now)
    trace = b.build()
    assert holds(trace) == "REG101"
    assert "collectives are spinning" in title("REG101", found("REG101", trace))


def test_a_busy_device_that_waits_too_says_so() -> None:
    assert "it also waits for the host" in title("REG102", found("REG102", run(kernel=800)))
    assert "it also waits" not in title("REG102", found("REG102", run(kernel=950)))


def test_a_device_that_also_copies_is_not_said_to_be_idle_or_busy_computing_then() -> None:
    said = title("REG102", found("REG102", run(kernel=600, copy=350)))
    assert "the GPU computes 60 % of every" in said
    assert "copies or collectives that overlap with nothing take another 35 %" in said
    assert "copies" not in title("REG102", found("REG102", run(kernel=900, copy=60)))


def test_with_the_time_without_the_profiler_the_device_keeps_its_part() -> None:
    trace = run(kernel=400)
    assert Facts(trace).regime.name == "host"
    # 400 of 500 us: what the profiler added was the host's.
    found("REG102", trace, unprofiled_us=500)
    cleared("REG101", trace, unprofiled_us=500)
