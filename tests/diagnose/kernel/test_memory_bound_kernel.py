"""KER102: operators at the memory's bandwidth."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import H100, TraceBuilder

BF16 = "c10::BFloat16"


def program(
    duration: float,
    *,
    rows: int = 8192,
    other: float = 100.0,
    shapes: bool = True,
    device: dict[str, Any] | None = None,
) -> Trace:
    """A multiplication of two matrices: 6 bytes per element, 240 us at least for 8192 rows of 16384."""
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    arguments: dict[str, Any] = {"dims": [[rows, 16384]] * 2, "types": [BF16, BF16]} if shapes else {}
    for _ in range(4):
        with b.step():
            with b.op("aten::mul", **arguments):
                b.launch("vectorized_elementwise_kernel", duration=duration)
            if other:
                with b.op("aten::other"):
                    b.launch("other", duration=other)
    return b.build()


def test_the_gain_is_all_but_one_write() -> None:
    finding = found("KER102", program(300.0))
    written = 8192 * 16384 * 2 / 3.35e12 * 1e9
    assert finding.gain_ns == pytest.approx(300_000 - written)
    assert title("KER102", finding).startswith(
        "1 operator (aten::mul first) running at memory speed, 300.0 us per step: 2.68 TB/s, 80 % of the"
    )


def test_alone_in_its_steps_it_has_nothing_to_be_fused_with() -> None:
    assert found("KER102", program(300.0, other=0)).gain_ns == 0


def test_fires_from_sixty_percent_of_the_bandwidth() -> None:
    assert found("KER102", program(400.0))  # 60.1 %
    assert cleared("KER102", program(402.0))  # 59.8 %


def test_fires_from_five_percent_of_the_computing_time() -> None:
    assert found("KER102", program(300.0, other=5_600))
    assert cleared("KER102", program(300.0, other=5_800))


def test_a_working_set_in_the_cache_is_silent() -> None:
    assert cleared("KER102", program(15.0, rows=400))


def test_without_shapes_it_says_what_to_record() -> None:
    assert "record_shapes=True" in needed("KER102", program(300.0, shapes=False))


def test_an_unknown_card_is_not_judged() -> None:
    assert "no peak rates are known" in skipped("KER102", program(300.0, device=H100 | {"name": "NVIDIA Z9"}))


def test_fires_below_thirty_percent_of_the_computing_rate() -> None:
    def product(rows: int) -> Trace:
        """Few rows against many weights at 90 % of the bandwidth: computing grows with the rows."""
        b = TraceBuilder()
        moved = 2 * (rows * 8192 + 8192 * 16384 + rows * 16384)
        for _ in range(4):
            with b.step(), b.op("aten::mm", dims=[[rows, 8192], [8192, 16384]], types=[BF16, BF16]):
                b.launch("nvjet_tst_64x128", duration=moved / (0.9 * 3.35e12) * 1e6)
        return b.build()

    assert found("KER102", product(96))
    assert cleared("KER102", product(104))
