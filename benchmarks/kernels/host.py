"""Host cost of a call: `python -m benchmarks.kernels.host OUT.json`.

ID kernels-host. Question: does the remembered launch cost no more than 1.5 times an aten operator's call? Small
inputs, so that the device is never the limit; wall time of 200 back-to-back calls per round, arms in random order.
"graph" is a CUDA graph of the eager arm on fixed inputs, replayed. Forward and backward: "lanewise" is what a call gets
(PyTorch's own below a size, see `lanewise.kernels.dispatch.eligibility`), "kernel" the kernel whatever the size.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import triton
from benchmarks.kernels.measuring import host_times, machine

from lanewise.kernels import add_rms_norm, layer_norm, mlp, pointwise, rms_norm, softmax
from lanewise.kernels.dispatch import eligibility as guard
from lanewise.kernels.elementwise import _add_masked, add_masked, silu_mul
from lanewise.kernels.gemm import fused_mlp as mlps
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows.softmax_kernels import _softmax_rows


def graph_of(function, inputs: tuple):
    """The function captured on these inputs, as a call that replays it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            function(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        function(*inputs)
    return lambda *_: graph.replay()


def main(out: Path) -> None:
    functional = torch.nn.functional
    document = {"machine": machine(), "clock": "host-inclusive: wall time per call, 200 calls a round", "cases": []}

    def record(name: str, arms: dict, inputs: tuple) -> None:
        arms = {**arms, "graph": graph_of(arms["eager"], inputs)}
        with torch.no_grad():
            samples = host_times(arms, inputs, calls=200, rounds=21)
        document["cases"].append({"name": name, "arms": {arm: s.summary() for arm, s in samples.items()}})
        print(name, {arm: round(s.median, 2) for arm, s in samples.items()}, flush=True)
        out.write_text(json.dumps(document))

    x = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)
    double = pointwise(lambda a: a * 2)

    def plain_triton(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(a)
        _add_masked[(triton.cdiv(a.numel(), 1024),)](a, b, y, a.numel(), BLOCK=1024)
        return y

    record("x * 2", {"eager": lambda a: a * 2, "lanewise": double}, (x,))
    record("x + y", {"eager": torch.add, "lanewise": add_masked, "plain triton": plain_triton}, (x, x))
    record("silu(x) * y", {"eager": lambda a, b: functional.silu(a) * b, "lanewise": silu_mul}, (x, x))
    for cols in (1024, 2048, 4096):
        x = torch.randn(64, cols, device="cuda", dtype=torch.bfloat16)
        w, b = (torch.randn(cols, device="cuda", dtype=torch.bfloat16) for _ in range(2))

        def plain_softmax(a: torch.Tensor, cols: int = cols) -> torch.Tensor:
            y = torch.empty_like(a)
            _softmax_rows[(64,)](a, a, y, 64, cols, cols, 0, 1.0, False, 1, cols, 1, False, False, True, num_warps=8)
            return y

        compiled = torch.compile(lambda a: torch.softmax(a, -1), dynamic=False)
        record(
            f"softmax 64x{cols}",
            {
                "eager": lambda a: torch.softmax(a, -1),
                "lanewise": softmax,
                "plain triton": plain_softmax,
                "compile": compiled,
            },
            (x,),
        )
        torch._dynamo.reset()
        record(f"rms_norm 64x{cols}", {"eager": rms_norms.reference, "lanewise": rms_norm}, (x, w))
        record(f"layer_norm 64x{cols}", {"eager": layer_norms.reference, "lanewise": layer_norm}, (x, w, b))
        record(
            f"add_rms_norm 64x{cols}",
            {"eager": lambda a, r, w: rms_norms.reference(a + r, w), "lanewise": lambda a, r, w: add_rms_norm(a, r, w)},
            (x, x, w),
        )
    d = 64
    args = (
        torch.randn(512, d, device="cuda", dtype=torch.bfloat16),
        *(torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((d, d), (d,), (d, d), (d,))),
    )
    record("mlp 64-64-64 x512", {"eager": mlps.reference, "lanewise": mlp}, args)
    # A case where the device matters too: forward and backward of a norm, host-inclusive.
    for cols in (1024, 4096):
        x = torch.randn(512, cols, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        w = torch.randn(cols, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        dy = torch.randn(512, cols, device="cuda", dtype=torch.bfloat16)

        def both(function, x=x, w=w, dy=dy):
            return lambda: torch.autograd.grad(function(x, w), (x, w), dy)

        def forced(function, limit=guard.train_from_elements):
            run = both(function)

            def call():
                guard.train_from_elements = 0
                got = run()
                guard.train_from_elements = limit
                return got

            return call

        arms = {"eager": both(rms_norms.reference), "lanewise": both(rms_norm), "kernel": forced(rms_norm)}
        samples = host_times(arms, (), calls=50, rounds=15)
        name = f"rms_norm forward and backward 512x{cols}"
        document["cases"].append({"name": name, "arms": {arm: s.summary() for arm, s in samples.items()}})
        print(name, {arm: round(s.median, 2) for arm, s in samples.items()}, flush=True)
    out.write_text(json.dumps(document))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
