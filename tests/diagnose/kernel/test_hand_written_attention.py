"""KER109: attention spelled out."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder

BF16 = "c10::BFloat16"


def chain(b: TraceBuilder, *, heads: int = 16, last: int = 16, shapes: bool = True) -> None:
    def of(*dims: list[int]) -> dict[str, Any]:
        return {"dims": list(dims), "types": [BF16] * len(dims)} if shapes else {}

    with b.op("aten::bmm", **of([heads, 512, 64], [heads, 64, 512])):
        b.launch("gemm", duration=50)
    with b.op("aten::div", **of([heads, 512, 512])):
        b.launch("elementwise", duration=40)
    with b.op("aten::masked_fill", **of([heads, 512, 512])):
        b.launch("elementwise", duration=40)
    with b.op("aten::_softmax", **of([heads, 512, 512])):
        b.launch("softmax", duration=40)
    with b.op("aten::bmm", **of([last, 512, 512], [last, 512, 64])):
        b.launch("gemm", duration=50)


def program(**options: Any) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            chain(b, **options)
    return b.build()


def test_names_the_chain_and_its_score_matrix() -> None:
    finding = found("KER109", program())
    fused = 4 * 16 * 512 * 512 * 64 / (0.5 * 989.4e12) * 1e9
    assert finding.gain_ns == pytest.approx(220_000 - fused)
    assert title("KER109", finding) == (
        "Attention spelled out as products and a softmax, 1 chain per step (220.0 us): the 8.39 MB score matrix "
        "goes through memory."
    )


def test_products_of_different_batches_are_not_attention() -> None:
    assert cleared("KER109", program(last=8))


def test_a_softmax_without_products_is_clear() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm")
            with b.op("aten::_softmax"):
                b.launch("softmax")
    assert cleared("KER109", b.build())


def test_the_reference_path_of_sdpa_is_another_rules() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::_scaled_dot_product_attention_math"):
            chain(b)
    assert cleared("KER109", b.build())


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("KER109", program(shapes=False))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::bmm"):
        pass
    assert skipped("KER109", b.build())
