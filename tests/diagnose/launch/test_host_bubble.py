from __future__ import annotations

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
