"""SYN108: many copies of little."""

from __future__ import annotations

import pytest

from lanewise.diagnose.engine import diagnose
from lanewise.measure.facts import Facts
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(copies: int = 12, *, size: int = 4096, annotation: str = "", source: str = "pinned") -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(copies):
                if annotation:
                    with b.span(annotation), b.op("aten::copy_"):
                        b.copy("HtoD", size=size, source=source, duration=2)
                else:
                    with b.op("aten::copy_"):
                        b.copy("HtoD", size=size, source=source, duration=2)
            with b.op("aten::mm"):
                b.launch("gemm", duration=20)
    return b.build()


def test_costs_all_but_one_of_the_operators_around_the_copies() -> None:
    finding = found("SYN108", program())
    assert finding.gain_ns == pytest.approx(11 * 7_000, rel=0.15)
    assert title("SYN108", finding) == (
        "12 copies per step between host and GPU with 4.10 kB each (median); each costs the host 7.00 us."
    )


def test_fires_from_ten_copies() -> None:
    assert found("SYN108", program(10))
    assert cleared("SYN108", program(9))


def test_fires_below_64_kib() -> None:
    assert found("SYN108", program(size=64 * 1024 - 1))
    assert cleared("SYN108", program(size=64 * 1024))


def test_copies_of_fsdp_and_ddp_are_their_own() -> None:
    for annotation in ("FSDP::pre_forward", "DistributedDataParallel.forward"):
        assert cleared("SYN108", program(annotation=annotation))


def test_gives_way_to_readbacks() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            b.launch("add")
            for _ in range(20):
                with b.op("aten::item"), b.op("aten::_local_scalar_dense"):
                    b.copy("DtoH", size=4, duration=1)
                    b.synchronize()
    findings = {finding.code: finding for finding in diagnose(Facts(b.build()))[0]}
    assert findings["SYN108"].recoverable_us_per_step < 0.2 * findings["SYN108"].alone_us_per_step


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::copy_"):
        pass
    assert skipped("SYN108", b.build())
