from __future__ import annotations

from contextlib import nullcontext

import pytest

from lanewise.measure.facts import Facts
from lanewise.replay.simulate import simulate
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(
    gap: float,
    *,
    frame: bool = False,
    other_thread: bool = False,
    loader: bool = False,
    step: float = 2000.0,
    wait: bool = False,
) -> TraceBuilder:
    """Four steps of 2000 us: work, then a gap in which the main thread dispatches nothing, then work again."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=0, tail=0):
            with b.op("aten::mm", head=step - gap - 25, tail=0):
                b.launch(call=5, delay=5, duration=5)
            begin = b.now
            if frame:
                with b.frame("train.py(7): log"), b.frame("<built-in function sleep>"):
                    b.wait(gap - 2)
            elif wait:
                b.call("cudaStreamSynchronize", duration=gap)
            else:
                b.wait(gap)
            if other_thread:
                b.slice("autograd::engine::evaluate_function: MmBackward0", Kind.OPERATOR, begin, gap, thread="200")
            if loader:
                b.slice("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Kind.ANNOTATION, begin, gap)
            with b.op("aten::add", head=10, tail=5):
                b.launch(call=5, delay=5, duration=5)
    return b


def test_nobody_dispatches() -> None:
    result = found("LAU110", run(800).build())
    assert title("LAU110", result) == (
        "For 795.0 us per step no thread launches anything (1 gap, the longest 795.0 us); the time goes into code that "
        "the trace does not show."
    )
    assert (result.gain_ns, result.confidence) == (795_000, "medium")


def test_the_frame_that_spans_the_gap_is_named() -> None:
    result = found("LAU110", run(800, frame=True).build())
    assert title("LAU110", result).endswith("the time goes into sleep.")
    assert result.location is not None
    assert (result.location.file, result.location.line, result.location.function) == ("train.py", 7, "log")
    assert result.confidence == "high"


def batches(making: float, *, frame: str = "", feeds: bool = True) -> Trace:
    """Steps that make a batch, copy it to the device and compute with it for 400 us."""
    b = TraceBuilder()
    for _ in range(6):
        with b.step(head=0, tail=0):
            with b.frame(frame) if frame else nullcontext():
                b.wait(making)
            if feeds:
                with b.op("aten::to", head=5, tail=5):
                    b.copy("HtoD", size=4096, duration=5)
            with b.op("aten::mm", head=390, tail=5):
                b.launch(call=5, delay=5, duration=5)
    return b.build()


def left(trace: Trace) -> float:
    """us of the step without the gaps."""
    return (simulate(Facts(trace).graph).step_ns - found("LAU110", trace).gain_ns) / 1e3


def test_what_makes_a_batch_has_to_be_done_by_somebody() -> None:
    """Another thread makes it ahead: a step takes at least as long as that."""
    assert left(batches(2000)) == pytest.approx(2000, rel=0.02)
    assert left(batches(2000, frame="data.py(3): decode")) == pytest.approx(2000, rel=0.02)
    assert "ahead of time" in found("LAU110", batches(2000)).fix
    # Nothing is copied behind it, or it is no batch that it makes.
    assert left(batches(2000, feeds=False)) == pytest.approx(400, rel=0.05)
    assert left(batches(2000, frame="<built-in function sleep>")) == pytest.approx(420, rel=0.05)


def test_the_thresholds_are_a_length_and_a_share() -> None:
    cleared("LAU110", run(504.9).build())  # the kernel before the gap runs 5 us into it
    found("LAU110", run(505).build())
    cleared("LAU110", run(800, step=20_000).build())
    found("LAU110", run(1100, step=20_000).build())


def sometimes(gaps: int, gap: float) -> TraceBuilder:
    """Ten steady steps of 2000 us or more, of which `gaps` hold a gap of the given length."""
    b = TraceBuilder()
    for number in range(11):
        with b.step(head=0, tail=0):
            with b.op("aten::mm", head=1990, tail=0):
                b.launch(call=5, delay=5, duration=5)
            if 0 < number <= gaps:
                b.wait(gap)
            with b.op("aten::add", head=10, tail=5):
                b.launch(call=5, delay=5, duration=5)
    return b


def test_a_rare_gap_counts_from_five_percent_of_all_steps() -> None:
    found("LAU110", sometimes(2, 510).build())  # 1,010 us in ten steps of 2,005 us
    assert "1 gap(s) in 1 of 10 steps" in cleared("LAU110", sometimes(1, 990).build())


def test_a_gap_that_recurs_counts_at_any_length_above_the_threshold() -> None:
    found("LAU110", sometimes(5, 510).build())


def test_another_thread_that_works_is_no_bubble() -> None:
    cleared("LAU110", run(800, other_thread=True).build())


def test_a_wait_for_the_device_is_no_bubble() -> None:
    cleared("LAU110", run(800, wait=True).build())


def test_the_data_loader_has_a_rule_of_its_own() -> None:
    cleared("LAU110", run(800, loader=True).build())


def test_the_profilers_own_step_is_no_ones_cost() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(head=0, tail=0), b.op("aten::mm", head=500):
            b.launch()
        b.wait(800)
    cleared("LAU110", b.build())


def test_no_device_work() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    skipped("LAU110", b.build())


def layers(
    gap: float, *, usual: float = 3.0, number: int = 8, frames: int = 0, busy: float = 0.0, other: str = ""
) -> TraceBuilder:
    """Steps of `number` layers, a product and a function each, with Python of `gap` us behind each layer."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(number):
                with b.op("aten::linear", head=10, tail=5):
                    b.launch("gemm", call=5, delay=5, duration=2 + busy)
                b.wait(usual)
                with b.op("aten::gelu", head=10, tail=5):
                    b.launch(call=5, delay=5, duration=1)
                begin = b.now
                if frames:
                    with b.frame("train.py(7): normalise"):
                        for _ in range(frames):
                            with b.frame("train.py(9): <genexpr>"):
                                b.wait(max(0.0, gap / frames - 1))
                else:
                    b.wait(gap)
                if other:
                    b.slice(other, Kind.OPERATOR, begin + 1, gap - 2, thread="200")
    return b


