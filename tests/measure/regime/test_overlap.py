"""What runs beside what."""

from __future__ import annotations

from lanewise.measure.facts import Facts
from lanewise.measure.regime.overlap import Overlap
from tests.support.builder import TraceBuilder


def overlap(b: TraceBuilder) -> Overlap:
    return Facts(b.build()).overlap


def test_half_hidden_communication() -> None:
    b = TraceBuilder()
    with b.step():
        b.kernel("gemm", 0, 100, stream="7")
        b.kernel("ncclDevKernel_AllReduce", 50, 100, stream="20")
    found = overlap(b)
    assert (found.communication_hidden, found.communication.total) == (50_000, 100_000)
    assert found.communication_hidden_share == 0.5
    assert found.concurrent == 50_000


def test_copies_on_a_side_stream_are_hidden_and_in_line_exposed() -> None:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::mm"):
            b.launch("gemm", duration=1000)
        with b.op("aten::copy_"):
            b.copy("HtoD", duration=200, stream="9")
        with b.op("aten::copy_"):
            b.copy("HtoD", duration=300, stream="7")
    found = overlap(b)
    assert (found.copies_hidden, found.copies.total) == (200_000, 500_000)


def test_a_stream_row_says_what_it_does_and_when_it_is_alone() -> None:
    b = TraceBuilder()
    with b.step():
        b.kernel("gemm", 0, 100, stream="7")
        b.kernel("add", 80, 100, stream="9")
    streams = {row["stream"]: row for row in overlap(b).streams.rows()}
    assert streams["7"]["busy"] == streams["7"]["compute"] == 100_000
    assert (streams["7"]["alone"], streams["9"]["alone"]) == (80_000, 80_000)


def test_two_overlapping_streams_count_once() -> None:
    b = TraceBuilder()
    with b.step():
        for stream in ("7", "9", "11"):
            b.kernel("gemm", 0, 100, stream=stream)
    found = overlap(b)
    assert (found.compute.total, found.concurrent) == (100_000, 100_000)


def test_another_device_is_another_story() -> None:
    b = TraceBuilder()
    with b.step():
        b.kernel("gemm", 0, 100, stream="7")
        b.kernel("gemm", 0, 90, stream="7", device="1")
    found = overlap(b)
    assert found.compute.total == 100_000
    assert found.streams.height == 1


def test_without_device_work_everything_is_zero() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    found = overlap(b)
    assert (found.compute.total, found.communication_hidden_share, found.copies_hidden_share) == (0, 0.0, 0.0)
