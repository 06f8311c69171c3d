"""KER108: attention on the reference path."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder

QKV: dict[str, Any] = {"dims": [[2, 8, 1024, 64]] * 3, "types": ["float"] * 3}


def attention(*, products: int = 2, shapes: bool = True, fallback: bool = True) -> Trace:
    b = TraceBuilder()
    name = "aten::_scaled_dot_product_attention_math" if fallback else "aten::_scaled_dot_product_efficient_attention"
    for _ in range(4):
        with b.step(), b.op("aten::scaled_dot_product_attention"), b.op(name, **(QKV if shapes else {})):
            for _ in range(products):
                with b.op("aten::bmm"):
                    b.launch("gemm", duration=200)
            with b.op("aten::_softmax"):
                b.launch("softmax_warp_forward", duration=100)
    return b.build()


def test_costs_what_a_fused_kernel_would_not_take() -> None:
    finding = found("KER108", attention())
    fused = 4 * 2 * 8 * 1024 * 1024 * 64 / (0.5 * 494.7e12) * 1e9
    assert finding.gain_ns == pytest.approx(500_000 - fused)
    assert finding.confidence == "high"
    assert title("KER108", finding).startswith("1 call per step to scaled_dot_product_attention on the unfused")


def test_without_shapes_the_whole_time_is_the_bound() -> None:
    finding = found("KER108", attention(shapes=False))
    assert (finding.gain_ns, finding.confidence) == (300_000, "low")


def test_fires_from_two_products() -> None:
    found("KER108", attention(products=2))
    assert cleared("KER108", attention(products=1))


def test_fused_attention_is_clear() -> None:
    assert cleared("KER108", attention(fallback=False))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::_scaled_dot_product_attention_math"):
        pass
    assert skipped("KER108", b.build())
