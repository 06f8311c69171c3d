"""DIS101: data on its way and nothing computed meanwhile."""

from __future__ import annotations

import pytest

from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable
from lanewise.measure.facts import Facts
from tests.diagnose.distributed.jobs import checked, job, rank
from tests.diagnose.outcomes import title
from tests.support.builder import TraceBuilder


def transfer(number: int, *, waits: float = 100, compute: float = 50, beside: bool = False) -> Facts:
    """A kernel and a collective that the next kernel needs; or one that another stream's kernel runs beside."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(3):
                b.launch("gemm", duration=compute, call=1, delay=2)
                b.collective(elements=1_000_000, duration=waits, rank=number, stream="20" if beside else "7", call=1)
    return Facts(b.build())


def test_costs_the_exposed_transfer() -> None:
    finding = checked("DIS101", job(transfer(0), transfer(1)))
    assert isinstance(finding, Found)
    assert finding.gain_ns == pytest.approx(300_000, rel=0.05)
    assert title("DIS101", finding).startswith(
        "3 collectives per step without overlapping computation: data moves for 300.0 us"
    )


def test_waiting_is_not_transfer() -> None:
    outcome = checked("DIS101", job(transfer(0), transfer(1, waits=5)))
    assert isinstance(outcome, Clear)
    assert "the rest is waiting" in outcome.reason


def test_computation_hides_it() -> None:
    pair = [transfer(number, waits=100, compute=200, beside=True) for number in range(2)]
    assert isinstance(checked("DIS101", job(*pair)), Clear)


def test_fires_from_ten_percent_of_the_step() -> None:
    assert isinstance(checked("DIS101", job(*(transfer(n, waits=11, compute=89) for n in range(2)))), Found)
    assert isinstance(checked("DIS101", job(*(transfer(n, waits=9, compute=91) for n in range(2)))), Clear)


def test_one_rank_alone_cannot_tell_moving_from_waiting() -> None:
    outcome = checked("DIS101", transfer(0))
    assert isinstance(outcome, NeedsCapture)
    assert "waiting for a late rank" in outcome.record
    assert isinstance(checked("DIS101", transfer(0, waits=5, compute=95)), Clear)


def test_ranks_of_other_jobs_do_not_match() -> None:
    assert isinstance(checked("DIS101", job(transfer(0), rank(1, elements=77))), NeedsCapture)


def test_without_collectives_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    assert isinstance(checked("DIS101", Facts(b.build())), NotApplicable)
