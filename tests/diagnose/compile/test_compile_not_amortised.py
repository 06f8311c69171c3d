from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(
    ops: int,
    *,
    region: float = 300.0,
    kernel: float = 2.0,
    lookup: float = 0.0,
    eager: int = 0,
    compiling: bool = False,
    name: str = "triton_poi_fused_add_0",
) -> TraceBuilder:
    """Four steps with one region of the given length that starts `ops` kernels, and eager operators of 40 us."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            if lookup:
                with b.op("TorchDynamo Cache Lookup", head=lookup, tail=0):
                    pass
            if compiling:
                b.slice("inner (dynamo_timed)", Kind.OPERATOR, b.now, 50)
                b.wait(60)
            with b.op("Torch-Compiled Region: 0/0", head=region - ops * 5, tail=0):
                for _ in range(ops):
                    b.launch(name, duration=kernel, call=5)
            for _ in range(eager):
                with b.op("aten::mul", head=30, tail=5):
                    b.launch(duration=1, call=5)
    return b


def test_a_small_region_costs_more_than_eager_operators() -> None:
    result = found("CMP103", run(2).build())
    assert title("CMP103", result) == (
        "Torch-Compiled Region: 0/0 spends 300.0 us of host time per call to start 2 device ops; eager operators would "
        "cost about 50.0 us."
    )
    assert (result.gain_ns, result.confidence) == (pytest.approx(250_000, rel=0.01), "low")


def test_the_lookup_belongs_to_the_call() -> None:
    assert found("CMP103", run(2, lookup=20).build()).gain_ns == pytest.approx(270_000)


def test_eager_operators_of_the_same_recording_are_the_better_measure() -> None:
    assert found("CMP103", run(2, eager=5).build()).gain_ns == pytest.approx(300_000 - 2 * 40_000, rel=0.01)


def test_fires_below_five_device_ops_which_are_worth_entering_a_region() -> None:
    found("CMP103", run(4).build())
    cleared("CMP103", run(5).build())


def test_a_region_that_costs_no_more_is_fine() -> None:
    cleared("CMP103", run(2, region=50).build())
    found("CMP103", run(2, region=51).build())


def test_a_kernel_that_fuses_several_operators_may_replace_any_number_of_them() -> None:
    cleared("CMP103", run(1, name="triton_poi_fused_add_mul_sin_0").build())
    found("CMP103", run(1, name="triton_poi_fused__unsafe_view_gelu_0").build())


def test_a_busy_device_hides_it() -> None:
    skipped("CMP103", run(2, kernel=400).build())


def test_a_region_that_compiles_has_another_problem() -> None:
    assert "CMP102" in skipped("CMP103", run(2, compiling=True).build())


def test_nothing_compiled() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::add", head=50):
            b.launch()
    skipped("CMP103", b.build())
