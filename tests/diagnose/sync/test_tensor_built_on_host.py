"""SYN107: created on the CPU, then moved."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def program(
    creator: str = "aten::zeros",
    fill: str = "aten::zero_",
    *,
    size: int = 64 * 64 * 4,
    shapes: bool = True,
    between: bool = False,
    every: int = 1,
) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            if step % every == 0:
                with (
                    b.op(creator),
                    b.op(fill, dims=[[64, 64]] if shapes else None, types=["float"] if shapes else None),
                ):
                    b.wait(3)
                if between:
                    with b.op("aten::add"):
                        b.wait(2)
                with b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_"):
                    b.copy("HtoD", source="pageable", size=size, duration=5)
            with b.op("aten::mm"):
                b.launch("gemm", duration=20)
    return b.build()


def test_costs_creation_and_copy() -> None:
    finding = found("SYN107", program())
    assert finding.gain_ns == pytest.approx(7_000 + 15_000, rel=0.3)
    assert title("SYN107", finding) == (
        "1 tensor per step created on the CPU (aten::zeros first) and copied to the GPU right after: 22.0 us "
        "for 16.4 kB."
    )


def test_random_numbers_count_too() -> None:
    assert found("SYN107", program("aten::randn", "aten::normal_"))


def test_a_range_is_sized_by_its_bounds() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::arange", dims=[[], [], []], types=["Scalar"] * 3, concrete=["0", "128", "1"]):
                b.wait(1)
            with b.op("aten::to"), b.op("aten::copy_"):
                b.copy("HtoD", source="pageable", size=1024, duration=5)
    assert found("SYN107", b.build())


def test_another_size_is_another_tensor() -> None:
    assert cleared("SYN107", program(size=64 * 64 * 4 + 4))


def test_something_between_is_not_right_after() -> None:
    assert cleared("SYN107", program(between=True))


def test_fires_from_one_per_step() -> None:
    assert cleared("SYN107", program(every=2))
    assert found("SYN107", program(every=2), per_step_from=0.4)


def test_a_loaders_output_is_silent() -> None:
    assert cleared("SYN107", program("aten::stack", "aten::cat"))


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("SYN107", program(shapes=False))


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::zeros"):
        pass
    assert skipped("SYN107", b.build())


def of_a_list(*, lifted: bool = True) -> Trace:
    """`torch.tensor(values, device="cuda")`: the values are read, for 30 us, behind `empty` and before `to`."""
    b = TraceBuilder()
    for _ in range(5):
        with b.step():
            with b.op("aten::empty"):
                b.wait(1)
            b.wait(30)
            with b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_"):
                b.copy("HtoD", source="pageable", size=1024, duration=5)
            with b.op("aten::lift_fresh" if lifted else "aten::view"):
                b.wait(1)
            with b.op("aten::mm"):
                b.launch("gemm", duration=20)
    return b.build()


def test_a_list_is_read_by_the_host_in_time_that_no_row_has() -> None:
    finding = found("SYN107", of_a_list())
    assert title("SYN107", finding).startswith("1 tensor per step created on the CPU (torch.tensor first)")
    assert finding.gain_ns > 40_000
    assert needed("SYN107", program(shapes=False))


def test_memory_that_is_filled_by_something_else_is_not_of_a_list() -> None:
    assert cleared("SYN107", of_a_list(lifted=False))
