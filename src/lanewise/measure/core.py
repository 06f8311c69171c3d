"""`Core`: what nearly every measure needs of a trace. Its parts take arguments; every other measure takes a `Core`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, Self, TypeVar

import numpy as np

from lanewise.measure.columns import sums
from lanewise.measure.device import Device, device_of
from lanewise.measure.host import Host, measure_host
from lanewise.measure.kernel_names import FAMILIES, family, tensor_cores
from lanewise.measure.launch.launches import Launches, measure_launches
from lanewise.measure.operator_kinds import is_collective, is_framework, is_matrix_work, is_view
from lanewise.measure.regime.step_table import StepTable, compile_rows, measure_steps, periods, slow_among, steady_steps
from lanewise.measure.regime.time_classes import TimeClasses, classify_time
from lanewise.measure.signatures import Signatures
from lanewise.measure.unprofiled import Unprofiled, without_profiler
from lanewise.measure.validity.device_signs import memory_calls, signs_of_a_device
from lanewise.replay.build_graph import build_graph
from lanewise.replay.graph import StepGraph
from lanewise.trace.health import Health, examine
from lanewise.trace.intervals import union
from lanewise.trace.memo import computed, once
from lanewise.trace.metadata import from_metadata
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["Core", "DeviceRecords", "remembered"]

T = TypeVar("T")
C = TypeVar("C", bound="Core")

DeviceRecords = Literal["some", "none", "lost", "not recorded", "memory only", "cut off"]


class Core:
    """Measures of one trace that others are made of, each computed once.

    Args:
        trace: the trace.
        unprofiled_ns: step time without a profiler, ns; what the recorder wrote into the trace by default.
    """

    def __init__(self, trace: Trace, *, unprofiled_ns: int | None = None) -> None:
        self.trace = trace
        self._measured: dict[Any, Any] = {}
        self.unprofiled_ns = _recorded_step_ns(trace) if unprofiled_ns is None else unprofiled_ns

    def of(self, measure: Callable[[Self], T] | Callable[[Trace], T]) -> T:
        """What a measure says of this trace, computed once: any pure function of a `Trace`, or of `Core` or `Facts`.

        A function is given the trace if its first parameter is annotated with `Trace`, and these facts otherwise.
        """
        wants = next(iter(getattr(measure, "__annotations__", {}).values()), None)
        subject: Any = self.trace if wants in (Trace, "Trace") else self
        return computed(self._measured, measure, lambda: measure(subject))

    @once
    def health(self) -> Health:
        """Integrity of the trace."""
        return examine(self.trace)

    @once
    def host(self) -> Host:
        """Host times."""
        return measure_host(self.trace)

    @once
    def launches(self) -> Launches:
        """One row per launch of device work."""
        return measure_launches(self.trace, self.host)

    @once
    def device(self) -> Device:
        """The busiest device: its properties and what it can do at most."""
        return device_of(self.trace.metadata, self.classes.device)

    @once
    def device_records(self) -> DeviceRecords:
        """Whether the trace holds work of a device; if not, whether the program used none (`none`) or only memory of one
        (`memory only`), whether it did but nothing of a device was recorded (`not recorded`), its records are missing
        though calls launched work (`lost`), or the file ends before any could stand (`cut off`)."""
        if len(self.trace.device_work):
            return "some"
        if self.health.launches:
            return "lost"
        if len(memory_calls(self.trace)):
            return "memory only"
        if self.device_signs:
            return "not recorded"
        return "cut off" if self.trace.reading.truncated else "none"

    @once
    def device_signs(self) -> str:
        """What shows that the program used a device though no work of one was recorded, in words; "" for nothing."""
        return "" if len(self.trace.device_work) else signs_of_a_device(self.trace)

    @property
    def on_cpu(self) -> bool:
        """Whether the program used no device."""
        return self.device_records == "none"

    @once
    def classes(self) -> TimeClasses:
        """Where the time of each step went."""
        return classify_time(self.trace, self.host, self.is_family("communication"))

    @once
    def steps(self) -> StepTable:
        """One row per step, and the steady ones."""
        return measure_steps(
            self.trace,
            self.classes,
            waiting=self.host.waiting,
            launch_calls=self.launches.call,
            steady=self.steady,
            unprofiled=self.unprofiled,
        )

    @once
    def steady(self) -> np.ndarray:
        """Which steps statistics use, bool, shape (steps,)."""
        return steady_steps(self.trace, self.compile_rows)

    @once
    def steady_count(self) -> int:
        """Number of steady steps, at least 1: what sums over them are divided by."""
        return max(1, int(np.count_nonzero(self.steady)))

    def is_steady(self, step: np.ndarray) -> np.ndarray:
        """Whether rows of steps are steady ones; -1, outside of all steps, is none."""
        return np.concatenate((self.steady, [False]))[step]

    @once
    def in_steady_step(self) -> np.ndarray:
        """Whether each event belongs to a steady step, bool, shape (events,)."""
        return self.is_steady(self.trace.steps.of_event)

    def steady_events(self, events: np.ndarray) -> np.ndarray:
        """Those of the given events that belong to steady steps."""
        return events[self.in_steady_step[events]]

    @once
    def slow(self) -> np.ndarray:
        """Which steady steps take far longer than the others, bool, shape (steps,)."""
        return slow_among(periods(self.trace, self.classes), self.steady)

    @once
    def graph(self) -> StepGraph:
        """The run of steady steps as a graph of what waits for what, as recorded."""
        requests = self.host.stalls.request
        stalls = union(self.trace.start[requests], self.trace.end[requests])
        backlog = self.classes.backlog
        return build_graph(
            self.trace,
            waiting=self.host.waiting,
            steady=self.steady,
            stalls=stalls,
            done=self.host.done,
            head=backlog.until if backlog.there else 0,
            held=backlog.streams,
        )

    @once
    def unprofiled(self) -> Unprofiled:
        """The step without the profiler, timed or computed."""
        classes = self.classes
        period = int(classes.window_end[-1] - classes.window_start[0]) if len(self.trace.steps) == 1 else 0
        return without_profiler(
            self.trace,
            self.graph,
            device=classes.device,
            communicating=self.is_family("communication"),
            timed_ns=self.unprofiled_ns,
            slow=self.slow,
            period_ns=float(period) if period > 0 else float("inf"),
        )

    @once
    def compile_rows(self) -> np.ndarray:
        """Events that are compilation, autotuning or graph capture."""
        return compile_rows(self.trace)

    @once
    def device_time_of_call(self) -> np.ndarray:
        """Time of the device work that each API call launched, ns: int64, shape (events,); 0 for all other events."""
        launch, work = self.trace.links.launch, self.trace.device_work
        linked = launch >= 0
        return sums(launch[linked], self.trace.duration[work[linked]], len(self.trace))

    @once
    def signatures(self) -> Signatures:
        """Shapes and types that operators were called with."""
        return Signatures(self.trace)

    @once
    def family_of_name(self) -> np.ndarray:
        """Kernel family of every name, as a row of FAMILIES; only meaningful for kernels."""
        index = {label: i for i, label in enumerate(FAMILIES)}
        used = np.unique(self.trace.name[self.trace.device_work])
        result = np.full(len(self.trace.names), index["other"], dtype=np.uint8)
        for name in used.tolist():
            result[name] = index[family(self.trace.names[int(name)])]
        return result

    @once
    def tensor_cores_of_name(self) -> np.ndarray:
        """1 used, 0 not used, -1 not matrix work or unknown; per name, only meaningful for kernels."""
        used = np.unique(self.trace.name[self.trace.device_work])
        result = np.full(len(self.trace.names), -1, dtype=np.int8)
        for name in used.tolist():
            answer = tensor_cores(self.trace.names[int(name)])
            result[name] = -1 if answer is None else int(answer)
        return result

    def is_family(self, *labels: str) -> np.ndarray:
        """Whether each device op is a kernel of one of the families, bool, shape (device,)."""
        wanted = [FAMILIES.index(label) for label in labels]
        work = self.trace.device_work
        return (self.trace.kind[work] == Kind.KERNEL) & np.isin(self.family_of_name[self.trace.name[work]], wanted)

    @once
    def matrix_names(self) -> np.ndarray:
        """Whether each name is that of matrix work: products, convolutions, attention."""
        return is_matrix_work(self.trace)

    @once
    def view_names(self) -> np.ndarray:
        """Whether each name is that of an operator that only describes existing memory."""
        return is_view(self.trace)

    @once
    def collective_names(self) -> np.ndarray:
        """Whether each name is that of a collective."""
        return is_collective(self.trace)

    @once
    def framework_names(self) -> np.ndarray:
        """Whether each name is a framework's own row: optimizers, DDP, FSDP, the autograd engine."""
        return is_framework(self.trace)


def remembered(measure: Callable[[C], T]) -> Callable[[C], T]:
    """A measure that several ask for by calling it: computed once for the facts that it is given."""

    @wraps(measure)
    def once_per_facts(facts: C) -> T:
        return facts.of(measure)

    return once_per_facts


def _recorded_step_ns(trace: Trace) -> int | None:
    """Step time that the recorder took without the profiler, ns; None without marks: the trace is one region then."""
    recorded = from_metadata(trace.metadata)
    if recorded is None or recorded.unprofiled_step_us is None or not trace.steps.recorded:
        return None
    return round(recorded.unprofiled_step_us * 1e3) or None
