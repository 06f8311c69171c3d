"""SYN103: copies through ordinary host memory."""

from __future__ import annotations

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def loop(
    *,
    source: str = "pageable",
    size: int = 8_000_000,
    duration: float = 1000,
    steps: int = 5,
    every: int = 1,
    compute: float = 500,
) -> Trace:
    b = TraceBuilder()
    for step in range(steps):
        with b.step():
            if step % every == 0:
                with b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_"):
                    b.copy("HtoD", source=source, size=size, duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
            b.synchronize()
    return b.build()


def test_names_bytes_rate_and_the_time_the_host_is_blocked() -> None:
    finding = found("SYN103", loop())
    assert title("SYN103", finding) == (
        "1 copy per step through ordinary (pageable) host memory: the host is blocked for 1.01 ms (8.00 MB at "
        "7.92 GB/s)."
    )
    assert round(finding.gain_ns / 1e3) == 853


def test_pinned_copies_are_clear() -> None:
    assert cleared("SYN103", loop(source="pinned"))


def test_fires_from_one_percent_of_the_step() -> None:
    # 20 us of a call in a step of 1,030 and of 3,030 us.
    assert found("SYN103", loop(duration=10, compute=1000))
    assert found("SYN103", loop(duration=10, compute=1600))
    assert cleared("SYN103", loop(duration=10, compute=3000))
    assert found("SYN103", loop(duration=10, compute=3000), share_from=0.005)


def test_copies_of_half_of_the_steps_are_not_the_loops() -> None:
    assert cleared("SYN103", loop(every=2))


def test_readbacks_of_single_values_are_another_rules() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::item"), b.op("aten::_local_scalar_dense"):
            b.copy("DtoH", destination="pageable", size=8, duration=30)
    assert cleared("SYN103", b.build())


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    assert skipped("SYN103", b.build())


def test_the_wait_behind_a_copy_goes_with_it() -> None:
    b = TraceBuilder()
    for _ in range(5):
        with b.step():
            with b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_"):
                b.copy("HtoD", source="pageable", size=8_000_000, duration=1000, call=20)
                b.synchronize()
            for _ in range(40):
                with b.op("aten::mm"):
                    b.launch("gemm", duration=1)
    # Pinned, the copy takes 160 us, beside which the host launches for 280.
    assert found("SYN103", b.build()).gain_ns > 1_000_000
