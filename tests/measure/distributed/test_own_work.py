"""What a rank works on by itself, by context; waits and what recording cost are no work."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.own.own_work import OwnWork, own_work
from lanewise.measure.facts import Facts
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder


def work_of(b: TraceBuilder) -> OwnWork:
    return own_work(Facts(b.build()))


def times(work: OwnWork) -> dict[Context, float]:
    """Typical time by context, us."""
    return dict(zip(work.contexts, np.median(work.time, axis=0) / 1e3, strict=True))


def one(work: OwnWork, kind: str, **fields: str) -> float:
    """Time of the one context with these fields, us."""
    found = [
        time
        for context, time in times(work).items()
        if context.kind == kind and all(getattr(context, name) == value for name, value in fields.items())
    ]
    assert len(found) == 1, times(work)
    return found[0]


def test_a_pause_between_operators_is_python_between_them() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=20)
            b.wait(3000)
            with b.op("aten::add"):
                b.launch("add", duration=20)
    assert one(work_of(b), "python", name="aten::mm", until="aten::add") == pytest.approx(3000, rel=0.01)


@pytest.mark.parametrize(("each_us", "left"), [(1.0, 0.38), (1.9, 0.38), (3.0, 0.5), (10.0, 0.61)])
def test_of_calls_as_short_as_their_rows_cost_less_is_left(each_us: float, left: float) -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(100):
                with b.op("aten::add_", head=each_us - 1.0, tail=1.0):
                    pass
    assert one(work_of(b), "operator", name="aten::add_") == pytest.approx(100 * each_us * left, rel=0.01)


def test_a_loop_is_as_dense_as_its_calls_those_in_them_and_the_time_between_are_together() -> None:
    """Each call alone is longer than its own row costs twice; what records all that is in it costs three times as much."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(100):
                with b.op("aten::add_", head=2.0, tail=2.0):
                    for _ in range(4):
                        with b.op("aten::to", head=0.5, tail=0.0):
                            pass
                b.wait(2.0)
    work = work_of(b)
    assert one(work, "operator", name="aten::add_") == pytest.approx(100 * 4.0 * 0.38, rel=0.01)
    assert one(work, "copy", name="aten::to") == pytest.approx(400 * 0.5 * 0.38, rel=0.01)
    assert one(work, "python", name="aten::add_", until="aten::add_") == pytest.approx(100 * 2.0 * 0.38, rel=0.05)


@pytest.mark.parametrize("times_as_long", [1.0, 2.0])
def test_a_loop_is_as_dense_on_a_host_that_is_half_as_fast(times_as_long: float) -> None:
    """What records it takes twice as long there, too: the share that recording makes up stays the same."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(100):
                with b.op("aten::add_", head=0.8 * times_as_long, tail=0.8 * times_as_long):
                    for _ in range(2):
                        with b.op("aten::to", head=0.8 * times_as_long, tail=0.0):
                            pass
                b.wait(1.6 * times_as_long)
    work = work_of(b)
    spent = sum(time for context, time in times(work).items() if "aten::to" in (context.name, context.until))
    assert spent == pytest.approx(100 * 1.6 * times_as_long * 0.38, rel=0.03)


def test_calls_of_the_driver_make_no_loop_dense() -> None:
    """A launch takes long by itself: half is left of such operators at least, however much their rows cost."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(100):
                with b.op("aten::mul_", head=1.0, tail=1.0):
                    b.launch("mul", duration=1.0)
    work = work_of(b)
    assert one(work, "operator", name="aten::mul_") == pytest.approx(100 * 2.0 * 0.5, rel=0.1)


@pytest.mark.parametrize(("before_us", "takes_us"), [(0.0, 1100.0), (900.0, 1000.0)])
def test_of_a_copy_from_pageable_memory_the_host_also_does_what_comes_before_it(
    before_us: float, takes_us: float
) -> None:
    """The host puts the first part ready before the device begins, where the device has nothing else to do."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            if before_us:
                with b.op("aten::mm"):
                    b.launch("gemm", duration=before_us)
            with b.op("aten::copy_"):
                b.copy(source="pageable", duration=1000.0, delay=111.0, call=before_us + 1113.0)
    assert one(work_of(b), "copy", until="device") == pytest.approx(takes_us, rel=0.01)


def test_a_wait_for_the_device_is_no_work() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=5000)
            b.synchronize()
    work = work_of(b)
    assert sum(time for context, time in times(work).items() if not context.on_device) < 200
    assert one(work, "kernel", name="gemm") == 5000


def test_a_function_is_named_with_its_line_and_sleep_and_collection_by_themselves() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.frame("train.py(7): log"):
            b.wait(900)
            with b.frame("<built-in function sleep>"):
                b.wait(2000)
            with b.frame("<built-in function collect>"):
                b.wait(1500)
            with b.op("aten::mm"):
                b.launch("gemm")
    work = work_of(b)
    # Of what is spent in frames, the price of a frame is taken off.
    assert one(work, "python", name="log (train.py:7)") == pytest.approx(900, rel=0.05)
    assert one(work, "sleep", place="log (train.py:7)") == pytest.approx(2000, rel=0.01)
    assert one(work, "collection", place="log (train.py:7)") == pytest.approx(1500, rel=0.01)


def test_what_happens_inside_a_loader_is_the_loader() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Kind.ANNOTATION):
                b.wait(800)
                with b.op("aten::stack", head=100, tail=100):
                    b.wait(0)
            with b.op("aten::mm"):
                b.launch("gemm")
    assert one(work_of(b), "loader") == pytest.approx(1000, rel=0.05)


def test_a_kernel_beside_a_collective_counts_with_what_it_takes_alone() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=100)
            b.synchronize()
            b.collective(duration=400, stream="20")
            with b.op("aten::mm"):
                b.launch("gemm", duration=250)
            b.synchronize()
    work = work_of(b)
    assert one(work, "kernel", name="gemm") == 200
    assert not work.shared.any()


def test_kernels_that_all_run_beside_a_collective_are_marked() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.collective(duration=400, stream="20")
            with b.op("aten::mm"):
                b.launch("gemm", duration=250)
            b.synchronize()
    work = work_of(b)
    assert [context.name for context, shared in zip(work.contexts, work.shared, strict=True) if shared] == ["gemm"]


def cpu_step(b: TraceBuilder, *, waits: float, thinks: float) -> None:
    """A step on the CPU: it thinks, computes, and waits for a collective that another thread runs."""
    with b.step():
        b.wait(thinks)
        with b.op("aten::mm", head=500, tail=500):
            b.wait(0)
        with b.op("c10d::allreduce_"):
            b.wait(10)
        b.slice("gloo:all_reduce", Kind.ANNOTATION, b.now + 20, waits - 300, thread="77")
        b.wait(waits)
        with b.op("aten::add"):
            b.wait(10)


def test_the_pause_in_which_a_collective_on_the_cpu_runs_is_no_work() -> None:
    b = TraceBuilder(metadata={})
    for _ in range(4):
        cpu_step(b, waits=6000, thinks=2000)
    work = work_of(b)
    assert one(work, "python", until="aten::mm") == pytest.approx(2000, rel=0.02)
    assert sum(times(work).values()) == pytest.approx(2000 + 1000, rel=0.1)
