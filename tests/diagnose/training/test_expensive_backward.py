from __future__ import annotations

from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def run(
    forward: float,
    backward: float,
    *,
    node: str = "CumsumBackward0",
    rest: float = 100.0,
    linked: bool = True,
    beside: bool = False,
    lost: int = 0,
) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::cumsum", sequence=1 if linked else -1, forward_thread=0 if linked else -1):
                b.launch("scan", duration=forward)
            with b.op("aten::other"):
                b.launch("gemm", duration=rest)
                for _ in range(lost):
                    b.call("cudaLaunchKernel")
            with b.op(f"autograd::engine::evaluate_function: {node}", sequence=1, forward_thread=1):
                if beside:
                    b.launch("ncclDevKernel_AllReduce", duration=backward + 400, stream="9", delay=1)
                b.launch("scan", duration=backward)
            b.wait(600)
    return b


def test_a_backward_far_above_its_forward() -> None:
    result = found("OPT106", run(10, 60).build())
    assert (
        title("OPT106", result) == "CumsumBackward0 takes 60.0 us of device time per step, 6.0x its forward (10.0 us)."
    )
    # Beside a host that needs 600 us more, shorter kernels give nothing.
    assert result.gain_ns == 0
    assert found("OPT106", run(10, 6_000).build()).gain_ns > 5_000_000


def test_the_thresholds() -> None:
    cleared("OPT106", run(10, 30).build())
    found("OPT106", run(10, 31).build())
    cleared("OPT106", run(1, 4, rest=200).build())  # 4 of 205 us: less than 3 %
    found("OPT106", run(1, 7, rest=200).build())


def test_attention_may_cost_more() -> None:
    node = "ScaledDotProductFlashAttentionBackward0"
    cleared("OPT106", run(10, 37, node=node).build())
    found("OPT106", run(10, 38, node=node).build())


def test_the_threshold_of_an_index_is_two_percent_and_it_needs_less_to_be_worth_a_look() -> None:
    found("OPT106", run(2, 5, node="IndexBackward0", rest=240).build())  # of 247 us
    cleared("OPT106", run(2, 5, node="IndexBackward0", rest=250).build())
    result = found("OPT106", run(2, 5, node="IndexBackward0", rest=200).build())
    assert result.values["node"].value == "IndexBackward0"


def test_work_beside_communication_is_slow_for_that_reason() -> None:
    cleared("OPT106", run(10, 60, beside=True).build())


def test_custom_functions_do_not_say_what_their_forward_was() -> None:
    cleared("OPT106", run(10, 60, node="MyFunctionBackward").build())


def test_lost_records_leave_no_ratio() -> None:
    skipped("OPT106", run(10, 60, lost=1).build())


def test_without_sequence_numbers_nothing_is_matched() -> None:
    assert "sequence numbers" in needed("OPT106", run(10, 60, linked=False).build())


def test_no_backward() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch()
    skipped("OPT106", b.build())
