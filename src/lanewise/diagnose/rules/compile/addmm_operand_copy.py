"""CMP106."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, device_rows, device_sum, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import BYTES, COUNT, KERNEL, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import byte_size, time
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

_ADDING_GEMMS = (
    "aten::addmm",
    "aten::addmm_",
    "aten::baddbmm",
    "aten::baddbmm_",
    "aten::addbmm",
    "aten::_addmm_activation",
)


@rule(
    "CMP106",
    "addmm-operand-copy",
    title="{copies} {per}: the matrix that `addmm` adds is copied before the multiplication ({bytes} in {duration}).",
)
def addmm_operand_copy(facts: Facts) -> Outcome:
    """The full-size operand of `addmm` is copied into the output before the matrix multiplication adds to it.

    cuBLAS adds a matrix only in place: C := A B + C. torch therefore copies the operand into the result first, a read
    and a write of the whole matrix that separate operators would not need. torch.compile turns `matmul` plus `add` into
    `addmm` and so introduces the copy; under `reduce-overhead` it moves into the CUDA graph and stays.

    Costs: the copy (device-bound), or the call that starts it (host-bound).

    Fix: pass a one-dimensional bias, which the multiplication adds in its epilogue; leave the add outside as its own
    fused kernel; or let `mode="max-autotune"` pick a template that reads the operand directly.

    Verify: no `Memcpy DtoD` before the multiplication.

    Silent: for a one-dimensional bias (kernels named `_bias`), and for copies of any other size than the output.

    Source: PyTorch `aten/src/ATen/native/cuda/Blas.cpp`; 19 to 23 of 200 us on our H100.
    """
    trace = facts.trace
    pairs = _pairs(facts)
    if not len(device_rows(facts)):
        return NotApplicable("the trace holds no device work in steady steps")
    if len(pairs) == 0:
        return Clear("no copy directly before a matrix multiplication of the same operator")
    copies, gemms, sure = pairs[:, 0], pairs[:, 1], bool(pairs[:, 2].all())
    events = trace.device_work[copies]
    calls = trace.links.launch[copies]
    graph = trace.links.graph_nodes[copies]
    device_ns = device_sum(facts, copies)
    own = calls[~graph]
    size = np.maximum(_bytes(facts, events), 0)
    steps = facts.steady_count
    kernels = trace.name[trace.device_work[gemms]]
    rows: list[dict[str, Any]] = []
    for kernel in np.unique(kernels).tolist():
        mine = kernels == kernel
        rows.append(
            {
                "kernel": kernel_label(facts, int(trace.device_work[gemms[mine][0]])),
                "count": int(mine.sum()) / steps,
                "bytes": float(size[mine].mean()),
                "copy": float(trace.duration[events[mine]].mean()),
                "gemm": float(trace.duration[trace.device_work[gemms[mine]]].mean()),
                "graph": "yes" if graph[mine].all() else "no",
            }
        )
    rows.sort(key=lambda row: -row["copy"] * row["count"])
    return Found(
        values={
            "copies": counted(len(copies) / steps, "copy", "copies"),
            "per": per(facts),
            "bytes": byte_size(float(size.sum()) / steps),
            "duration": time(device_ns),
        },
        change=remove(facts, events),
        confidence="high" if sure else "medium",
        evidence=[
            table(
                "Copy and multiplication",
                [
                    headed(KERNEL, "multiplication"),
                    headed(COUNT, "times per step"),
                    headed(BYTES, "bytes copied"),
                    TableColumn("copy", "time", "copy"),
                    TableColumn("gemm", "time", "multiplication"),
                    TableColumn("graph", "text", "inside a CUDA graph"),
                ],
                rows,
            )
        ],
        location=locate(facts, int(calls[0])),
        events=[*events.tolist(), *own.tolist()],
    )


def _pairs(facts: Facts) -> np.ndarray:
    """Rows of `device_work` of copy and multiplication, and whether shapes or the kernel's name prove the pair."""
    trace, links = facts.trace, facts.trace.links
    rows = device_rows(facts)
    rows = rows[np.lexsort((trace.start[trace.device_work[rows]], trace.lane[trace.device_work[rows]]))]
    events = trace.device_work[rows]
    gemm = facts.is_family("gemm")[rows]
    copies = np.flatnonzero(trace.kind[events] == Kind.MEMCPY)
    if len(copies) == 0 or not gemm.any():
        return np.empty((0, 3), dtype=np.int64)
    last = len(rows) - 1
    after = np.minimum(copies + 1, last)
    after = np.minimum(np.where(trace.kind[events[after]] == Kind.MEMSET, after + 1, after), last)
    follows = (after > copies) & gemm[after] & (trace.lane[events[after]] == trace.lane[events[copies]])
    copies, after = copies[follows], after[follows]

    adding = mask_of(len(trace.names), trace.name_ids(*_ADDING_GEMMS))
    wanted = (trace.kind == Kind.OPERATOR) & adding[trace.name]

    def parent_of(at: np.ndarray) -> np.ndarray:
        launch = links.launch[rows[at]]
        parent = np.full(len(at), -1, dtype=np.int64)
        parent[launch >= 0] = nearest(facts.host.parent, wanted, launch[launch >= 0])
        return parent

    launch, parent = links.launch[rows[copies]], parent_of(copies)
    same_operator = (parent >= 0) & (parent == parent_of(after))
    same_graph = (launch >= 0) & (launch == links.launch[rows[after]]) & links.graph_nodes[rows[copies]]
    named = trace.name_mask("_badd")[trace.name[events[after]]]
    output = np.array([_output_bytes(facts, int(event)) for event in parent], dtype=np.int64)
    moved = _bytes(facts, events[copies])
    measured = (output >= 0) & (moved >= 0)
    # Inside a graph nothing says which operator a node belongs to: only the kernel's name tells.
    holds = (same_operator | (same_graph & named)) & ~(measured & (output != moved))
    sure = named | (measured & (output == moved))
    return np.stack((rows[copies], rows[after], sure.astype(np.int64)), axis=1)[holds]


def _output_bytes(facts: Facts, operator: int) -> int:
    """Size of what an adding multiplication returns, or -1."""
    signature = facts.signatures.of(operator)
    left, right = (signature.tensor(1), signature.tensor(2)) if signature else (None, None)
    if left is None or right is None:
        return -1
    if len(left.shape) < 2 or len(right.shape) < 2 or not left.itemsize:
        return -1
    size = left.numel // max(1, left.shape[-1]) * right.shape[-1] * left.itemsize
    return size if size < 2**62 else -1


def _bytes(facts: Facts, copies: np.ndarray) -> np.ndarray:
    """Payload of copies, -1 if unknown."""
    size = facts.trace["copy_args"]["bytes"]
    row = facts.trace.lookup("copy_args", copies)
    return np.where(row >= 0, size[np.maximum(row, 0)], -1) if len(size) else row
