"""What a trace shows of one call: the few counts that predictions are about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["Seen", "record_calls", "see"]

_CALLS = 3
_COMPILED = ("Torch-Compiled", "CompiledFunction", "## Call")


@dataclass(frozen=True)
class Seen:
    """Counts per call, from a recorded trace.

    Attributes:
        operators, kernels: by name; copies of the device count as kernels. compiled: entries into compiled code.
        launches, graph_launches: of the host. recorded: forward operators that recorded a graph for a backward pass.
        channels_last: convolutions that read it. peak: most memory allocated at once, bytes;
            -1 if unknown. settings: as recorded. path: of the trace.
    """

    operators: Mapping[str, float]
    kernels: Mapping[str, float]
    compiled: float
    launches: float
    graph_launches: float
    recorded: float
    channels_last: float
    peak: int
    settings: Mapping[str, str]
    path: str = ""

    @property
    def operators_in_all(self) -> float:
        """Operators per call."""
        return sum(self.operators.values())

    def named(self, part: str) -> float:
        """Operators whose name holds a text."""
        return sum(count for name, count in self.operators.items() if part in name)

    def kernel_named(self, part: str) -> float:
        """Kernels whose name holds a text."""
        return sum(count for name, count in self.kernels.items() if part in name)


def record_calls(subject: Subject, state: State, folder: Path, name: str) -> Path:
    """Record a few calls of the subject as it is now; the process is not one to measure times in afterwards.

    Raises LanewiseError if nothing could be recorded.
    """
    from lanewise.capture.recorder import record
    from lanewise.errors import LanewiseError

    calls = [copy_call(call) for call in subject.calls]
    for at in range(2):
        subject.run(calls[at % len(calls)])
    subject.wait()
    with record(out=folder, name=name, memory=True, quick=True, active=_CALLS) as recorder:
        for at in range(_CALLS + 8):
            subject.run(calls[at % len(calls)])
            subject.wait()
            recorder.step()
    state.restore()
    if recorder.path is None:
        raise LanewiseError(recorder.problem or "nothing was recorded")
    return Path(recorder.path)


def see(trace: Trace, path: str = "") -> Seen:
    """The counts of a trace, per recorded step."""
    from lanewise.compare.diff import run_of

    run = run_of(trace)
    steps = trace.steps
    count = max(1, len(steps)) if steps.recorded else 1
    chosen = (steps.of_event < len(steps)) if steps.recorded else np.ones(len(trace), dtype=bool)
    operators = np.flatnonzero(chosen & (trace.kind == Kind.OPERATOR))
    named = _counts(trace, operators, count)
    graph_calls = trace.links.calls("graph_launch")
    return Seen(
        operators={name: n for name, n in named.items() if name.startswith("aten::")},
        kernels=_counts(trace, np.flatnonzero(chosen & np.isin(trace.kind, (Kind.KERNEL, Kind.MEMCPY))), count),
        compiled=sum(n for name, n in named.items() if any(part in name for part in _COMPILED)),
        launches=run.counts.get("launches", 0.0),
        graph_launches=float(np.count_nonzero(chosen[graph_calls])) / count,
        recorded=float(np.count_nonzero(trace["events"]["sequence"][operators] >= 0)) / count,
        channels_last=_channels_last(trace, set(operators.tolist())) / count,
        peak=run.memory_peak,
        settings=run.environment,
        path=path,
    )


def _counts(trace: Trace, events: np.ndarray, calls: int) -> dict[str, float]:
    """Events per call by name."""
    rows, numbers = np.unique(trace.name[events], return_counts=True)
    return {trace.names[int(row)]: float(number) / calls for row, number in zip(rows, numbers, strict=True)}


def _channels_last(trace: Trace, operators: set[int]) -> int:
    """Convolutions whose input varies fastest over its channels."""
    rows = trace["operator_args"]
    found = 0
    for event, dims, strides in zip(rows["event"], rows["dims_text"], rows["strides_text"], strict=True):
        if int(event) not in operators or "conv" not in trace.names[int(trace.name[int(event)])]:
            continue
        try:
            shape, stride = (json.loads(trace.texts[int(row)])[0] for row in (dims, strides))
        except (ValueError, IndexError, TypeError):
            continue
        found += len(shape) == 4 and len(stride) == 4 and stride[1] == 1 and shape[1] > 1
    return found
