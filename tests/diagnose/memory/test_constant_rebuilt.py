"""MEM108: constants built in every step."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def program(
    name: str = "aten::ones",
    *,
    vary: bool = False,
    shapes: bool = True,
    steps: int = 4,
    on_device: bool = True,
    duration: float = 40,
    every: int = 1,
) -> Trace:
    b = TraceBuilder()
    for step in range(steps):
        with b.step():
            if step % every == 0:
                size = f"[{64 + step if vary else 64}, 64]"
                arguments = (
                    {"dims": [[], []], "types": ["ScalarList", "Scalar"], "concrete": [size, ""]} if shapes else {}
                )
                with b.op(name, **arguments), b.op("aten::fill_"):
                    if on_device:
                        b.launch("FillFunctor", duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=duration)
    return b.build()


def test_device_bound_it_costs_the_kernels() -> None:
    finding = found("MEM108", program())
    assert finding.gain_ns == pytest.approx(40_000)
    assert title("MEM108", finding).startswith("1 constant tensor per step rebuilt with the same values")
    assert finding.evidence[0].rows[0]["arguments"] == "[64, 64]"  # type: ignore[union-attr]


def test_host_bound_it_costs_the_operators() -> None:
    finding = found("MEM108", program(duration=1), unprofiled_us=3_000)
    assert finding.gain_ns == pytest.approx(10_000)


def test_arguments_that_differ_are_no_constant() -> None:
    assert "differs" in cleared("MEM108", program(vary=True))


def test_random_numbers_and_cpu_tensors_are_silent() -> None:
    assert cleared("MEM108", program("aten::randn"))
    assert cleared("MEM108", program(on_device=False))


def test_fires_from_one_per_step() -> None:
    found("MEM108", program())
    assert cleared("MEM108", program(every=2))


def test_it_says_what_to_record() -> None:
    assert "record_shapes=True" in needed("MEM108", program(shapes=False))
    assert "two steady steps" in needed("MEM108", program(steps=2))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::ones"):
        pass
    assert skipped("MEM108", b.build())
