"""MEM106: conversions between types."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(
    casts: int = 3,
    *,
    types: tuple[str, str] = ("c10::BFloat16", "float"),
    duration: float = 50,
    other: float = 500,
    shapes: bool = True,
    outer: str = "aten::to",
    plain: int = 0,
) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(casts):
                with (
                    b.op(outer),
                    b.op("aten::_to_copy"),
                    b.op("aten::copy_", dims=[[64, 64]] * 2 if shapes else None, types=list(types) if shapes else None),
                ):
                    b.launch("bfloat16_copy_kernel", duration=duration)
            for _ in range(plain):
                with b.op("aten::add"):
                    b.launch("add", duration=1)
            with b.op("aten::mm"):
                b.launch("gemm", duration=other)
    return b.build()


def test_device_bound_it_costs_the_conversions() -> None:
    finding = found("MEM106", program())
    assert (finding.gain_ns, finding.confidence) == (150_000, "high")
    assert title("MEM106", finding).startswith("3 conversions per step of tensors from one type to another (150.0 us")
    assert finding.evidence[0].rows[0]["types"] == "float to BFloat16"  # type: ignore[union-attr]


def test_host_bound_it_costs_the_operators() -> None:
    finding = found("MEM106", program(duration=1, other=5), unprofiled_us=3_000)
    assert finding.gain_ns == pytest.approx(3 * 11_000 + 1_000)


def test_names_stand_in_for_shapes() -> None:
    assert found("MEM106", program(shapes=False)).confidence == "medium"


def test_fires_from_five_percent_of_either_sides_time() -> None:
    # Two conversions of 26 us beside 948 us, and 22 us of the host beside 700 us: 5.2 % of the device, 3 % of the host.
    assert found("MEM106", program(2, duration=26, other=948 - 100, plain=100))
    assert cleared("MEM106", program(2, duration=24, other=952 - 100, plain=100))


def test_one_conversion_per_step_is_silent() -> None:
    assert cleared("MEM106", program(1, duration=500))


def test_copies_of_the_same_type_are_silent() -> None:
    assert cleared("MEM106", program(types=("float", "float")))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::to"):
        pass
    assert skipped("MEM106", b.build())
