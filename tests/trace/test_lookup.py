"""Rows of side tables by event."""

from __future__ import annotations

import numpy as np

from tests.support.builder import TraceBuilder


def test_events_without_a_row_and_no_event_at_all_have_none() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm", dims=[[2, 2]], types=["float"]) as operator:
        call, kernel = b.launch()
    trace = b.build()
    # -1 stands for "no event"; as an unsigned key it must not wrap around to one.
    wanted = np.array([kernel, operator, call, -1, len(trace) + 5])
    assert trace.lookup("operator_args", wanted).tolist() == [-1, 0, -1, -1, -1]
    assert trace.lookup("kernel_args", wanted).tolist() == [0, -1, -1, -1, -1]
    assert trace.lookup("copy_args", wanted).tolist() == [-1] * 5
