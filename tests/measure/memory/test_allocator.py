"""Device memory over time: the peak and its owners, churn, fragmentation."""

from __future__ import annotations

from lanewise.measure.facts import Facts
from lanewise.measure.memory.allocator import MemoryUse
from tests.support.builder import TraceBuilder
from tests.support.corpus import facts_of


class Allocator(TraceBuilder):
    """A builder with an allocator: blocks at addresses, totals that follow."""

    def __init__(self, before: int = 0, reserved: int = 1000) -> None:
        super().__init__()
        self.total, self.held, self.address = before, reserved, 1

    def take(self, size: int, *, at: float | None = None, device_type: int = 1) -> int:
        self.address += 1
        self._record(size, self.address, at, device_type)
        return self.address

    def give(self, address: int, size: int, *, at: float | None = None) -> None:
        self._record(-size, address, at, 1)

    def _record(self, size: int, address: int, at: float | None, device_type: int) -> None:
        if device_type == 1:
            self.total += size
        self.row(
            "memory",
            time=round((self.now if at is None else at) * 1000),
            lane=self.lane("host", "100", "100"),
            bytes=size,
            address=address,
            allocated=self.total,
            reserved=self.held,
            device_type=device_type,
            device_id=0 if device_type == 1 else -1,
        )
        self.now += 0.5


def measured(b: Allocator) -> MemoryUse:
    found = Facts(b.build()).memory
    assert found is not None
    return found


def test_without_memory_events_there_is_nothing_to_say() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch("gemm")
    assert Facts(b.build()).memory is None


def test_the_peak_its_time_and_its_owners() -> None:
    b = Allocator(before=100)
    with b.step():
        with b.frame("nn.Module: Linear_0"), b.op("aten::addmm"), b.op("aten::empty"):
            kept = b.take(300)
        with b.op("aten::gelu"):
            short = b.take(200)
            top = b.now - 0.5
        b.give(short, 200)
        with b.op("aten::relu"):
            b.take(50)
        b.give(kept, 300)
    found = measured(b)
    assert (found.peak, found.peak_time, found.known_at_peak) == (600, round(top * 1000), 500)
    assert [(o.operator, o.module, o.step, o.bytes) for o in found.owners] == [
        ("aten::addmm", "Linear_0", 2, 300),
        ("aten::gelu", "", 2, 200),
    ]


def test_a_block_freed_at_the_peaks_moment_is_not_its_owner() -> None:
    b = Allocator()
    with b.step(), b.op("aten::a"):
        first = b.take(100)
        b.give(first, 100)
        b.take(100)
    found = measured(b)
    # Both moments hold 100 bytes; the first one counts, with the block of that moment.
    assert (found.peak, found.known_at_peak) == (100, 100)


def test_an_address_used_again_is_another_block() -> None:
    b = Allocator()
    with b.step(), b.op("aten::a"):
        address = b.take(100)
        b.give(address, 100)
        b._record(400, address, None, 1)
    assert measured(b).known_at_peak == 400


def test_churn_counts_what_each_step_asks_for_and_keeps() -> None:
    b = Allocator()
    for _ in range(3):
        with b.step(), b.op("aten::a"):
            short = b.take(100)
            b.take(10)
            b.give(short, 100)
    found = measured(b)
    assert found.churn["allocated"].tolist() == [110, 110, 110]
    assert found.churn["allocations"].tolist() == [2, 2, 2]
    assert found.churn["grown"].tolist() == [10, 10, 10]
    assert found.reused == 100


def test_fragmentation_is_what_is_reserved_and_not_allocated() -> None:
    b = Allocator(before=500, reserved=2000)
    with b.step(), b.op("aten::a"):
        b.take(100)
    assert measured(b).fragmentation == 1 - 600 / 2000


def test_events_of_the_cpu_are_not_the_devices() -> None:
    b = Allocator()
    with b.step(), b.op("aten::a"):
        b.take(5000, device_type=0)
        b.take(100)
    assert measured(b).peak == 100


def test_threads_that_write_in_turn_are_put_in_order() -> None:
    b = Allocator()
    with b.step(), b.op("aten::a"):
        b.take(100, at=9)
        b.take(100, at=5)
    found = measured(b)
    assert found.over_time["time"].tolist() == [5_000, 9_000]


def test_a_real_training_step() -> None:
    found = facts_of("03_mnist_train_stack").memory
    assert found is not None
    assert (found.peak, found.peak_reserved, found.capacity) == (1_129_137_152, 1_459_617_792, 85_017_493_504)
    assert found.churn["grown"].tolist() == [0, 0, 0]
    assert found.owners[0].operator == "aten::convolution_backward"
    assert sum(owner.bytes for owner in found.owners) == found.known_at_peak
