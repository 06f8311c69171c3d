"""What an expert says about each recording of tests/data/twins: its regime, its defect, and what else may be said.

The defect is known before any tool looks: `NAME-bad` was written to have it, and the other programs have a recorded
faster form whose difference is the defect. A program without a defect must be left in peace.

Codes that are right although nothing was planted:

- LAU101 and LAU106 wherever thirty or more launches per step leave the device waiting (the program runs faster with
  fewer launches, whatever else was mended);
- KER112 and LAU102 in the channels-last twin of `nchw_conv`: its batch normalisation and activation stay unfused, and
  its convolutions keep a bias that the normalisation takes out;
- MEM103 and LAU102 where the loss is `square().mean()`, whose backward copies and multiplies twice;
- SYN103 for the one remaining copy of `many_copies` and `loader_stall`, whose memory is not pinned;
- KER102 for pointwise kernels that already run at the memory's speed: moving fewer bytes is what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LABELS", "Label"]


@dataclass(frozen=True)
class Label:
    """One recording.

    Attributes:
        name: of the recording. regime: names that are right.
        first: codes of which one must lead the problems; empty for a program without a defect.
        must: further codes that must be found, anywhere in the report.
        may: codes that are right to mention, and no fault to leave out.
        fixed: the recording of the same work without the defect.
    """

    name: str
    regime: str
    first: str = ""
    must: str = ""
    may: str = ""
    fixed: str = ""


HOST, DEVICE, TRANSFER = "host-bound", "device-bound", "transfer-bound"
LAUNCHES = "LAU101 LAU106"
SQUARE = "MEM103 LAU102"


def _twins(
    name: str, regime: str, first: str, must: str = "", may: str = "", *, good: str, good_may: str = ""
) -> list[Label]:
    return [
        Label(f"{name}-bad", regime, first, must, may, fixed=f"{name}-good"),
        Label(f"{name}-good", good, may=good_may),
    ]


LABELS: list[Label] = [
    # -- One planted defect each, and the same program without it.
    # Labelled before any tool had read them: a value read inside a compiled function, and a constant that changes.
    *_twins(
        "graph_break",
        HOST,
        "CMP101 SYN101",
        must="CMP101",
        may=f"{LAUNCHES} CMP103 CMP104 KER104",
        good=HOST,
        good_may="CMP103 CMP104 KER104",
    ),
    Label("recompile-bad", HOST, "CMP102", may=f"{LAUNCHES} CMP103 CMP104 KER104"),
    *_twins("cast_churn", DEVICE, "MEM106", may="LAU102 KER102", good=DEVICE),
    *_twins("dynamic_shape", HOST, "SYN102", may=f"SYN108 {LAUNCHES}", good=HOST, good_may=LAUNCHES),
    *_twins("grad_in_inference", HOST, "OPT104", may=LAUNCHES, good=f"{HOST} mixed", good_may=LAUNCHES),
    *_twins("growing_cache", HOST, "MEM107", may="LAU104", good=HOST),
    *_twins("host_stall", HOST, "LAU110", good=HOST),
    *_twins("item_loop", HOST, "SYN101", may=f"SYN108 LAU103 {LAUNCHES}", good=HOST),
    *_twins("loader_stall", HOST, "OPT103", may=f"SYN103 {SQUARE}", good=HOST, good_may=f"SYN103 {SQUARE}"),
    *_twins("many_copies", HOST, "SYN108", may=f"SYN103 {LAUNCHES}", good=HOST, good_may="SYN103"),
    *_twins("model_moved", TRANSFER, "SYN109", may="SYN101 SYN103 SYN108", good=DEVICE),
    *_twins("nchw_conv", DEVICE, "KER107", may="KER112 LAU102", good=DEVICE, good_may="KER112 LAU102"),
    *_twins("optimizer_loop", HOST, "OPT101", may=f"{SQUARE} {LAUNCHES}", good=HOST, good_may=f"{SQUARE} {LAUNCHES}"),
    *_twins("pageable_copy", TRANSFER, "SYN103", may="KER104", good=TRANSFER, good_may="KER104"),
    *_twins("single_precision", DEVICE, "KER104", good=DEVICE),
    *_twins("synchronize", HOST, "SYN105", may=LAUNCHES, good=HOST, good_may=LAUNCHES),
    *_twins("unfused_chain", HOST, "LAU102", must="LAU103", may=LAUNCHES, good=HOST),
    *_twins("zero_fill", HOST, "MEM105", may=f"{SQUARE} {LAUNCHES}", good=HOST, good_may=f"{SQUARE} {LAUNCHES}"),
    # -- Attention: written out by hand, in place, on the reference path, fused.
    Label("attention-naive", DEVICE, "KER109", may="KER102 MEM103 LAU102", fixed="attention-flash"),
    Label("attention-inplace", DEVICE, "KER109", may="KER102 LAU102", fixed="attention-flash"),
    Label("attention-math", DEVICE, "KER108", may="KER102 KER104 MEM106 MEM108 LAU102", fixed="attention-flash"),
    Label("attention-cudnn", DEVICE),
    Label("attention-default", DEVICE),
    Label("attention-efficient", DEVICE),
    Label("attention-flash", DEVICE),
    # -- Pointwise work that one kernel could do.
    Label("softmax-naive", DEVICE, "LAU102", may="KER102", fixed="softmax-triton"),
    Label("softmax-compiled", DEVICE, may="KER102"),
    Label("softmax-triton", DEVICE, may="KER102"),
    Label("geglu-published", DEVICE, "LAU102", may="KER102", fixed="geglu-published-compile"),
    Label("geglu-published-compile", DEVICE, may="KER102"),
    Label("swiglu-4096", DEVICE, "LAU102", may="KER102", fixed="swiglu-4096-compile"),
    Label("swiglu-4096-compile", DEVICE, may="KER102"),
    # -- Compiling a step of one or two launches makes it slower.
    Label("linear-1024-compile", HOST, "CMP103", fixed="linear-1024"),
    Label("linear-published-compile", HOST, "CMP103", fixed="linear-published"),
    Label("matmul_add-64-compile", HOST, "CMP103", may="CMP106", fixed="matmul_add-64-warm"),
    Label(
        "matmul_add-64-reduce-overhead", HOST, "CMP103", must="LAU107", may="CMP106 CMP107", fixed="matmul_add-64-warm"
    ),
    Label("mlp-256-compile", HOST, "CMP103", fixed="mlp-256"),
    # -- Products: too small to keep a GPU busy, or as fast as the card is.
    Label("matmul_add-4096-fp32", DEVICE, "KER104", fixed="matmul_add-4096-tf32"),
    Label("matmul_add-4096-compile", DEVICE, "CMP106", fixed="matmul_add-4096-warm"),
    Label("matmul_add-4096-cold", DEVICE),
    Label("matmul_add-4096-graph", DEVICE),
    Label("matmul_add-4096-tf32", DEVICE, may="KER102"),
    Label("matmul_add-4096-warm", DEVICE),
    Label("matmul_add-64-batch64", HOST),
    Label("matmul_add-64-batch8", HOST),
    Label("matmul_add-64-cold", HOST),
    Label("matmul_add-64-graph", HOST),
    Label("matmul_add-64-unscheduled", HOST, must="MEA103 MEA104"),
    Label("matmul_add-64-warm", HOST),
    Label("linear-1024", HOST),
    Label("linear-published", HOST),
    Label("mlp-256", HOST),
    Label("mlp-256-graph", f"{DEVICE} {HOST} mixed"),
    Label("vector_add-autotuned", HOST),
    Label("vector_add-masked", HOST),
    Label("vector_add-one-block", HOST),
    # -- Models as people run them.
    Label("mnist", HOST, LAUNCHES, may="LAU102 KER107 KER104 KER106 KER113 OPT106 SYN103"),
    Label("mnist-stacks", HOST, LAUNCHES, may="LAU102 KER107 KER104 KER106 KER113 OPT106 SYN103"),
    Label("resnet50", f"{DEVICE} mixed", "SYN103", must="LAU102 KER107", may="KER102"),
    Label("resnet50-moved", TRANSFER, "SYN109", may="LAU102 SYN103 SYN108 KER107 KER102", fixed="resnet50"),
    Label("llm-prefill", HOST, LAUNCHES, must="LAU102 KER111", may="MEM106 OPT104"),
    Label("llm-prefill-compile", HOST, LAUNCHES),
    Label("llm-decode", HOST, "MEM107", must="LAU101 KER111", may="LAU102 LAU104 LAU106 MEM106 SYN101"),
    Label("llm-train-compile", HOST, LAUNCHES),
]
