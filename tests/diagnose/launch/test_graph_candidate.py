from __future__ import annotations

from typing import Any

import pytest

from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def run(
    launches: int,
    *,
    steps: int = 4,
    blocked_at: int = -1,
    blocker: str = "cudaStreamSynchronize",
    grids: list[int] | None = None,
    kernel: float = 2.0,
    shapes: dict[str, Any] | None = None,
) -> TraceBuilder:
    """Steps that launch `launches` kernels of 2 us every 20 us, with a blocker before one of them."""
    b = TraceBuilder()
    for step in range(steps):
        with b.step(head=0, tail=0):
            for at in range(launches):
                if at == blocked_at:
                    b.call(blocker, duration=3)
                with b.op("aten::add", head=10, tail=5, **(shapes or {})):
                    b.launch(
                        "add", call=5, delay=8, duration=kernel, grid=((grids or [])[step] if grids else 132, 1, 1)
                    )
    return b


def test_a_step_that_is_always_the_same() -> None:
    result = found("LAU106", run(20).build())
    assert "20 launches in a row per step are the same in every step" in title("LAU106", result)
    # 19 gaps of 18 us after the first launch and the 8 us from it to its kernel, less one graph launch.
    assert result.gain_ns == pytest.approx(19 * 18_000 + 8_000 - 10_000, rel=0.05)
    assert (len(result.events or ()), result.confidence) == (60, "medium")


def test_with_shapes_in_several_steps_it_is_sure() -> None:
    shapes = {"dims": [[8, 8]], "types": ["float"]}
    assert found("LAU106", run(20, shapes=shapes).build()).confidence == "high"


def test_the_threshold_is_twenty_launches() -> None:
    found("LAU106", run(20).build())
    assert cleared("LAU106", run(19).build()).endswith("is 19")


def test_a_wait_or_an_allocation_ends_the_region() -> None:
    assert cleared("LAU106", run(30, blocked_at=15).build()).endswith("is 15")
    assert cleared("LAU106", run(30, blocked_at=15, blocker="cudaMalloc").build()).endswith("is 15")
    result = found("LAU106", run(40, blocked_at=15).build())
    assert result.values["launches"].value == 25
    assert result.evidence[1].rows == [{"what": "waits", "count": 1.0}]


def test_varying_grids_cannot_be_replayed() -> None:
    assert "different kernels" in cleared("LAU106", run(20, grids=[132, 132, 264, 132]).build())


def test_one_step_cannot_be_compared() -> None:
    assert "two or more steps" in needed("LAU106", run(20, steps=1).build())


def test_two_steps_compare_the_steady_one_with_the_first() -> None:
    found("LAU106", run(20, steps=2).build())
    cleared("LAU106", run(20, steps=2, grids=[132, 264]).build())


def test_a_busy_device_gains_nothing() -> None:
    skipped("LAU106", run(20, kernel=30).build())


def test_no_launches() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        pass
    skipped("LAU106", b.build())
