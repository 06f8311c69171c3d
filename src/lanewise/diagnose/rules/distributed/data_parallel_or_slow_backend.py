"""DIS104."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.quantity import count, text
from lanewise.trace.schema import Kind

_REPLICATION_TITLE = "torch.nn.DataParallel replicates the model over {devices} devices from one process in every step."

# Backends that move device memory directly.
_FAST = ("nccl", "rccl", "xccl", "ccl", "hccl", "ucc", "mtia")


@rule(
    "DIS104",
    "data-parallel-or-slow-backend",
    kind="statement",
    title="The process group uses the backend {backend} for tensors of {devices} device(s): every message goes "
    "through the "
    "host.",
)
def data_parallel_or_slow_backend(facts: Facts) -> Outcome:
    """The program distributes its work in a way that does not scale.

    `DataParallel` drives all devices from one Python process: it copies the model to each of them in every step and
    gathers the outputs on the first. A backend such as gloo moves device tensors through host memory.

    Costs: not estimated: the other way of distributing is a different program.

    Fix: `DistributedDataParallel` with one process per device, and `init_process_group("nccl")`.

    Verify: the backend in the trace, no `DataParallel.forward`.

    Silent: for process groups of CPU tensors.

    Source: TensorBoard's profiler plug-in.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    devices = len(np.unique(trace["lanes"]["process"][np.unique(trace.lane[trace.device_work])]))
    marks = np.flatnonzero(
        np.isin(trace.kind, (Kind.ANNOTATION, Kind.OPERATOR)) & trace.name_mask(r"^DataParallel\.forward")[trace.name]
    )
    marks = facts.steady_events(marks)
    info = trace.metadata.get("distributedInfo")
    backend = info.get("backend") if isinstance(info, dict) else None
    world = info.get("world_size") if isinstance(info, dict) else None
    if len(marks) and devices > 1:
        return Found(
            values={"devices": count(devices), "backend": text("")},
            title=_REPLICATION_TITLE,
            location=locate(facts, int(marks[0])),
        )
    if not isinstance(backend, str) or not isinstance(world, int) or world < 2:
        return NotApplicable("one process, one device" if devices < 2 else "the trace names no process group")
    if any(name in backend.lower() for name in _FAST):
        return Clear(f"the backend is {backend[:40]}")
    return Found(values={"backend": text(backend[:40]), "devices": count(devices)}, confidence="medium")
