"""KER110: reading the weights sets the speed."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped
from tests.support.builder import TraceBuilder

# 4096 x 8192 bf16 weights: 67 MB, 20 us at the memory's bandwidth.
LEAST_US = 4096 * 8192 * 2 / 3.35e12 * 1e6


def decode(share: float = 0.8, *, rows: int = 1, layers: int = 4, other: float = 1.0, shapes: bool = True) -> Trace:
    b = TraceBuilder()
    dims = [[rows, 4096], [4096, 8192]] if shapes else None
    for _ in range(4):
        with b.step():
            for _ in range(layers):
                with b.op("aten::mm", head=0.1, tail=0.1, dims=dims, types=["c10::BFloat16"] * 2 if shapes else None):
                    b.launch("gemvx", duration=LEAST_US / share, call=2)
            with b.op("aten::other"):
                b.launch("other", duration=other)
    return b.build()


def test_costs_half_of_the_reading() -> None:
    finding = found("KER110", decode())
    assert finding.gain_ns == pytest.approx(4 * LEAST_US * 1e3 / 0.8 / 2, rel=0.01)


def test_fires_from_sixty_percent_of_the_bandwidth() -> None:
    assert found("KER110", decode(0.61))
    assert cleared("KER110", decode(0.59))


def test_fires_up_to_eight_rows() -> None:
    assert found("KER110", decode(rows=8))
    assert cleared("KER110", decode(rows=9))


def test_fires_from_five_percent_of_the_computing_time() -> None:
    thin = 4 * LEAST_US / 0.8
    assert found("KER110", decode(other=thin * 18.9))
    assert cleared("KER110", decode(other=thin * 19.1))


def test_weights_that_stay_in_the_cache_are_silent() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::mm", dims=[[1, 1024], [1024, 1024]], types=["c10::BFloat16"] * 2):
            b.launch("gemvx", duration=40.0)
    assert cleared("KER110", b.build())


def test_host_bound_decoding_is_not_judged() -> None:
    assert "regime" in skipped("KER110", decode(), unprofiled_us=50_000)


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("KER110", decode(shapes=False))
