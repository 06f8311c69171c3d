"""The critical path of a step: what its end waited for, back to its beginning."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.measure.facts import Facts
from lanewise.measure.regime.critical_path import CriticalPath
from tests.support.builder import TraceBuilder
from tests.support.corpus import facts_of


def path(b: TraceBuilder) -> CriticalPath:
    found = Facts(b.build()).critical_path()
    assert sum(found.time.values()) == found.end - found.start
    assert not found.truncated
    for earlier, later in zip(found.segments, found.segments[1:], strict=False):
        assert earlier.end == later.start
    return found


def test_a_device_bound_step_is_its_kernels() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(4):
                with b.op("aten::mm"):
                    b.launch("gemm", duration=200)
    found = path(b)
    assert found.shares["kernel"] == 1.0
    # Eight kernels ran back to back behind two steps of launches: one segment for those of the last step.
    assert [(segment.kind, segment.events) for segment in found.segments] == [("kernel", 4)]


def test_a_host_bound_step_is_host_work_launches_and_the_last_kernel() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(3):
                with b.op("aten::add", head=20, tail=20):
                    b.launch("add", duration=2, call=6, delay=10)
    found = path(b)
    assert found.time["kernel"] == 2_000
    assert found.time["latency"] == 10_000
    # Two calls lie wholly on the path; the third one's work starts while it runs.
    assert found.time["launch"] == 12_000
    assert found.shares["host"] > 0.7


def test_a_readback_leads_from_the_host_to_the_device_it_waited_for() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=500)
            b.synchronize()
            b.wait(100)
            with b.op("aten::add"):
                b.launch("add", duration=10)
    found = path(b)
    assert [segment.kind for segment in found.segments][-5:] == ["kernel", "wait", "host", "latency", "kernel"]
    assert found.time["kernel"] == 510_000
    assert 100_000 < found.time["host"] < 110_000


def test_work_held_back_by_another_stream_waits_for_that_stream() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.launch("ncclDevKernel_AllReduce", duration=800, stream="20")
            until = b.now + 803
            b.launch("gemm", duration=50, delay=until - b.now + 5)
            b.synchronize()
    found = path(b)
    assert found.time["communication"] == 800_000
    assert found.time["kernel"] == 50_000


def test_a_pageable_copy_is_a_copy_not_a_wait() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::copy_"):
                b.copy("HtoD", source="pageable", duration=900)
            with b.op("aten::mm"):
                b.launch("gemm", duration=50)
            b.synchronize()
    found = path(b)
    assert found.time["copy"] == 900_000
    assert found.time["kernel"] == 50_000
    assert found.time["wait"] < 5_000


def test_a_real_straggler_waits_for_communication_and_the_late_rank_for_its_host() -> None:
    waiting = facts_of("08_ddp_straggler_rank1_8ms_rank0").critical_path().shares
    late = facts_of("08_ddp_straggler_rank1_8ms_rank1").critical_path().shares
    assert waiting["communication"] > 0.9
    assert late["host"] > 0.9


@pytest.mark.parametrize(
    "name",
    [
        "04_resnet50_model_to_device_each_step",
        "05_llama_generate",
        "03_mnist_train_stack",
        "07_bad_item_loop",
        "08_fsdp2_rank0",
    ],
)
def test_every_nanosecond_of_a_real_step_lies_on_the_path_once(name: str) -> None:
    facts = facts_of(name)
    for step in range(len(facts.trace.steps)):
        found = facts.critical_path(step)
        assert sum(found.time.values()) == found.end - found.start
        assert not found.truncated


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["launch", "copy", "pageable", "wait", "think"]), st.floats(0, 80), st.booleans()),
        min_size=1,
        max_size=20,
    )
)
def test_any_order_of_work_adds_up(program: list[tuple[str, float, bool]]) -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            for what, length, side in program:
                stream = "20" if side else "7"
                if what == "launch":
                    b.launch("kernel", duration=length, stream=stream)
                elif what == "copy":
                    b.copy("HtoD", duration=length + 0.01, stream=stream)
                elif what == "pageable":
                    b.copy("DtoH", destination="pageable", duration=length + 0.01, stream=stream)
                elif what == "wait":
                    b.synchronize()
                else:
                    b.wait(length)
    path(b)


def test_the_path_stays_on_a_stream_whatever_else_ends_meanwhile() -> None:
    b = TraceBuilder()
    with b.step():
        first = b.launch("first", duration=1_000)[1]
        beside = b.launch("beside", duration=1_002, stream="9")[1]
        second = b.launch("second", duration=1_000, delay=1_008)[1]
    facts = Facts(b.build())
    # What has nothing to do with the stream ends while it pauses.
    assert facts.trace.end[first] < facts.trace.end[beside] < facts.trace.start[second]
    on_path = {part.event for part in facts.critical_path().segments if part.kind == "kernel"}
    assert on_path == {first, second}


def test_a_launch_onto_a_free_stream_waits_for_the_host_though_another_stream_ended_since() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("long", duration=500, stream="9")
        b.wait(500)
        b.launch("gemm", duration=300, delay=8)
    path = Facts(b.build()).critical_path()
    assert path.time["host"] > 400_000
