"""`Facts`: everything measured about one trace, each measure computed once and shared by tables, rules and pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lanewise.measure.backward import Backward, measure_backward
from lanewise.measure.chain import Chain, dispatch_chain, gap_table
from lanewise.measure.columns import Columns, sums
from lanewise.measure.cpu import CpuTime, measure_cpu
from lanewise.measure.critical_path import CriticalPath, critical_path
from lanewise.measure.device import Device, device_of
from lanewise.measure.functions import measure_functions
from lanewise.measure.host import Host, measure_host
from lanewise.measure.idle import TimeClasses, classify_time
from lanewise.measure.kernel_groups import KernelGroup, kernel_groups
from lanewise.measure.kernel_names import FAMILIES, family, tensor_cores
from lanewise.measure.launch import Launches, measure_launches
from lanewise.measure.leaves import Leaves, measure_leaves
from lanewise.measure.lines import measure_lines
from lanewise.measure.memory import MemoryUse, measure_memory
from lanewise.measure.occupancy import Occupancy, occupancy
from lanewise.measure.operator_kinds import is_collective, is_framework, is_matrix_work, is_view
from lanewise.measure.optimizer import OptimizerStep, measure_optimizer
from lanewise.measure.overlap import Overlap, measure_overlap
from lanewise.measure.pointwise_chains import Chains, pointwise_chains
from lanewise.measure.queues import Queue, measure_queue
from lanewise.measure.ranks import Ranks, align
from lanewise.measure.regime import Regime, judge
from lanewise.measure.regions import Regions, measure_regions
from lanewise.measure.roofline import Roof, roofline
from lanewise.measure.signatures import Signatures
from lanewise.measure.step_table import StepTable, compile_rows, measure_steps
from lanewise.measure.table import api_table, copy_table, kernel_table, operator_table
from lanewise.trace.health import Health, examine
from lanewise.trace.model import Trace
from lanewise.trace.once import once

__all__ = ["Facts"]


class Facts:
    """Measures of one trace.

    Args:
        trace: the trace.
        unprofiled_ns: step time without a profiler, ns, if someone measured it; None otherwise.
        peers: facts of other ranks of the same job, if their traces were given, too.
    """

    def __init__(self, trace: Trace, *, unprofiled_ns: int | None = None, peers: Sequence[Facts] = ()) -> None:
        self.trace = trace
        self.unprofiled_ns = unprofiled_ns
        self.peers = tuple(peers)

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

    @property
    def on_cpu(self) -> bool:
        """Whether the program used no device: nothing of one is recorded, nothing launches work for one, and the file
        does not end before it could."""
        return self.classes.device == "" and not self.health.launches and not self.trace.reading.truncated

    @once
    def cpu(self) -> CpuTime:
        """Operators by arguments and own time, for a run on the CPU."""
        return measure_cpu(self)

    @once
    def functions(self) -> Columns:
        """Python functions by own time; see `measure_functions`."""
        return measure_functions(self)

    @once
    def kernel_groups(self) -> list[KernelGroup]:
        """Kernels of the steady steps by identity (name, launch configuration, shapes), the most expensive first."""
        return kernel_groups(self)

    @once
    def leaves(self) -> Leaves:
        """Operators of the steady steps that launch device work themselves, in host order."""
        return measure_leaves(self)

    @once
    def lines(self) -> Columns:
        """Launches, device time and host time by source line; empty without stacks."""
        return measure_lines(self)

    @once
    def memory(self) -> MemoryUse | None:
        """Device memory over time; None without memory events."""
        return measure_memory(self)

    @once
    def occupancy(self) -> Occupancy:
        """Blocks, residency and waves of every kernel, in the order of `kernel_args`."""
        return occupancy(self)

    @once
    def overlap(self) -> Overlap:
        """Computation, copies and communication beside each other, per stream and together."""
        return measure_overlap(self)

    @once
    def queue(self) -> Queue:
        """Depth of the queue in front of the device, and whether it held the host back."""
        return measure_queue(self)

    @once
    def ranks(self) -> Ranks | None:
        """Collectives of this rank (column 0) and its peers, matched; None without peers."""
        return align((self, *self.peers))

    @once
    def device_time_of_call(self) -> np.ndarray:
        """Time of the device work that each API call launched, ns: int64, shape (events,); 0 for all other events."""
        launch, work = self.trace.links.launch, self.trace.device_work
        linked = launch >= 0
        return sums(launch[linked], self.trace.duration[work[linked]], len(self.trace))

    @once
    def roofline(self) -> list[Roof]:
        """Operators of the steady steps by arguments: work, achieved rates, distance from the card's peaks."""
        return roofline(self)

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
        kernel = self.trace.kind[self.trace.device_work] == 7
        return kernel & np.isin(self.family_of_name[self.trace.name[self.trace.device_work]], wanted)

    @once
    def classes(self) -> TimeClasses:
        """Where the time of each step went."""
        return classify_time(self)

    @once
    def steps(self) -> StepTable:
        """One row per step, and the steady ones."""
        return measure_steps(self)

    @once
    def regime(self) -> Regime:
        """What the run, and each step, is bound by."""
        return judge(self)

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

    @once
    def compile_rows(self) -> np.ndarray:
        """Events that are compilation, autotuning or graph capture."""
        return compile_rows(self)

    @once
    def backward(self) -> Backward | None:
        """Backward nodes, their forward, and what they recompute; None without a backward pass."""
        return measure_backward(self)

    @once
    def optimizer_step(self) -> OptimizerStep | None:
        """The optimizer step; None where none is marked."""
        return measure_optimizer(self)

    @once
    def regions(self) -> Regions:
        """Regions that torch.compile runs."""
        return measure_regions(self)

    @once
    def pointwise_chains(self) -> Chains:
        """Runs of pointwise kernels over the same elements."""
        return pointwise_chains(self)

    @once
    def operators(self) -> Columns:
        """Operator table."""
        return operator_table(self.trace, self.host)

    @once
    def kernels(self) -> Columns:
        """Kernel table."""
        return kernel_table(self.trace, self.family_of_name)

    @once
    def api(self) -> Columns:
        """API call table."""
        return api_table(self.trace, self.host)

    @once
    def copies(self) -> Columns:
        """Copy table."""
        return copy_table(self.trace)

    @once
    def gaps(self) -> Columns:
        """Per step: annotation start, first dispatch, the gap between them, time before the first launch."""
        return gap_table(self.trace, self.host)

    def chain(self, step: int | None = None) -> Chain:
        """Dispatch chain of one step (row number), the last steady one by default."""
        if step is None:
            steady = np.flatnonzero(self.steps.steady)
            step = int(steady[-1]) if len(steady) else 0
        return dispatch_chain(self.trace, self.host, step)

    def critical_path(self, step: int | None = None) -> CriticalPath:
        """Critical path of one step (row number), the last steady one by default."""
        return critical_path(self, step)
