"""Streams that wait for each other, in recordings in which the host was too slow for any of them to wait."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.facts import Facts
from lanewise.replay.simulate import simulate
from lanewise.replay.undistort import slower
from tests.support.builder import TraceBuilder

STEPS, TRANSFERS = 6, 4


def communicates(b: TraceBuilder, name: str, duration: float = 0.0) -> None:
    """Sends or receives on a stream of its own, or waits until that is over."""
    texts = {f"{one}_text": b.text("0") for one in ("dtype", "group", "description", "ranks")}
    numbers = dict.fromkeys(
        ("in_elements", "out_elements", "group_size", "rank", "sequence_number", "asynchronous"), -1
    )
    with b.op("record_param_comms") as recorded:
        b.row("collective_args", event=recorded, collective_text=b.text(name), **texts, **numbers)
        b.call("cudaStreamWaitEvent", duration=1.0)
    if name != "wait":
        b.launch("ncclDevKernel_SendRecv", duration=duration, stream="18")


def stage(*, waits: bool, sends: str = "recv") -> Facts:
    """Four microbatches a step, each received in 100 us and then computed in as long, by a host that takes 500 us."""
    b = TraceBuilder()
    for _ in range(STEPS):
        with b.step(head=0, tail=0):
            for _ in range(TRANSFERS):
                communicates(b, sends, 100.0)
                b.wait(400.0)
                if waits:
                    communicates(b, "wait")
                b.launch("gemm", duration=100.0)
                b.wait(500.0)
    return Facts(b.build())


def quick_us(facts: Facts) -> float:
    return simulate(slower(facts.graph, 0.01)).step_ns / 1e3


def test_what_waits_for_a_transfer_waits_for_it_behind_a_quicker_host() -> None:
    """Each transfer waits for what was computed before it, and is waited for: 200 us a microbatch, and not 100."""
    facts = stage(waits=True)
    assert simulate(facts.graph, rounds=1).end.max() == pytest.approx(facts.graph.recorded_ns, rel=0.01)
    assert quick_us(facts) == pytest.approx(TRANSFERS * 200, rel=0.1)


def test_what_nobody_waits_for_is_hidden() -> None:
    """A send waits for what it sends; what is computed next does not wait for it."""
    facts = stage(waits=False)
    graph = facts.graph
    assert quick_us(facts) == pytest.approx(TRANSFERS * 100, rel=0.1)
    device = np.flatnonzero(~graph.on_host)
    transfers = device[graph.lane[device] == graph.lane[device[0]]]
    computes = np.setdiff1d(device, transfers)
    # All but the first, before which the run has computed nothing.
    assert (graph.second[transfers[1:]] == computes[:-1]).all()
    assert (graph.second[computes] == -1).all()


def test_a_wait_is_for_what_was_sent_last() -> None:
    """A stage in the middle: what it sent before it does not wait for, but for what it receives then."""
    b = TraceBuilder()
    for _ in range(STEPS):
        with b.step(head=0, tail=0):
            communicates(b, "recv", 20.0)
            b.wait(100.0)
            communicates(b, "wait")
            b.launch("gemm", duration=50.0)
            b.wait(100.0)
            communicates(b, "send", 20.0)
            b.wait(400.0)
    graph = Facts(b.build()).graph
    device = np.flatnonzero(~graph.on_host)
    received, computed, sent = device[0::3], device[1::3], device[2::3]
    assert (graph.second[computed] == received).all()
    assert (graph.second[sent] == computed).all()
    assert (graph.second[received[1:]] == computed[:-1]).all()
