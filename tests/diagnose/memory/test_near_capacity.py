"""MEM102: a peak close to the device's memory."""

from __future__ import annotations

from typing import Any

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import H100, TraceBuilder

CAPACITY = 85017493504


def program(allocated: float, reserved: float, *, device: dict[str, Any] | None = None) -> Trace:
    """Shares of the device's memory; a tenth of it is asked for while recording."""
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    total = 0
    for _ in range(3):
        with b.step(), b.frame("nn.Module: Linear_0"), b.op("aten::mm"):
            b.launch("gemm")
            if not total:
                total = round(allocated * CAPACITY)
                b.row(
                    "memory",
                    time=round(b.now * 1000),
                    lane=b.lane("host", "100", "100"),
                    bytes=CAPACITY // 10,
                    address=1,
                    allocated=total,
                    reserved=round(reserved * CAPACITY),
                    device_type=1,
                    device_id=0,
                )
    return b.build()


def test_names_who_holds_the_memory() -> None:
    finding = found("MEM102", program(0.8, 0.95))
    assert title("MEM102", finding) == (
        "At its peak the program holds 80.8 GB of the device's 85.0 GB (95 %): it may run out of memory."
    )
    rows = finding.evidence[0].rows  # type: ignore[union-attr]
    assert [(row["operator"], row["module"]) for row in rows] == [
        ("from before the recording", ""),
        ("aten::mm", "Linear_0"),
    ]
    assert rows[0]["bytes"] + rows[1]["bytes"] == round(0.8 * CAPACITY)


def test_fires_above_ninety_percent() -> None:
    assert found("MEM102", program(0.8, 0.901))
    assert cleared("MEM102", program(0.8, 0.899))


def test_fragmentation_is_named_from_half_of_the_memory_on() -> None:
    assert title("MEM102", found("MEM102", program(0.39, 0.6))).startswith(
        "The allocator keeps 51.0 GB for a peak of 33.2 GB"
    )
    assert cleared("MEM102", program(0.41, 0.6))  # below 1.5 times
    assert cleared("MEM102", program(0.2, 0.45))  # below half of the memory


def test_without_memory_events_it_says_what_to_record() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.launch("gemm")
    assert "profile_memory=True" in needed("MEM102", b.build())


def test_without_the_devices_size_it_cannot_tell() -> None:
    assert "deviceProperties" in needed("MEM102", program(0.8, 0.95, device={"name": "NVIDIA X"}))


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    assert skipped("MEM102", b.build())
