"""KER113: generic convolution kernels."""

from __future__ import annotations

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped
from tests.support.builder import TraceBuilder

GENERIC = "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>"


def network(
    kernel: str = GENERIC, *, duration: float = 100, other: float = 100, shapes: bool = True, vary: bool = False
) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            dims = [[step if vary else 8, 3, 32, 32], [16, 3, 3, 3]] if shapes else None
            with b.op("aten::cudnn_convolution", dims=dims, types=["float"] * 2 if shapes else None):
                b.launch(kernel, duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=other)
    return b.build()


def test_names_the_kernels_and_estimates_nothing() -> None:
    finding = found("KER113", network())
    assert finding.gain_ns == 0
    assert finding.values["total"].value == 100_000


def test_fires_from_five_percent_of_the_computing_time() -> None:
    assert found("KER113", network(other=1_850))
    assert cleared("KER113", network(other=1_950))


def test_shapes_that_vary_would_be_searched_again_and_again() -> None:
    assert "vary" in cleared("KER113", network(vary=True))


def test_specific_kernels_are_clear() -> None:
    assert cleared("KER113", network("sm80_xmma_fprop_implicit_gemm_tf32f32_tensor16x8x8"))


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("KER113", network(shapes=False))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::cudnn_convolution"):
        pass
    assert skipped("KER113", b.build())
