"""What the step of a job would be: ranks replayed with other links and with even devices."""

from __future__ import annotations

import msgspec
import pytest

from lanewise.measure.core import Core
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.distributed.together.job_what_ifs import what_ifs
from lanewise.measure.distributed.together.matched_communications import match
from tests.diagnose.distributed.jobs import rank
from tests.support.made_ranks import exchanged, made_rank

US = 1000.0


def steps_of(*cores: Core, timed_us: float) -> dict[str, float]:
    """The step with each change, us, of a job in which a step was timed."""
    summaries = [msgspec.structs.replace(summarise(core), timed_ns=timed_us * US) for core in cores]
    job = compare_ranks(summaries)
    return {one.what: one.step_ns / US for one in what_ifs(job, match(summaries), lambda row: cores[row])}


def test_links_and_hidden_communication() -> None:
    """Four products of 2 ms in a step, each with 0.5 ms of moving data behind it: the device binds."""
    cores = [rank(number, think=1.0, compute=2000.0, waits=500.0) for number in range(2)]
    assert steps_of(*cores, timed_us=10_100.0) == {
        "communication wholly hidden": pytest.approx(8100, abs=60),
        "links twice as fast": pytest.approx(9100, abs=60),
        "links half as fast": pytest.approx(12_100, abs=60),
    }


def test_even_devices_and_no_wait_counts_as_moving() -> None:
    """Rank 1 computes 1 ms longer before each of four collectives, and rank 0 waits for it so long."""
    cores = [
        rank(0, think=1.0, compute=2000.0, waits=1500.0),
        rank(1, think=1.0, compute=3000.0, waits=500.0),
    ]
    steps = steps_of(*cores, timed_us=14_100.0)
    assert steps["device work evenly on all ranks"] == pytest.approx(12_100, abs=80)
    assert steps["communication wholly hidden"] == pytest.approx(12_100, abs=80)


def test_without_devices_or_anything_in_common_there_is_nothing_to_replay() -> None:
    def unread(_: int) -> Core:
        raise AssertionError("a trace was read")

    on_cpu = [made_rank(number, [exchanged("gloo:all_reduce", 0, 9, hidden=-1)]) for number in range(2)]
    assert what_ifs(compare_ranks(on_cpu), match(on_cpu), unread) == []
    alone = [made_rank(number, device_ns=1000) for number in range(2)]
    assert what_ifs(compare_ranks(alone), match(alone), unread) == []
