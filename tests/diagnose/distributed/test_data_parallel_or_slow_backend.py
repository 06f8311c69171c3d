"""DIS104: ways of distributing that do not scale."""

from __future__ import annotations

from typing import Any

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import H100, TraceBuilder


def program(*, annotation: str = "", devices: int = 1, info: dict[str, Any] | None = None) -> Trace:
    metadata: dict[str, Any] = {"deviceProperties": [H100]}
    if info is not None:
        metadata["distributedInfo"] = info
    b = TraceBuilder(metadata=metadata)
    for _ in range(3):
        with b.step(), b.span(annotation or "forward"):
            for device in range(devices):
                b.launch("gemm", device=str(device))
    return b.build()


def test_replication_over_several_devices() -> None:
    finding = found("DIS104", program(annotation="DataParallel.forward", devices=4))
    assert title("DIS104", finding).startswith("torch.nn.DataParallel replicates the model over 4 devices")


def test_on_one_device_it_replicates_nothing() -> None:
    assert skipped("DIS104", program(annotation="DataParallel.forward"))


def test_a_backend_that_goes_through_the_host() -> None:
    finding = found("DIS104", program(info={"backend": "gloo", "rank": 0, "world_size": 2}))
    assert "backend gloo" in title("DIS104", finding)


def test_fast_backends_are_clear() -> None:
    for backend in ("nccl", "cuda:nccl,cpu:gloo", "xccl"):
        assert cleared("DIS104", program(info={"backend": backend, "rank": 0, "world_size": 2}))


def test_one_process_is_not_distributed() -> None:
    assert skipped("DIS104", program(info={"backend": "gloo", "world_size": 1}))
    assert skipped("DIS104", program(info={"backend": 7, "world_size": "many"}))


def test_a_group_of_cpu_tensors_is_silent() -> None:
    b = TraceBuilder(metadata={"distributedInfo": {"backend": "gloo", "world_size": 2}})
    with b.step(), b.op("aten::mm"):
        pass
    assert skipped("DIS104", b.build())
