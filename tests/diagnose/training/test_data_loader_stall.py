from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(load: float, *, kernel: float = 5.0, workers: bool = False, step: float = 1000.0) -> TraceBuilder:
    """Four steps of 1000 us that load a batch first."""
    loader = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    b = TraceBuilder()
    for _ in range(4):
        begin = b.now
        with b.step(head=0, tail=0):
            if load:
                with b.span(f"enumerate(DataLoader)#{loader}.__next__", Kind.ANNOTATION, head=load, tail=0):
                    pass
            b.wait(max(0, begin + step - 20 - b.now))
            with b.op("aten::mm", head=10, tail=0):
                b.launch("gemm", call=5, delay=5, duration=kernel)
            b.wait(max(0, begin + step - b.now))
    return b


def test_the_device_waits_for_the_batch() -> None:
    result = found("OPT103", run(400).build())
    assert title("OPT103", result) == (
        "The step waits 400.0 us for its next batch (40 %) while the device is idle; it is loaded in the same "
        "process, without workers."
    )
    assert result.gain_ns == pytest.approx(400_000)


def test_workers_may_be_too_slow() -> None:
    assert "worker processes" in title("OPT103", found("OPT103", run(400, workers=True).build()))


def test_the_threshold_is_one_twentieth() -> None:
    cleared("OPT103", run(50).build())
    found("OPT103", run(51).build())


def test_a_busy_device_waits_for_nobody() -> None:
    cleared("OPT103", run(400, kernel=990).build())


def test_no_loader_and_no_device() -> None:
    skipped("OPT103", run(0).build())
    b = TraceBuilder()
    with b.step(), b.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        pass
    skipped("OPT103", b.build())