def test_short_gaps_of_each_layer_add_up() -> None:
    result = found("LAU110", layers(50).build())
    assert title("LAU110", result) == (
        "For 377.0 us per step no thread launches anything: 8 gaps of about 47.0 us each, most between aten::gelu and "
        "aten::linear; the time goes into code that the trace does not show."
    )
    assert result.gain_ns == pytest.approx(8 * 47_000, rel=0.02)


def test_what_recording_python_took_in_them_is_not_theirs() -> None:
    """50 frames at 0.7 us each are 35 us of the 150."""
    result = found("LAU110", layers(150, frames=49).build())
    assert result.values["time"].value == pytest.approx(8 * (150 - 35 - 3) * 1e3, rel=0.03)
    assert result.location is not None
    assert result.location.file == "train.py"
    assert "<genexpr>" in title("LAU110", result)


def test_short_gaps_must_be_long_for_this_program_and_many() -> None:
    found("LAU110", layers(24).build())
    cleared("LAU110", layers(22).build())  # 19 us beyond the usual
    cleared("LAU110", layers(50, usual=12.0).build())  # a slow host, or deep modules: four times the usual is nothing
    found("LAU110", layers(50, number=4).build())
    cleared("LAU110", layers(50, number=3).build())


def test_short_gaps_behind_which_the_device_works_cost_nothing() -> None:
    cleared("LAU110", layers(50, busy=90.0).build())


def test_short_gaps_in_which_another_thread_works_are_none() -> None:
    cleared("LAU110", layers(50, other="autograd::engine::evaluate_function: MmBackward0").build())


def test_short_gaps_here_and_there_are_no_pattern() -> None:
    """As long together as eight of 50 us, but of a place that is mostly passed at once."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for layer in range(40):
                with b.op("aten::linear", head=10, tail=5):
                    b.launch("gemm", call=5, delay=5, duration=2)
                b.wait(60 if layer % 5 == 0 else 3)
    cleared("LAU110", b.build())


def test_optimizers_and_their_like_are_torchs_own() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::linear"):
                b.launch("gemm")
            begin = b.now
            for _ in range(12):
                with b.op("aten::_foreach_add_", head=10):
                    b.launch()
                b.wait(50)
            b.slice("Optimizer.step#SGD.step", Kind.ANNOTATION, begin - 0.1, b.now - begin + 0.2)
    cleared("LAU110", b.build())
