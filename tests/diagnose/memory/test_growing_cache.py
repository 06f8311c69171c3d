"""MEM107: a cache that grows by copying itself."""

from __future__ import annotations

import pytest

from lanewise.diagnose.engine import diagnose
from lanewise.measure.facts import Facts
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def decode(
    tokens: int = 6,
    *,
    layers: int = 2,
    step_by: int = 1,
    new: int = 1,
    shapes: bool = True,
    choose: bool = True,
    duration: float = 30,
    steps: int = 3,
) -> Trace:
    b = TraceBuilder()
    length = 10
    for _ in range(steps):
        with b.step():
            for _ in range(tokens):
                for _ in range(layers):
                    for _ in ("key", "value"):
                        dims = [[[1, 8, length, 64], [1, 8, new, 64]], []]
                        with b.op(
                            "aten::cat",
                            dims=dims if shapes else None,
                            types=["TensorList", "Scalar"] if shapes else None,
                        ):
                            b.launch("CatArrayBatchedCopy", duration=duration)
                if choose:
                    with b.op("aten::argmax"):
                        b.launch("argmax", duration=2)
                length += step_by
    return b.build()


def test_names_how_far_it_grew() -> None:
    finding = found("MEM107", decode())
    assert finding.gain_ns == pytest.approx(6 * 4 * 30_000)
    assert title("MEM107", finding).startswith(
        "24 calls of cat per step to append one element to a cache by copying all of it"
    )
    # The first recorded step is not steady: it took the cache from 10 to 16.
    assert (finding.values["first"].value, finding.values["last"].value) == (16, 27)


def test_host_bound_it_costs_the_operators() -> None:
    finding = found("MEM107", decode(duration=1), unprofiled_us=5_000)
    assert finding.gain_ns == pytest.approx(24 * 7_000 + 1_000)


def planning(own: float, *, grows: bool = True) -> Trace:
    """A cache that grows by one per step, and attention over it that takes `own` us before it launches."""
    b = TraceBuilder()
    for length in range(10, 16):
        with b.step():
            with b.op("aten::cat", dims=[[[1, 8, length, 64], [1, 8, 1, 64]], []], types=["TensorList", "Scalar"]):
                b.launch("CatArrayBatchedCopy", duration=30)
            dims = [[1, 8, 1, 64], [1, 8, length + 1 if grows else 99, 64]]
            with b.op("aten::_cudnn_attention_forward", head=own, tail=0, dims=dims, types=["float", "float"]):
                b.launch("attention", duration=5)
    return b.build()


def test_a_library_that_plans_for_each_length_belongs_to_it() -> None:
    finding = found("MEM107", planning(5_000))
    assert finding.gain_ns == pytest.approx(8_000 + 5_000_000, rel=1e-4)
    assert title("MEM107", finding).endswith("aten::_cudnn_attention_forward plans again for each length: 5.00 ms.")


def test_planning_for_something_else_does_not() -> None:
    assert found("MEM107", planning(5_000, grows=False)).gain_ns == pytest.approx(8_000)
    assert found("MEM107", planning(90)).gain_ns == pytest.approx(8_000)


def test_it_owns_the_planning() -> None:
    findings = {finding.code: finding for finding in diagnose(Facts(planning(5_000)))[0]}
    assert findings["LAU104"].recoverable_us_per_step < 0.1 * findings["LAU104"].alone_us_per_step


def test_two_halves_of_constant_size_are_a_rotation() -> None:
    assert cleared("MEM107", decode(step_by=0))
    assert cleared("MEM107", decode(new=10, step_by=0))


def test_fires_from_three_calls_in_a_row() -> None:
    assert found("MEM107", decode(1, layers=1, steps=4))  # three steady steps of one token
    assert cleared("MEM107", decode(1, layers=1))


def test_without_shapes_it_asks_for_them_only_where_something_generates() -> None:
    assert needed("MEM107", decode(shapes=False))
    assert cleared("MEM107", decode(shapes=False, choose=False))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::cat"):
        pass
    assert skipped("MEM107", b.build())
