"""Joins between launches, device work and operators."""

from __future__ import annotations

from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder


def test_device_work_is_joined_to_its_launch_and_operator() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::linear"), b.op("aten::addmm") as inner:
        call, kernel = b.launch("gemm")
    trace = b.build()
    assert trace.device_work.tolist() == [kernel]
    assert trace.links.launch.tolist() == [call]
    assert trace.links.operator.tolist() == [inner]
    assert trace.links.orphan.tolist() == [0]
    assert trace.steps.of_event[kernel] == 0


def test_a_graph_launch_owns_all_its_nodes() -> None:
    b = TraceBuilder()
    with b.step():
        call, *nodes = b.launch(["a", "b", "c"])
    trace = b.build()
    assert trace.links.launch.tolist() == [call] * 3
    assert trace.links.graph_nodes.all()
    assert trace.links.device_count_of_launch[call] == len(nodes)


def test_work_from_before_the_recording_is_a_head_orphan_of_no_step() -> None:
    b = TraceBuilder()
    early = b.kernel("early", 0, 5)
    with b.step(), b.op("aten::mm"):
        b.launch("gemm")
    b.kernel("lost", 200, 5)
    trace = b.build()
    assert trace.links.orphan.tolist() == [1, 0, 2]
    assert trace.steps.of_event[early] == -1


def test_a_correlation_id_used_twice_prefers_the_call_just_before() -> None:
    b = TraceBuilder()
    with b.step():
        first = b.call("cudaLaunchKernel", correlation=9)
        b.kernel("k", 10, 5, correlation=9)
        b.wait(50)
        second = b.call("cudaLaunchKernel", correlation=9)
        b.kernel("k", 80, 5, correlation=9)
    trace = b.build()
    assert trace.links.launch.tolist() == [first, second]
    assert trace.links.ambiguous == 2


def test_external_ids_that_copy_the_correlation_are_no_link() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add") as unrelated:
        pass
    for n in range(200):
        b.call("cudaLaunchKernel", correlation=1000 + n)
        b.kernel("k", b.now, 1, correlation=1000 + n)
    b._events[unrelated]["external_id"] = 1000
    for event in b._events:
        if event["correlation"] > 0:
            event["external_id"] = event["correlation"]
    trace = b.build()
    assert not trace.links.external_id_usable
    assert (trace.links.operator == -1).all()


def test_flow_arrows_join_where_correlation_ids_are_missing() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm") as op:
        call = b.call("cudaLaunchKernel", correlation=-1)
        kernel = b.kernel("gemm", 20, 5)
    category = b.text("ac2g")
    b.row("flows", id=5, category=category, end=0, time=b._events[call]["start"], lane=b._events[call]["lane"])
    b.row("flows", id=5, category=category, end=1, time=b._events[kernel]["start"], lane=b._events[kernel]["lane"])
    trace = b.build()
    assert trace.links.launch.tolist() == [call]
    assert trace.links.operator.tolist() == [op]


def test_backward_belongs_to_the_latest_innermost_forward_row_of_its_number() -> None:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::to", sequence=7, forward_thread=0):
            pass
        with (
            b.op("aten::conv2d", sequence=7, forward_thread=0),
            b.op("aten::convolution", sequence=7, forward_thread=0) as inner,
        ):
            b.launch("conv")
        b.thread = "200"
        with b.op("ConvolutionBackward0", sequence=7, forward_thread=1) as backward:
            b.launch("dgrad")
    trace = b.build()
    assert trace.links.forward_of[backward] == inner
    assert (trace.links.forward_of >= 0).sum() == 1


def test_roles_are_found_under_versioned_names() -> None:
    b = TraceBuilder()
    b.slice("cudaStreamSynchronize_v3020", Kind.RUNTIME, 0, 1)
    b.slice("hipLaunchKernel", Kind.RUNTIME, 2, 1)
    trace = b.build()
    assert len(trace.links.calls("wait")) == 1
    assert len(trace.links.calls("launch")) == 1


def test_an_ordinary_launch_starts_one_kernel() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        call, kernel = b.launch("gemm")
        correlation = b._correlation
        b.wait(100)
    again = b.kernel("gemm", 200, 5, correlation=correlation)
    trace = b.build()
    by_event = dict(zip(trace.device_work.tolist(), trace.links.launch.tolist(), strict=True))
    assert by_event == {kernel: call, again: -1}


def test_a_row_that_a_merged_file_repeats_keeps_its_launch() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
        correlation = b._correlation
    b.slice("gemm", Kind.KERNEL, 9, 5, side="device", process="0", thread="7", correlation=correlation)
    assert len(set(b.build().links.launch.tolist())) == 1


def test_an_external_id_joins_work_to_the_launches_of_its_operator_in_their_order() -> None:
    b = TraceBuilder()
    with b.step():
        operator = b.slice("aten::mm", Kind.OPERATOR, b.now, 100, external_id=7)
        calls = [
            b.slice("cudaLaunchKernel", Kind.RUNTIME, b.now + 10 * n, 5, external_id=7, correlation=-1)
            for n in range(2)
        ]
        b.now += 100
    kernels = [
        b.slice("gemm", Kind.KERNEL, 60 + 50 * n, 40, side="device", process="0", thread="7", external_id=7)
        for n in range(3)
    ]
    trace = b.build()
    by_event = dict(zip(trace.device_work.tolist(), trace.links.launch.tolist(), strict=True))
    assert by_event == {kernels[0]: calls[0], kernels[1]: calls[1], kernels[2]: -1}
    assert trace.links.operator.tolist() == [operator] * 3
