"""Traces that the page's tests open."""

from __future__ import annotations

from lanewise.trace.model import Trace
from tests.support.builder import TraceBuilder


def training(steps: int = 4, *, name: str = "aten::mul", kernel: str = "void mul_kernel<float>") -> Trace:
    """A host-bound loop: forward and backward operators, many tiny kernels, a pageable copy, memory."""
    b = TraceBuilder()
    for step in range(steps):
        with b.step(), b.frame("train.py(12): train"), b.frame("nn.Module: Linear_0"):
            b.copy(source="pageable")
            for i in range(30):
                sequence = step * 100 + i
                with b.op(
                    name, dims=[[64, 64], [64, 64]], types=["float", "float"], sequence=sequence, forward_thread=0
                ):
                    b.launch(kernel, duration=2)
            thread, b.thread = b.thread, "200"
            for i in range(10):
                with b.op("MulBackward0", sequence=step * 100 + i, forward_thread=1):
                    b.launch("mul_backward", duration=2)
            b.thread = thread
            with b.op("aten::item"):
                b.synchronize()
        for total in (1_000_000, 3_000_000, 2_000_000):
            b.row(
                "memory",
                time=int(b.now * 1000),
                lane=0,
                bytes=total,
                address=1,
                allocated=total,
                reserved=4_000_000,
                device_type=1,
                device_id=0,
            )
            b.wait(1)
    return b.build()
