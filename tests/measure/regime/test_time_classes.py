"""Where the time of a step goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.measure.facts import Facts
from lanewise.measure.regime.time_classes import CLASSES
from tests.support.builder import TraceBuilder


def shares(facts: Facts) -> dict[str, float]:
    return {name: round(value, 2) for name, value in facts.regime.shares.items()}


def test_a_device_that_waits_for_launches_is_host_bound() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(5):
                with b.op("aten::add", head=20, tail=20):
                    b.launch("add", duration=2)
    facts = Facts(b.build())
    assert facts.regime.name == "host"
    assert shares(facts)["host"] > 0.9


def test_a_full_queue_is_device_bound_and_its_gaps_are_not_the_hosts() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(5):
                with b.op("aten::mm"):
                    b.launch("gemm", duration=400)
    facts = Facts(b.build())
    assert facts.regime.name == "compute"
    assert facts.regime.busy_share > 0.99


def test_a_pageable_copy_is_transfer_even_while_only_its_call_runs() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.copy("HtoD", source="pageable", duration=500, call=900)
    facts = Facts(b.build())
    assert facts.regime.name == "transfer"


def test_a_spinning_collective_is_communication_only_when_the_next_kernel_is_launched() -> None:
    late, ready = TraceBuilder(), TraceBuilder()
    for b, pause in ((late, 900.0), (ready, 0.0)):
        for _ in range(4):
            with b.step():
                b.launch("ncclDevKernel_AllReduce", duration=1000, stream="20")
                b.wait(pause)
                b.launch("gemm", duration=5, delay=8 if pause else 1000)
    assert Facts(late.build()).regime.name == "host"
    assert Facts(ready.build()).regime.name == "communication"


def test_work_from_before_the_recording_makes_the_head_unknown_not_idle() -> None:
    b = TraceBuilder()
    b.kernel("early", 0, 2000)
    for _ in range(3):
        with b.step():
            b.launch("gemm", duration=100)
    facts = Facts(b.build())
    assert facts.classes.backlog.there
    assert facts.steps.table["host"][0] == 0


def test_no_device_work_is_undetermined_with_a_reason() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    facts = Facts(b.build())
    assert facts.regime.name == "undetermined"
    assert "no device work" in facts.regime.reason


def test_the_unprofiled_step_time_shrinks_the_hosts_share_only() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=120, tail=0):
            b.launch("gemm", duration=40, call=2, delay=2)
    trace = b.build()
    recorded = Facts(trace)
    rebased = Facts(trace, unprofiled_ns=44_000)
    assert recorded.regime.name == "host"
    assert rebased.regime.name == "compute"
    assert rebased.steps.class_ns["compute"] == pytest.approx(recorded.steps.class_ns["compute"], rel=0.02)
    assert sum(rebased.steps.class_ns.values()) == pytest.approx(44_000)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kernel", "copy", "nccl", "pageable", "graph", "wait"]),
            st.floats(0, 80),
            st.floats(1, 200),
            st.sampled_from(["7", "20"]),
        ),
        min_size=1,
        max_size=25,
    )
)
def test_the_classes_of_every_step_sum_to_its_period(actions: list[tuple[str, float, float, str]]) -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for action, pause, duration, stream in actions:
                b.wait(pause)
                match action:
                    case "kernel":
                        b.launch("k", duration=duration, stream=stream)
                    case "copy":
                        b.copy(duration=duration, stream=stream)
                    case "nccl":
                        b.launch("ncclDevKernel_AllReduce", duration=duration, stream=stream)
                    case "pageable":
                        b.copy(source="pageable", duration=duration, stream=stream)
                    case "graph":
                        b.launch(["a", "b"], duration=duration, stream=stream)
                    case _:
                        b.synchronize()
    facts = Facts(b.build())
    table = facts.steps.table
    if facts.classes.device:
        assert np.array_equal(sum(table[name] for name in CLASSES), table["period"])
    else:
        assert not facts.classes.of_step.any()
    assert (facts.classes.of_step >= 0).all()
    assert (table["busy"] <= table["period"]).all()


def test_a_last_step_in_which_nothing_ran_is_not_steady() -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            b.launch("gemm")
    with b.step():
        pass
    assert Facts(b.build()).steps.steady.tolist() == [False, True, False]


def test_a_single_working_step_is_used_rather_than_an_empty_one() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    with b.step():
        pass
    facts = Facts(b.build())
    assert facts.steps.steady.tolist() == [True, False]
    assert facts.regime.busy_share > 0


def test_the_first_launch_tells_whether_the_device_was_busy_not_the_copy_that_waited() -> None:
    b = TraceBuilder()
    b.launch("early launch, late start", delay=5000)
    b.copy("DtoH", duration=2, delay=4900, call=5000)
    b.launch("next")
    facts = Facts(b.build())
    assert facts.classes.backlog.there


def test_a_synchronous_copy_blocks_its_caller_whatever_memory_it_names() -> None:
    b = TraceBuilder()
    with b.step():
        call = b.copy("HtoD", source="?", call=500, duration=480)[0]
        b._events[call]["name"] = b._name("hipMemcpyWithStream")
    assert Facts(b.build()).host.waiting[call]


def test_a_gap_before_work_without_a_launch_is_unknown() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("a")
        b.kernel("lost launch", 2000, 5)
        b.wait(3000)
        b.launch("b")
    assert Facts(b.build()).regime.shares["unknown"] > 0.5


def test_a_launch_call_that_takes_long_is_the_hosts_time() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.launch("slow to load", call=5000, delay=5001)
    assert Facts(b.build()).regime.name == "host"
