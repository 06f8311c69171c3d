"""MEM104: copies into another order."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def program(
    *,
    types: tuple[str, str] = ("float", "float"),
    via: str = "aten::contiguous",
    duration: float = 100,
    other: float = 400,
    shapes: bool = True,
    outer: str = "aten::reshape",
) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op(outer), b.op(via), b.op("aten::clone" if via != "aten::_to_copy" else "aten::to"):
                arguments = (
                    {"dims": [[8, 64, 32]] * 2, "types": list(types), "strides": [[2048, 32, 1], [2048, 1, 64]]}
                    if shapes
                    else {}
                )
                with b.op("aten::copy_", **arguments):
                    b.launch("elementwise_kernel", duration=duration)
            with b.op("aten::bmm"):
                b.launch("gemm", duration=other)
    return b.build()


def test_device_bound_it_costs_the_copies() -> None:
    finding = found("MEM104", program())
    assert finding.gain_ns == pytest.approx(100_000)
    assert title("MEM104", finding).startswith(
        "1 copy per step only to bring data into another order (100.0 us on the GPU, 20 %"
    )
    row = finding.evidence[0].rows[0]  # type: ignore[union-attr]
    assert (row["by"], row["strides"]) == ("aten::reshape", "2048x1x64")


def test_host_bound_it_costs_the_operators() -> None:
    finding = found("MEM104", program(duration=2, other=8), unprofiled_us=3_000)
    assert finding.gain_ns == pytest.approx(13_000, rel=0.1)


def test_copies_of_the_compiler_that_tries_kernels_out_are_not_the_programs() -> None:
    trying = "CachingAutotuner.benchmark_all_configs (dynamo_timed)"
    cleared("MEM104", program(outer=trying))


def test_changes_of_type_are_another_rules() -> None:
    assert cleared("MEM104", program(types=("float", "c10::BFloat16")))
    assert cleared("MEM104", program(via="aten::_to_copy"))


def test_fires_above_three_percent_of_the_devices_time() -> None:
    assert found("MEM104", program(duration=31, other=969))
    assert cleared("MEM104", program(duration=29, other=971))


def test_copies_before_a_change_in_place_are_another_rules() -> None:
    assert cleared("MEM104", program(outer="aten::masked_fill"))


def test_waiting_for_other_ranks_does_not_dilute_the_share() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::clone"), b.op("aten::copy_", dims=[[8, 8]] * 2, types=["float"] * 2):
                b.launch("elementwise_kernel", duration=100)
            with b.op("aten::bmm"):
                b.launch("gemm", duration=1000)
            b.launch("ncclDevKernel_AllReduce", duration=50_000, stream="20")
    assert found("MEM104", b.build())


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("MEM104", program(shapes=False))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::clone"):
        pass
    assert skipped("MEM104", b.build())
