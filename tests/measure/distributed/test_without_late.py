"""What a job gains without what a late rank does more."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from lanewise.measure.core import Core
from lanewise.measure.distributed.by_itself import by_itself
from lanewise.measure.distributed.late_ranks import Excess, compare_ranks
from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.distributed.together.matched_communications import match
from lanewise.measure.distributed.without_late import Delay, Timed, as_timed, delay_of, delays_of
from lanewise.replay.simulate import simulate
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder
from tests.support.corpus import REPOSITORY

STAGES = REPOSITORY / "tests" / "data" / "ranks2"


def rank(number: int, copies: int) -> Core:
    """Steps of 2 ms on the host, with copies at the beginning that take 1 ms each."""
    b = TraceBuilder()
    for _ in range(6):
        with b.step():
            for _ in range(copies):
                with b.op("aten::copy_"):
                    b.copy(source="pageable", duration=1000.0)
            for _ in range(4):
                b.wait(300.0)
                with b.op("aten::mm", head=100.0, tail=100.0):
                    b.launch("gemm", duration=50.0)
            b.collective(elements=1_000_000, duration=20.0, rank=number)
            b.synchronize("cudaDeviceSynchronize")
    return Core(b.build())


def test_a_copy_that_holds_the_host_goes_with_its_call() -> None:
    """Five copies instead of one: from pageable memory the host sits in each until it is over."""
    cores = [rank(0, 1), rank(1, 5)]
    job = compare_ranks([summarise(core) for core in cores])
    (late,) = job.late
    assert late.index == 1
    assert late.more_ns == pytest.approx(4e6, rel=0.05)
    delay = delay_of(cores[1], late, float(job.host_factor[1]))
    assert delay.gain_ns == pytest.approx(4e6, rel=0.05)


@pytest.mark.parametrize("together", [False, True])
def test_where_several_hosts_make_up_the_step_copies_take_as_long_as_recorded(together: bool) -> None:
    """Recording makes them no longer: only how fast their own host was while its step was timed says that they were."""
    cores = [rank(0, 1), rank(1, 5)]
    job = compare_ranks([summarise(core) for core in cores])
    alone = delay_of(cores[1], job.late[0], 1.0).step_ns
    delay = delay_of(cores[1], job.late[0], 1.0, timed=Timed(1.3 * alone, together=together))
    assert delay.host_scale > 1.25
    (late,) = as_timed(job, delay).late
    assert late.more_ns == pytest.approx(job.late[0].more_ns * (1.0 if together else delay.host_scale))


def busy(number: int, more: float, plant: Callable[[TraceBuilder], None]) -> Core:
    """Steps whose host work takes 4 ms as recorded, and what is planted in one of the ranks."""
    b = TraceBuilder(metadata={"distributedInfo": {"rank": number, "world_size": 2}})
    for _ in range(6):
        with b.step():
            if more:
                plant(b)
            for _ in range(40):
                b.wait(10.0)
                with b.op("aten::mm", head=40.0, tail=40.0):
                    b.launch("gemm", duration=20.0)
            b.collective(elements=1_000_000, duration=20.0, rank=number)
            b.synchronize("cudaDeviceSynchronize")
    return Core(b.build())


def asleep(b: TraceBuilder) -> None:
    b.wait(2000.0)


def operators(b: TraceBuilder) -> None:
    for _ in range(20):
        with b.op("aten::sort", head=50.0, tail=50.0):
            pass


def short_calls(b: TraceBuilder) -> None:
    for _ in range(400):
        with b.op("aten::add_", head=2.0, tail=2.0), b.op("aten::to", head=1.0):
            pass


@pytest.mark.parametrize(("plant", "scales"), [(asleep, False), (operators, True), (short_calls, True)])
def test_a_timed_step_says_what_recording_cost_the_host(plant: Callable[[TraceBuilder], None], scales: bool) -> None:
    """A host that recording costs less or more than usual: its replay takes what was timed, asleep it is as long."""
    cores = [busy(0, 0, plant), busy(1, 1, plant)]
    job = compare_ranks([summarise(core) for core in cores])
    (late,) = job.late
    computed = delay_of(cores[1], late, 1.0)
    assert computed.step_ns - computed.gain_ns == pytest.approx(simulate(by_itself(cores[0]).graph).step_ns, rel=0.05)
    timed_ns = 1.3 * computed.step_ns
    delay = delay_of(cores[1], late, 1.0, timed=Timed(timed_ns))
    (mine,) = as_timed(job, delay).late
    assert delay.step_ns == pytest.approx(timed_ns, rel=0.02)
    assert delay.host_scale > 1.25
    assert mine.more_ns == pytest.approx(late.more_ns * (delay.host_scale if scales else 1.0), rel=0.02)
    assert delay.gain_ns == pytest.approx(computed.gain_ns * (delay.host_scale if scales else 1.0), rel=0.05)


def at_speeds(number: int, calls: int, *speeds: tuple[float, float]) -> Core:
    """Steps with so many short calls; for these and for the rest the host takes so many times as long in each in turn."""
    b = TraceBuilder(metadata={"distributedInfo": {"rank": number, "world_size": 2}})
    for loop, rest in speeds * (12 // len(speeds)):
        with b.step():
            b.synchronize("cudaDeviceSynchronize")
            for _ in range(calls):
                with b.op("aten::add_", head=2.0 * loop, tail=2.0 * loop), b.op("aten::to", head=loop):
                    pass
            for _ in range(40):
                b.wait(10.0 * rest)
                with b.op("aten::mm", head=40.0 * rest, tail=40.0 * rest):
                    b.launch("gemm", duration=20.0)
            b.collective(elements=1_000_000, duration=20.0, rank=number)
    return Core(b.build())


@pytest.mark.parametrize(("slow_steps", "longer"), [(0, 1.0), (5, 1.0), (12, 1.7)])
def test_a_loop_of_short_calls_is_as_long_as_in_most_timed_steps(slow_steps: int, longer: float) -> None:
    """A host that is slow for a while makes the loop 1.7 times as long, and the rest 1.2 times."""
    quick, slow = (1.0, 1.0), (1.7, 1.2)
    alone = at_speeds(1, 800, quick)
    job = compare_ranks([summarise(at_speeds(0, 0, quick)), summarise(alone)])
    computed = delay_of(alone, job.late[0], 1.0)
    loop_ns, rest_ns = computed.gain_ns, computed.step_ns - computed.gain_ns

    cores = [at_speeds(0, 0, quick, slow), at_speeds(1, 800, quick, slow)]
    own = [rest_ns + loop_ns] * (20 - slow_steps) + [1.2 * rest_ns + 1.7 * loop_ns] * slow_steps
    as_timed_in_20 = {"timed_ns": sum(own) / len(own), "own_timed_ns": own, "behind_ns": [0.0] * len(own)}
    ranks = [msgspec.structs.replace(summarise(core), **as_timed_in_20) for core in cores]
    job, _ = delays_of(compare_ranks(ranks), match(ranks), lambda row: cores[row])
    assert job.late[0].more_ns == pytest.approx(longer * loop_ns, rel=0.1)


@pytest.mark.parametrize(("kind", "rows", "scale"), [("loader", 64, 1.0), ("loader", 128, 1.3), ("operator", 64, 1.3)])
def test_code_without_rows_of_its_own_takes_as_long(kind: str, rows: int, scale: float) -> None:
    """A loader that waits for 4 ms among the 64 rows that it has on the other ranks, too."""
    context = Context(kind, "enumerate(DataLoader)")
    more = Excess(context, (context,), mine_ns=5e6, others_ns=1e6, more_ns=4e6, mine_count=rows, others_count=64)
    assert Delay(20e6, 4e6, host_scale=1.3).of(more) == scale


def test_a_step_that_no_host_explains_scales_nothing() -> None:
    cores = [busy(0, 0, asleep), busy(1, 1, asleep)]
    job = compare_ranks([summarise(core) for core in cores])
    delay = delay_of(cores[1], job.late[0], 1.0, timed=Timed(100e6))
    assert delay.host_scale == 1.0
    assert as_timed(job, delay) is job


def behind(number: int, more_ms: float) -> Core:
    """Steps that begin with the wait for the device, which one rank gives more to do."""
    b = TraceBuilder(metadata={"distributedInfo": {"rank": number, "world_size": 2}})
    for _ in range(6):
        with b.step():
            b.synchronize("cudaDeviceSynchronize")
            if more_ms:
                b.launch("large_gemm", duration=more_ms * 1e3)
            for _ in range(40):
                b.wait(10.0)
                with b.op("aten::mm", head=40.0, tail=40.0):
                    b.launch("gemm", duration=20.0)
            b.collective(elements=1_000_000, duration=20.0, rank=number)
    return Core(b.build())


@pytest.mark.parametrize("own_ms", [1.6, 2.4, 3.2])
def test_behind_a_late_device_the_host_takes_what_it_was_timed_to_take(own_ms: float) -> None:
    """The step, a little longer than computed, is the device's: without its kernels it is as long as the host's part."""
    cores = [behind(0, 0.0), behind(1, 12.0)]
    job = compare_ranks([summarise(core) for core in cores])
    (late,) = job.late
    assert late.more_ns == pytest.approx(12e6)
    step_ns = 1.02 * delay_of(cores[1], late, 1.0).step_ns
    delay = delay_of(cores[1], late, 1.0, timed=Timed(step_ns, own_ms * 1e6))
    assert delay.step_ns - delay.gain_ns == pytest.approx(own_ms * 1e6, rel=0.05)
    # The step alone says nothing of the host.
    assert delay_of(cores[1], late, 1.0, timed=Timed(step_ns)).host_scale == 1.0


def test_the_step_of_a_host_that_runs_ahead_says_nothing_of_it() -> None:
    cores = [busy(0, 0, asleep), busy(1, 1, asleep)]
    job = compare_ranks([summarise(core) for core in cores])
    step_ns = delay_of(cores[1], job.late[0], 1.0).step_ns
    longer, shorter = (
        delay_of(cores[1], job.late[0], 1.0, timed=Timed(share * step_ns, ahead=True)) for share in (1.2, 0.9)
    )
    assert longer.host_scale == 1.0
    # But it takes no longer than that.
    assert shorter.step_ns == pytest.approx(0.9 * step_ns, rel=0.02)


def test_a_pipeline_without_its_late_stage_waits_for_the_other() -> None:
    """Two stages on H200s, of which one slept for 6 ms: timed, a step took 13.9 ms, and 9.6 without. They were recorded
    over other steps; the n-th of one is taken for the n-th of the other, as all are alike."""
    cores = [Core(read(path, cache=False)) for path in sorted(STAGES.glob("*.json.gz"))]
    first, second = (summarise(core) for core in cores)
    apart = first.steps[0] - second.steps[0]
    as_second = [one._replace(step=one.step - apart) for one in first.communications]
    first = msgspec.structs.replace(first, communications=as_second, steps=second.steps)
    ranks = [msgspec.structs.replace(one, timed_ns=13.9e6) for one in (first, second)]
    job, (delay,) = delays_of(compare_ranks(ranks), match(ranks), lambda row: cores[row])
    (late,) = job.late
    assert late.index == 1
    assert late.more_ns == pytest.approx(6.17e6, rel=0.03)
    assert job.step_ns - delay.gain_ns == pytest.approx(9.63e6, rel=0.04)
