from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(
    outside: float, *, compiled: float = 400.0, optimizer: float = 0.0, kernel: float = 2.0, eager_kernel: float = 0.0
) -> TraceBuilder:
    """Four steps: a region, operators outside it, and an optimizer step, with the given host times."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("TorchDynamo Cache Lookup", head=15):
                pass
            with b.op("Torch-Compiled Region: 0/0", head=compiled - 10, tail=5):
                b.launch("triton_poi_fused_add_0", duration=kernel, call=5)
            if outside:
                with b.op("aten::cross_entropy_loss", head=outside - 10, tail=5):
                    b.launch("softmax", duration=eager_kernel or kernel, call=5)
            if optimizer:
                with (
                    b.span("Optimizer.step#SGD.step", Kind.ANNOTATION),
                    b.op("aten::_foreach_add_", head=optimizer - 10, tail=5),
                ):
                    b.launch("multi_tensor_apply_kernel", duration=kernel, call=5)
    return b


def test_a_good_part_runs_outside() -> None:
    result = found("CMP108", run(200).build())
    assert title("CMP108", result) == (
        "32 % of the operators' host time is still eager although the program is compiled: 200.0 us per step outside "
        "compiled regions, most of it in aten::cross_entropy_loss."
    )
    assert result.gain_ns == pytest.approx(190_000)


def test_the_threshold_is_one_fifth() -> None:
    cleared("CMP108", run(104).build())  # of 520 us: the lookup is part of what compiling costs
    found("CMP108", run(105).build())


def test_a_small_optimizer_step_does_not_count() -> None:
    cleared("CMP108", run(100, optimizer=50).build())
    found("CMP108", run(100, optimizer=70).build())


def test_a_device_bound_run_is_judged_by_device_time() -> None:
    result = found("CMP108", run(60, kernel=500).build())
    assert "50 % of device time" in title("CMP108", result)


def test_the_threshold_of_a_compiled_program_is_one_twentieth_below_it_is_eager() -> None:
    found("CMP108", run(4000, compiled=200, eager_kernel=200).build())  # and 16 of the lookup, of 4216
    assert "eager program" in skipped("CMP108", run(4000, compiled=185, eager_kernel=200).build())
    assert "eager program" in skipped("CMP108", run(40_000, compiled=20, kernel=0.5).build(), compiled_from=0.6)


def test_nothing_compiled() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("CMP108", b.build())
