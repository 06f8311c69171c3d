"""KER103: matrix work at the peak."""

from __future__ import annotations

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, title
from tests.support.builder import TraceBuilder

# 2 x 4096^3 FLOP at the peak.
PEAK_US = {"c10::BFloat16": 138.91, "float": 277.8}


def program(
    share: float, *, other: float = 10.0, dtype: str = "c10::BFloat16", kernel: str = "nvjet_tst", shapes: bool = True
) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm", dims=[[4096, 4096]] * 2 if shapes else None, types=[dtype] * 2 if shapes else None):
                b.launch(kernel, duration=PEAK_US[dtype] / share)
            with b.op("aten::other"):
                b.launch("other", duration=other)
    return b.build()


def test_says_how_near_the_peak_and_claims_no_gain() -> None:
    finding = found("KER103", program(0.8))
    assert finding.gain_ns == 0
    assert title("KER103", finding).startswith(
        "1 operator (aten::mm first) running at 80 % of the card's peak, 173.6 us"
    )


def test_fires_from_seventy_percent() -> None:
    assert found("KER103", program(0.705))
    assert cleared("KER103", program(0.695))


def test_fires_from_five_percent_of_the_computing_time() -> None:
    assert found("KER103", program(0.8, other=3_200))
    assert cleared("KER103", program(0.8, other=3_400))


def test_above_the_peak_is_called_an_error() -> None:
    assert "its shapes or types are not what ran" in cleared("KER103", program(1.3))


def test_plain_units_at_their_peak_are_another_rules() -> None:
    plain = program(1 / 6.0, dtype="float", kernel="sm80_xmma_gemm_f32f32_ffma_aligna4")  # 83 % of the plain peak
    assert cleared("KER103", plain)
    assert found("KER104", plain)


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("KER103", program(0.8, shapes=False))
