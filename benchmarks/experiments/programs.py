"""The programs of the experiments, most important first.

Each is an example with its arguments, the number of the experiment that it belongs to, and how it is recorded. `small`
replaces the arguments for a trial on the CPU; None leaves the program out there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# A cold program is recorded from its second step on, with nothing before it that could warm it up.
COLD: dict[str, Any] = {"skip": 1, "timed_max": 0, "warmup": 1, "active_min": 20, "active_max": 20}
LONG: dict[str, Any] = {"active_min": 20, "active_max": 20}
SHORT: dict[str, Any] = {"timed_max": 20, "active_min": 5, "active_max": 8, "active_seconds": 2.0}
# Steps of tens of thousands of rows: few of them, or the file grows beyond use.
FEW: dict[str, Any] = {"timed_max": 10, "active_min": 3, "active_max": 3}


@dataclass(frozen=True)
class Entry:
    """One program to record.

    Attributes:
        name: of the trace. experiment: as numbered in the documentation. script: below `examples/`.
        arguments: on a GPU. small: on the CPU. plan: fields of the recorder's plan. flags: of its flags.
        step_on: function that begins a step; None where modules or an optimizer tell. seconds: expected, to plan with.
    """

    name: str
    experiment: str
    script: str
    arguments: str = ""
    small: str | None = ""
    plan: dict[str, Any] = field(default_factory=lambda: dict(LONG))
    flags: dict[str, bool] = field(default_factory=dict[str, bool])
    step_on: str | None = "step"
    seconds: float = 4.0


def _matmul(name: str, experiment: str, arguments: str, **more: Any) -> Entry:
    small = arguments.replace("4096", "96") if "--graph" not in arguments and "reduce" not in arguments else None
    return Entry(name, experiment, "matmul_add.py", arguments, small, **more)


def _bad(name: str, good: str = "--good", **more: Any) -> list[Entry]:
    return [
        Entry(f"{name}-bad", "bad", f"bad/{name}.py", **more),
        Entry(f"{name}-good", "bad", f"bad/{name}.py", good, good, **more),
    ]


COMPILES = 12.0

ENTRIES: list[Entry] = [
    # 1. E1 and E2: cold, warm, without a schedule, twenty steps.
    _matmul("matmul_add-64-cold", "E1", "--size 64", plan=COLD),
    _matmul("matmul_add-64-warm", "E1", "--size 64 --warmup"),
    _matmul("matmul_add-64-unscheduled", "E2", "--size 64 --warmup", plan={**COLD, "skip": 0, "warmup": 0}),
    _matmul("matmul_add-4096-cold", "E5", "--size 4096", plan=COLD),
    _matmul("matmul_add-4096-warm", "E5", "--size 4096 --warmup"),
    _matmul("matmul_add-4096-fp32", "E5", "--size 4096 --dtype float32 --warmup"),
    _matmul("matmul_add-4096-tf32", "E5", "--size 4096 --dtype float32 --tf32 --warmup"),
    _matmul("matmul_add-64-compile", "E6", "--size 64 --warmup --compile", seconds=COMPILES),
    _matmul("matmul_add-4096-compile", "E6", "--size 4096 --warmup --compile", seconds=COMPILES),
    # 2. E8 compiled; E9 as published.
    Entry("linear-published", "E8", "linear.py", "--batch 1024 --inputs 32 --outputs 64", step_on=None),
    Entry(
        "linear-published-compile",
        "E8",
        "linear.py",
        "--batch 1024 --inputs 32 --outputs 64 --compile",
        "--compile",
        step_on=None,
        seconds=COMPILES,
    ),
    Entry("linear-1024", "E8", "linear.py", step_on=None),
    Entry("linear-1024-compile", "E8", "linear.py", "--compile", "--compile", step_on=None, seconds=COMPILES),
    Entry(
        "geglu-published",
        "E9",
        "mlp.py",
        "--kind geglu --hidden 768 --inner 3072 --batch 64 --sequence 128",
        "--kind geglu --hidden 64 --inner 128",
        step_on=None,
    ),
    Entry(
        "geglu-published-compile",
        "E9",
        "mlp.py",
        "--kind geglu --hidden 768 --inner 3072 --batch 64 --sequence 128 --compile",
        "--kind geglu --hidden 64 --inner 128 --compile",
        step_on=None,
        seconds=COMPILES,
    ),
    Entry("mlp-256", "E9", "mlp.py", step_on=None),
    Entry("mlp-256-compile", "E9", "mlp.py", "--compile", None, step_on=None, seconds=COMPILES),
    Entry("swiglu-4096", "E9", "mlp.py", "--kind swiglu --hidden 4096 --inner 16384 --batch 4096", None, step_on=None),
    Entry(
        "swiglu-4096-compile",
        "E9",
        "mlp.py",
        "--kind swiglu --hidden 4096 --inner 16384 --batch 4096 --compile",
        None,
        step_on=None,
        seconds=COMPILES,
    ),
    # 3. E10 and E11: attention, all backends.
    *[
        Entry(f"attention-{backend}", "E10" if backend in ("naive", "inplace") else "E11", "attention.py", given, small)
        for backend in ("naive", "inplace", "math", "efficient", "flash", "cudnn", "default")
        for given in [f"--backend {backend}"]
        for small in [given if backend in ("naive", "inplace", "math", "default") else None]
    ],
    # 4. E3: batch 8 and 64.
    _matmul("matmul_add-64-batch8", "E3", "--size 64 --batch 8 --warmup"),
    _matmul("matmul_add-64-batch64", "E3", "--size 64 --batch 64 --warmup"),
    # E7: graphs.
    _matmul("matmul_add-64-graph", "E7", "--size 64 --graph"),
    _matmul("matmul_add-4096-graph", "E7", "--size 4096 --graph"),
    _matmul(
        "matmul_add-64-reduce-overhead",
        "E7",
        "--size 64 --warmup --compile --mode reduce-overhead",
        seconds=COMPILES,
    ),
    Entry("mlp-256-graph", "E7", "mlp.py", "--graph", None),
    # 5. E15: Triton through the profiler; the timings of E15 to E17 come from timers.py.
    Entry("vector_add-one-block", "E15", "vector_add.py", "--version one-block", None),
    Entry("vector_add-masked", "E15", "vector_add.py", "--version masked", None),
    Entry("vector_add-autotuned", "E15", "vector_add.py", "--version autotuned", None),
    Entry("softmax-naive", "E16", "softmax.py", "--version naive", "--version naive"),
    Entry("softmax-triton", "E16", "softmax.py", "--version triton", None),
    Entry("softmax-compiled", "E16", "softmax.py", "--version compiled", None, seconds=COMPILES),
    # 7. E13 as published, and the calling contexts of E12.
    Entry("resnet50", "E13", "resnet.py", step_on=None, plan=SHORT, seconds=6.0),
    Entry("resnet50-moved", "E13", "resnet.py", "--one-way", "--one-way", plan=FEW, seconds=8.0),
    Entry(
        "resnet50-moved-stacks", "E13", "resnet.py", "--one-way", None, plan=FEW, flags={"stacks": True}, seconds=10.0
    ),
    Entry("mnist", "E12", "mnist.py", step_on=None, plan=SHORT),
    Entry("mnist-stacks", "E12", "mnist.py", step_on=None, plan=SHORT, flags={"stacks": True, "memory": True}),
    # E18 to E20.
    Entry("llm-prefill", "E18", "llm.py", "prefill", "prefill", step_on=None, plan=SHORT),
    Entry("llm-decode", "E19", "llm.py", "decode --stop-test", "decode --stop-test", step_on=None, plan=SHORT),
    Entry(
        "llm-decode-static", "E19", "llm.py", "decode --cache static", "decode --cache static", step_on=None, plan=SHORT
    ),
    Entry(
        "llm-train",
        "E20",
        "llm.py",
        "train --prompt 512 --batch 4",
        "train",
        step_on=None,
        plan={**SHORT, "active_max": 5},
    ),
    Entry("llm-prefill-compile", "E18", "llm.py", "prefill --compile", None, step_on=None, plan=SHORT, seconds=30.0),
    Entry(
        "llm-train-compile",
        "E20",
        "llm.py",
        "train --prompt 512 --batch 4 --compile",
        None,
        step_on=None,
        plan={**SHORT, "active_max": 5},
        seconds=45.0,
    ),
    # The bad programs and their twins.
    *_bad("item_loop"),
    *_bad("pageable_copy"),
    *_bad("host_stall", step_on=None, flags={"stacks": True}),
    *_bad("nchw_conv", step_on=None),
    *_bad("unfused_chain", seconds=8.0),
    *_bad("optimizer_loop", step_on=None, plan=SHORT),
    *_bad("growing_cache"),
    *_bad("cast_churn", step_on=None),
    *_bad("synchronize", flags={"sync_events": True}),
    *_bad("model_moved", plan=SHORT),
    *_bad("loader_stall", step_on=None, plan=SHORT),
    *_bad("zero_fill", step_on=None, plan=SHORT),
    *_bad("many_copies"),
    *_bad("dynamic_shape"),
    *_bad("single_precision"),
    *_bad("grad_in_inference", plan=SHORT, step_on="torch.nn.modules.container:Sequential.forward"),
    *_bad("graph_break", seconds=8.0),
    Entry(
        "recompile-bad",
        "bad",
        "bad/recompile.py",
        "--steps 45",
        "--steps 30",
        plan={"skip": 2, "timed_max": 5, "active_min": 5, "active_max": 5},
        seconds=20.0,
    ),
    # 6. E21: a 7B decoder with random weights, batch 1.
    Entry(
        "llm-7b-decode",
        "E21",
        "llm.py",
        "decode --shape 7b --cache static",
        None,
        step_on=None,
        plan=SHORT,
        seconds=20.0,
    ),
    Entry(
        "llm-7b-decode-reduce-overhead",
        "E21",
        "llm.py",
        "decode --shape 7b --cache static --compile --mode reduce-overhead --steps 80",
        None,
        step_on=None,
        plan={"timed_max": 10, "active_min": 5, "active_max": 5},
        seconds=90.0,
    ),
]
