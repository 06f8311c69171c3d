"""DIS102: one rank comes last."""

from __future__ import annotations

import pytest

from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable
from lanewise.measure.facts import Facts
from lanewise.trace.reader import read
from tests.diagnose.distributed.jobs import checked, job, rank
from tests.diagnose.outcomes import title
from tests.support.builder import TraceBuilder
from tests.support.corpus import trace_path


def waiting_and_late(waits: float = 1000, think: float = 990) -> tuple[Facts, Facts]:
    return rank(0, waits=waits), rank(1, think=think, waits=5)


def test_names_the_late_rank_and_how_long_the_others_wait() -> None:
    waiting, late = waiting_and_late()
    finding = checked("DIS102", job(waiting, late))
    assert isinstance(finding, Found)
    # Four collectives of 1000 us of which 5 us are the transfer.
    assert title("DIS102", finding).startswith(
        "Rank 1 comes last to 100 % of the collectives; the others wait for it 3.98 ms"
    )
    assert finding.gain_ns > 3_000_000


def test_the_gain_is_no_more_than_the_others_allow() -> None:
    late = rank(1, think=1000, waits=5)
    # The waiting rank's host needs as long by itself: it hides its waiting under its own work.
    busy = rank(0, think=980, waits=100)
    finding = checked("DIS102", job(busy, late))
    assert isinstance(finding, Found)
    assert finding.gain_ns < 0.05 * busy.steps.period_ns


def test_the_late_rank_does_not_claim_the_time_twice() -> None:
    waiting, late = waiting_and_late()
    finding = checked("DIS102", job(late, waiting))
    assert isinstance(finding, Found)
    assert finding.gain_ns == 0
    assert finding.values["gain"].value > 3_000_000  # type: ignore[operator]


def test_fires_from_five_percent_of_the_step() -> None:
    # A step of about 4,100 us; four waits of 55 and of 45 us.
    slow = rank(1, think=1000, waits=5)
    assert isinstance(checked("DIS102", job(rank(0, think=1000, waits=60), slow)), Found)
    assert isinstance(checked("DIS102", job(rank(0, think=1000, waits=50), slow)), Clear)


def test_ranks_that_come_last_in_turn_are_no_stragglers() -> None:
    def alternating(number: int) -> Facts:
        b = TraceBuilder()
        for _ in range(4):
            with b.step():
                for i in range(4):
                    b.launch("gemm", duration=20)
                    b.collective(duration=500 if i % 2 == number else 5, rank=number)
                b.synchronize()
        return Facts(b.build())

    assert isinstance(checked("DIS102", job(alternating(0), alternating(1))), Clear)


def test_two_collectives_per_step_are_too_few() -> None:
    pair = rank(0, waits=1000, collectives=2), rank(1, think=990, collectives=2)
    assert isinstance(checked("DIS102", job(*pair)), NotApplicable)


def test_one_rank_alone_asks_for_the_others() -> None:
    outcome = checked("DIS102", rank(0, waits=1000))
    assert isinstance(outcome, NeedsCapture)
    assert "other ranks" in outcome.record


def test_without_collectives_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    assert isinstance(checked("DIS102", Facts(b.build())), NotApplicable)


@pytest.mark.parametrize(
    ("name", "late", "low_ms", "high_ms"),
    [
        ("08_ddp_good", 0, 5.5, 6.5),
        ("08_ddp_straggler_rank1_8ms", 1, 28, 33),
        ("08_fsdp2", 1, 0, 0.1),
        ("08_manual_allreduce_no_overlap", 0, 0.5, 1.5),
    ],
)
def test_real_pairs(name: str, late: int, low_ms: float, high_ms: float) -> None:
    traces = [read(trace_path(f"{name}_rank{number}"), cache=False) for number in range(2)]
    other = Facts(traces[1 - late], peers=[Facts(traces[late])])
    findings = {finding.code: finding for finding in diagnose(other)[0]}
    assert findings["DIS102"].values["late"].value == late
    assert low_ms * 1e3 <= findings["DIS102"].alone_us_per_step <= high_ms * 1e3
    # Hardly any of it is data on its way: 0.5 to 2.7 % of the step.
    assert "DIS101" not in findings
