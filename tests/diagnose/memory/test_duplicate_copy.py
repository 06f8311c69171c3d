"""MEM103: copied only to be changed."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def masked(
    *,
    calls: int = 1,
    name: str = "aten::masked_fill",
    copy: bool = True,
    own: bool = True,
    every: int = 1,
    duration: float = 100,
) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            for _ in range(calls if step % every == 0 else 0):
                with b.op(name):
                    if copy:
                        with b.op("aten::clone"), b.op("aten::copy_"):
                            b.launch("copy_kernel", duration=duration)
                    if own:
                        with b.op(name + "_"):
                            b.launch("masked_fill_kernel", duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=duration)
    return b.build()


def squares(node: str = "PowBackward0", calls: int = 3) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(calls):
                with b.op(f"autograd::engine::evaluate_function: {node}"), b.op(node):
                    with b.op("aten::pow"), b.op("aten::copy_"):
                        b.copy("DtoD", size=1 << 20, duration=100)
                    with b.op("aten::mul"):
                        b.launch("elementwise", duration=100)
    return b.build()


def test_device_bound_it_costs_the_copy() -> None:
    finding = found("MEM103", masked(calls=2))
    assert finding.gain_ns == pytest.approx(200_000)
    assert title("MEM103", finding).startswith("2 copies per step: aten::masked_fill first copies its whole input")


def test_host_bound_it_costs_the_copying_operator() -> None:
    finding = found("MEM103", masked(duration=1), unprofiled_us=3_000)
    assert 5_000 < finding.gain_ns < 15_000


def test_the_backward_of_a_square_copies() -> None:
    finding = found("MEM103", squares())
    assert finding.gain_ns == pytest.approx(300_000)
    said = "3 copies per step: the backward of x.pow(2) computes x.pow(1), which only copies x"
    assert title("MEM103", finding).startswith(said)


def test_pow_elsewhere_is_not_a_copy_for_nothing() -> None:
    assert cleared("MEM103", squares("MulBackward0"))


def test_in_place_and_copies_without_a_change_are_silent() -> None:
    assert cleared("MEM103", masked(copy=False))
    assert cleared("MEM103", masked(own=False))
    assert cleared("MEM103", masked(name="aten::contiguous"))


def test_fires_from_one_per_step() -> None:
    assert cleared("MEM103", masked(every=2))
    assert found("MEM103", masked())


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::masked_fill"):
        pass
    assert skipped("MEM103", b.build())
