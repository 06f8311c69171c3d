"""KER114: float64 on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lanewise.measure.facts import Facts
from lanewise.replay.apply import apply
from lanewise.replay.simulate import simulate
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import H100, TraceBuilder

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<{}>, std::array<char*, 3ul>>"
MULTIPLY = "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"


RECORDED = Path(__file__).resolve().parents[2] / "data" / "double"
"""Recorded on an H200."""


def program(
    *,
    kernel: str = ADD.format("double"),
    types: str | None = "double",
    operator: str = "aten::add",
    shape: list[int] | None = None,
    duration: float = 500,
    other: float = 500,
    device: dict[str, Any] | None = None,
) -> Trace:
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    dims = [[1024, 1024] if shape is None else shape] * 2
    for _ in range(4):
        with b.step():
            with b.op(operator, dims=dims if types else None, types=[types, types] if types else None):
                b.launch(kernel, duration=duration)
            with b.op("aten::mul", dims=[[64], [64]], types=["float", "float"]):
                b.launch(ADD.format("float"), duration=other)
    return b.build()


def test_half_of_the_time_of_elementwise_work_is_won() -> None:
    finding = found("KER114", program())
    assert finding.gain_ns == pytest.approx(250_000, rel=0.01)
    assert finding.confidence == "high"
    assert title("KER114", finding) == "50 % of the GPU's computing time (500.0 us per step) is double precision."


def test_the_name_tells_where_shapes_were_not_recorded() -> None:
    assert found("KER114", program(types=None)).confidence == "medium"
    assert cleared("KER114", program(types=None, kernel=ADD.format("float")))


def test_what_an_operator_was_called_with_counts_before_its_kernels_name() -> None:
    assert found("KER114", program(kernel=MULTIPLY, operator="aten::mm"))
    assert cleared("KER114", program(kernel=ADD.format("double"), types="float"))


def test_a_scalar_does_not_make_a_kernel_double() -> None:
    assert cleared("KER114", program(kernel=ADD.format("float"), shape=[]))


@pytest.mark.parametrize(
    ("capability", "left"), [((8, 0), 1.0), ((7, 0), 0.5), ((8, 9), 0.1)], ids=["A100", "V100", "a card for graphics"]
)
def test_matrix_products_gain_what_the_cards_units_are_apart(capability: tuple[int, int], left: float) -> None:
    card = H100 | {"name": "NVIDIA X", "computeMajor": capability[0], "computeMinor": capability[1]}
    finding = found("KER114", program(kernel=MULTIPLY, operator="aten::mm", device=card))
    assert finding.gain_ns == pytest.approx(500_000 * (1 - left), rel=0.01, abs=1)


def test_fires_from_a_twentieth_of_the_computing_time() -> None:
    assert found("KER114", program(duration=60, other=940))
    assert cleared("KER114", program(duration=40, other=960))


def test_without_kernels_nothing_is_said() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::add", dims=[[8], [8]], types=["double", "double"]):
            pass
    assert skipped("KER114", b.build())


@pytest.mark.parametrize(("name", "double_us", "single_us"), [("mlp", 2421.7, 1923.3), ("pointwise", 1860.0, 1010.4)])
def test_the_gain_is_what_single_precision_gave_on_a_card(name: str, double_us: float, single_us: float) -> None:
    facts = Facts(read(RECORDED / f"{name}_f64.json.gz", cache=False))
    change = found("KER114", facts.trace).change
    assert change is not None
    left = simulate(apply(facts.unprofiled.graph, change)).step_ns / facts.unprofiled.step_ns
    assert left == pytest.approx(single_us / double_us, abs=0.05)
