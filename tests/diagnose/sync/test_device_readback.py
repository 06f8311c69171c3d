"""SYN101: values read back from the device."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def item(b: TraceBuilder, *, size: int = 4) -> None:
    with b.op("aten::item"), b.op("aten::_local_scalar_dense"):
        b.copy("DtoH", size=size, duration=1)
        b.synchronize()


def program(readbacks: int, *, every: int = 1) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            with b.op("aten::add"):
                b.launch("add", duration=20)
            for _ in range(readbacks if step % every == 0 else 0):
                item(b)
    return b.build()


def test_counts_what_is_read_and_what_it_costs() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(3):
                item(b)
    finding = found("SYN101", b.build())
    assert title("SYN101", finding).startswith(
        "The host asks the GPU for 3 values per step and stops for 14.0 us each time"
    )
    # Two operators of 2 us around a copy call of 5 us and a wait of 5 us.
    assert finding.gain_ns == pytest.approx(3 * 14_000 + 1_000)
    assert finding.events
    assert finding.location is not None
    assert finding.location.operators[-1] == "aten::item"


def test_waiting_for_work_costs_the_idle_time_afterwards_not_the_work() -> None:
    b = TraceBuilder()
    for _ in range(5):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=1000)
            item(b)
            b.wait(60)
    finding = found("SYN101", b.build())
    # Nearly all of the read is the product; then the device idles for 60 us and more, but for the last step.
    assert 45_000 < finding.gain_ns < 100_000


def test_a_copy_that_blocks_the_host_is_time_of_transfers() -> None:
    b = TraceBuilder()
    for _ in range(5):
        with b.step(), b.op("aten::item"), b.op("aten::_local_scalar_dense"):
            b.copy("DtoH", size=4, destination="pageable", duration=500)


def test_a_step_without_readbacks_is_clear() -> None:
    assert cleared("SYN101", program(0))


def test_fires_from_one_per_step_on() -> None:
    assert cleared("SYN101", program(1, every=2))
    assert found("SYN101", program(1))
    assert found("SYN101", program(1, every=2), per_step_from=0.4)


def test_values_of_cpu_tensors_cost_no_synchronisation() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.launch("add")
            for _ in range(100):
                with b.op("aten::item"), b.op("aten::_local_scalar_dense"):
                    pass
    assert cleared("SYN101", b.build())


@pytest.mark.parametrize("name", ["aten::nonzero", "aten::masked_select"])
def test_data_dependent_shapes_are_another_rules(name: str) -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op(name):
            b.launch("scan")
            b.copy("DtoH", size=8, duration=1)
            b.synchronize()
    assert cleared("SYN101", b.build())


def test_a_large_copy_to_the_host_is_another_rules() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_"):
            b.copy("DtoH", destination="pageable", size=1 << 20, duration=100)
    assert cleared("SYN101", b.build())


def test_a_generation_loop_is_named_as_such() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(4):
                with b.op("aten::embedding"):
                    b.launch("index")
                with b.op("aten::argmax"):
                    b.launch("argmax")
                item(b)
                item(b)
    sentence = title("SYN101", found("SYN101", b.build()))
    assert sentence.startswith("The stop test of the generation loop reads 8 values per step back")


def test_the_source_line_is_named_where_the_trace_has_stacks() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.frame("train.py(41): log_loss"):
            b.launch("add")
            item(b)
    finding = found("SYN101", b.build())
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("train.py", 41)


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::item"):
            pass
    assert skipped("SYN101", b.build())
