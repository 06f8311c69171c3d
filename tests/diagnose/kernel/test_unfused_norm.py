"""KER111: a normalisation spelled out."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder

NORM = ("pow", "mean", "add", "rsqrt", "mul")


def program(
    norms: int, *, names: tuple[str, ...] = NORM, duration: float = 10.0, shapes: bool = False, every: int = 1
) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            for _ in range(norms if step % every == 0 else 1):
                for name in names:
                    with b.op(
                        f"aten::{name}", dims=[[4096, 8192]] if shapes else None, types=["float"] if shapes else None
                    ):
                        b.launch(name, duration=duration)
                with b.op("aten::mm"):
                    b.launch("gemm", duration=duration)
    return b.build()


def test_device_bound_all_but_one_kernel_can_go() -> None:
    finding = found("KER111", program(3, duration=40))
    assert finding.gain_ns == pytest.approx(3 * 5 * 40_000 * 4 / 5)
    assert title("KER111", finding).startswith("3 normalisations per step spelled out as 5 operations each")


def test_with_shapes_one_pass_over_the_data_stays() -> None:
    finding = found("KER111", program(3, duration=100, shapes=True))
    one = 2 * 4096 * 8192 * 4 / 3.35e12 * 1e9
    assert finding.gain_ns == pytest.approx(3 * (500_000 - one))


def test_host_bound_all_but_one_launch_can_go() -> None:
    finding = found("KER111", program(3, duration=1), unprofiled_us=5_000)
    assert finding.gain_ns == pytest.approx(3 * 4 * 7_000)  # an operator of 7 us around each launch


def test_casts_and_a_weight_belong_to_it() -> None:
    finding = found("KER111", program(2, names=("copy_", *NORM, "copy_", "mul")))
    assert finding.values["operators"].value == 8


@pytest.mark.parametrize(
    "spelled",
    [
        "mean sub pow mean sub add sqrt div mul add",
        "mean sub mul mean add rsqrt mul",
        "mean copy_ sub pow mean add rsqrt mul copy_ mul add",
        "mean var sub add sqrt div mul add",
        "mean sub var add rsqrt mul mul add",
        "mean std sub mul add div add",
        "pow mean add sqrt div mul",
        "mul mean add rsqrt mul mul",
    ],
)
def test_layer_norms_and_other_spellings_of_the_root_are_found_whole(spelled: str) -> None:
    names = tuple(spelled.split())
    finding = found("KER111", program(3, names=names, duration=1), unprofiled_us=5_000)
    assert finding.values["operators"].value == len(names)
    assert title("KER111", finding).startswith("3 normalisations per step")


@pytest.mark.parametrize("other", ["mean sub mul add", "pow mean add mul", "mean sub pow mean", "sub pow mean sqrt"])
def test_losses_and_statistics_are_no_normalisations(other: str) -> None:
    assert cleared("KER111", program(3, names=tuple(other.split())))


def test_fires_from_one_percent_of_the_step() -> None:
    def beside(other: float) -> Trace:
        b = TraceBuilder()
        for _ in range(4):
            with b.step():
                for name in NORM:
                    with b.op(f"aten::{name}"):
                        b.launch(name, duration=40)
                b.launch("gemm", duration=other)
        return b.build()

    assert found("KER111", beside(19_000))
    assert cleared("KER111", beside(21_000))


def test_another_order_is_not_a_normalisation() -> None:
    assert cleared("KER111", program(3, names=("pow", "add", "mean", "rsqrt", "mul")))


def test_a_chain_does_not_cross_steps() -> None:
    b = TraceBuilder()
    for step in range(6):
        with b.step():
            for name in NORM[:3] if step % 2 == 0 else NORM[3:]:
                with b.op(f"aten::{name}"):
                    b.launch(name)
    assert cleared("KER111", b.build())


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::pow"):
        pass
    assert skipped("KER111", b.build())
