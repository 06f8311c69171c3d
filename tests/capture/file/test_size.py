from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.capture.file import size
from lanewise.capture.file.size import TraceSize
from lanewise.capture.profiling.profiler import Flags
from tests.capture.fakes import FakeTime

MB = 1 << 20


class Memory:
    """Memory in use as told."""

    def __init__(self, exact: bool = True) -> None:
        self.time = FakeTime()
        self.bytes = 100 * MB
        self.exact = exact
        self.size = TraceSize(Flags(), self.time.now, lambda: (self.bytes, self.exact))

    def after(self, us: float, more: int) -> int:
        self.time.pass_us(us)
        self.bytes += more
        return self.size.predicted()


def test_rows_grow_the_file_as_they_grow_memory() -> None:
    memory = Memory()
    memory.size.begin()
    assert memory.after(1_000_000, 50 * MB) == pytest.approx(55 * MB, rel=0.01)


def test_a_tensor_that_appears_at_once_is_not_a_million_rows() -> None:
    memory = Memory()
    memory.size.begin()
    assert memory.after(10_000, 400 * MB) <= 15_000_000


def test_what_a_step_needs_in_its_middle_is_not_rows() -> None:
    memory = Memory()
    memory.bytes += 300 * MB
    memory.size.observe()
    memory.bytes -= 300 * MB
    memory.size.begin()
    memory.after(2_000_000, 300 * MB)
    assert memory.size.predicted(inside=True) == 0
    assert memory.size.predicted() > 300 * MB
    memory.after(2_000_000, 30 * MB)
    assert memory.size.predicted(inside=True) == pytest.approx(33 * MB, rel=0.01)


def test_the_size_of_the_process_is_believed_only_when_it_grows_much() -> None:
    memory = Memory(exact=False)
    memory.size.begin()
    assert memory.after(1_000_000, 15 * MB) == 0
    assert memory.after(1_000_000, 5 * MB) > 0


def test_nothing_is_predicted_before_recording_or_where_the_system_does_not_say() -> None:
    memory = Memory()
    assert memory.size.predicted() == 0
    memory.bytes = 0
    memory.size.begin()
    assert memory.after(1_000_000, 500 * MB) == 0


@pytest.mark.skipif(size.allocated() == 0, reason="this C library does not say what it has handed out")
@pytest.mark.parametrize("flags", [Flags(), Flags(shapes=False), Flags(stacks=True), Flags(memory=True)])
def test_the_prediction_is_near_the_file_and_not_below_it(tmp_path: Path, flags: Flags) -> None:
    torch = pytest.importorskip("torch")
    from lanewise.capture.profiling.profiler import Session

    x = torch.ones(8, 8)
    session, predictor = Session(flags, "cpu"), TraceSize(flags)
    session.prepare()
    session.start()
    predictor.begin()
    for _ in range(8_000):
        torch.add(x, x)
    predicted = predictor.predicted()
    session.stop()
    session.export(str(tmp_path / "trace.json"))
    written = (tmp_path / "trace.json").stat().st_size
    assert 0.95 * written < predicted < 1.6 * written
