"""DIS102: one rank comes last."""

from __future__ import annotations

import pytest

from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.facts import Facts
from lanewise.trace.reader import read
from tests.diagnose.distributed.jobs import checked, job, rank
from tests.diagnose.outcomes import title
from tests.support.builder import TraceBuilder
from tests.support.corpus import trace_path


def waiting_and_late(waits: float = 1000, think: float = 990) -> tuple[Facts, Facts]:
    return rank(0, waits=waits), rank(1, think=think, waits=5)


def test_names_the_late_rank_and_what_it_does() -> None:
    waiting, late = waiting_and_late()
    finding = checked("DIS102", job(waiting, late))
    assert isinstance(finding, Found)
    # It thinks 980 us longer before each of four collectives.
    assert title("DIS102", finding).startswith("Rank 1 is late: its own work takes 3.92 ms more per step")
    assert "in Python that calls no operator" in title("DIS102", finding)
    assert finding.gain_ns > 3_000_000


def test_the_late_rank_does_not_claim_the_time_twice() -> None:
    waiting, late = waiting_and_late()
    finding = checked("DIS102", job(late, waiting))
    assert isinstance(finding, Found)
    assert finding.gain_ns == 0
    assert finding.values["gain"].value > 3_000_000  # type: ignore[operator]


def test_fires_from_a_share_of_the_step() -> None:
    pair = job(*waiting_and_late())
    found = checked("DIS102", pair)
    assert isinstance(found, Found)
    of_step = found.values["more"].value / compare_ranks([summarise(one) for one in (pair, *pair.peers)]).step_ns
    assert isinstance(checked("DIS102", pair, share_from=0.99 * of_step), Found)
    assert isinstance(checked("DIS102", pair, share_from=1.01 * of_step), Clear)


def test_who_comes_last_without_more_work_is_no_straggler() -> None:
    """The hosts were slowed down by the profiler, one of them twice as much: that one comes last to every collective."""
    quick, slow = rank(0, think=300, waits=300), rank(1, think=600, waits=5, stretch=2.0)
    assert isinstance(checked("DIS102", job(quick, slow)), Clear)


def test_one_rank_alone_asks_for_the_others() -> None:
    outcome = checked("DIS102", rank(0, waits=1000))
    assert isinstance(outcome, NeedsCapture)
    assert "other ranks" in outcome.record


def test_without_collectives_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    assert isinstance(checked("DIS102", Facts(b.build())), NotApplicable)


def late_rank_of(name: str) -> float | None:
    """What the other rank is told of DIS102: how much more the late one does, ms."""
    traces = [read(trace_path(f"{name}_rank{number}"), cache=False) for number in range(2)]
    findings = {one.code: one for one in diagnose(Facts(traces[0], peers=[Facts(traces[1])]))[0]}
    if "DIS102" not in findings:
        return None
    assert findings["DIS102"].values["late"].value == 1
    return float(findings["DIS102"].values["more"].value) / 1e6


@pytest.mark.parametrize("name", ["08_ddp_good", "08_fsdp2", "08_manual_allreduce_no_overlap"])
def test_real_pairs_are_even(name: str) -> None:
    """In each of them one rank comes last to nearly all collectives."""
    assert late_rank_of(name) is None


def test_the_real_straggler() -> None:
    assert late_rank_of("08_ddp_straggler_rank1_8ms") == pytest.approx(8.0, rel=0.15)
