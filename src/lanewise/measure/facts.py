"""`Facts`: everything measured about one trace, each measure computed once and shared by tables, rules and pages."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.compile.compiled_regions import Regions, measure_regions
from lanewise.measure.core import Core
from lanewise.measure.distributed.ranks import Ranks, align
from lanewise.measure.kernel.kernel_groups import KernelGroup, kernel_groups
from lanewise.measure.kernel.occupancy import Occupancy, occupancy
from lanewise.measure.kernel.pointwise_chains import Chains, pointwise_chains
from lanewise.measure.kernel.roofline import Roof, roofline
from lanewise.measure.launch.dispatch_chain import Chain, dispatch_chain, gap_table
from lanewise.measure.launch.leaf_operators import Leaves, measure_leaves
from lanewise.measure.launch.queues import Queue, measure_queue
from lanewise.measure.line_costs import measure_lines
from lanewise.measure.memory.allocator import MemoryUse, measure_memory
from lanewise.measure.profiler_table import api_table, copy_table, kernel_table, operator_table
from lanewise.measure.regime.cpu import CpuTime, measure_cpu
from lanewise.measure.regime.critical_path import CriticalPath, critical_path
from lanewise.measure.regime.overlap import Overlap, measure_overlap
from lanewise.measure.regime.python_functions import measure_functions
from lanewise.measure.regime.regime import Regime, judge
from lanewise.measure.training.backward_work import Backward, measure_backward
from lanewise.measure.training.optimizer_step import OptimizerStep, measure_optimizer
from lanewise.trace.memo import once
from lanewise.trace.model import Trace
from lanewise.trace.reader import opened

__all__ = ["Facts"]


class Facts(Core):
    """Measures of one trace.

    Args:
        trace: the trace.
        unprofiled_ns: step time without a profiler, ns; what the recorder wrote into the trace by default.
        peers: facts of other ranks of the same job, if their traces were given, too.
    """

    def __init__(
        self, trace: Trace | str | os.PathLike[str], *, unprofiled_ns: int | None = None, peers: Sequence[Facts] = ()
    ) -> None:
        super().__init__(opened(trace), unprofiled_ns=unprofiled_ns)
        self.peers = tuple(peers)

    @property
    def cpu(self) -> CpuTime:
        """Operators by arguments and own time, for a run on the CPU."""
        return self.of(measure_cpu)

    @property
    def functions(self) -> Columns:
        """Python functions by own time; see `measure_functions`."""
        return self.of(measure_functions)

    @property
    def kernel_groups(self) -> list[KernelGroup]:
        """Kernels of the steady steps by identity (name, launch configuration, shapes), the most expensive first."""
        return self.of(kernel_groups)

    @property
    def leaves(self) -> Leaves:
        """Operators of the steady steps that launch device work themselves, in host order."""
        return self.of(measure_leaves)

    @once
    def launches_inside(self) -> np.ndarray:
        """Number of launching calls in each event's subtree, itself included; int64, shape (events,)."""
        return self.host.accumulate(np.bincount(self.launches.call, minlength=len(self.trace)))

    @property
    def lines(self) -> Columns:
        """Launches, device time and host time by source line; empty without stacks."""
        return self.of(measure_lines)

    @property
    def memory(self) -> MemoryUse | None:
        """Device memory over time; None without memory events."""
        return self.of(measure_memory)

    @property
    def occupancy(self) -> Occupancy:
        """Blocks, residency and waves of every kernel, in the order of `kernel_args`."""
        return self.of(occupancy)

    @property
    def overlap(self) -> Overlap:
        """Computation, copies and communication beside each other, per stream and together."""
        return self.of(measure_overlap)

    @property
    def queue(self) -> Queue:
        """Depth of the queue in front of the device, and whether it held the host back."""
        return self.of(measure_queue)

    @once
    def ranks(self) -> Ranks | None:
        """Collectives of this rank (column 0) and its peers, matched; None without peers."""
        return align((self, *self.peers))

    @property
    def roofline(self) -> list[Roof]:
        """Operators of the steady steps by arguments: work, achieved rates, distance from the card's peaks."""
        return self.of(roofline)

    @property
    def regime(self) -> Regime:
        """What the run, and each step, is bound by."""
        return self.of(judge)

    @property
    def backward(self) -> Backward | None:
        """Backward nodes, their forward, and what they recompute; None without a backward pass."""
        return self.of(measure_backward)

    @property
    def optimizer_step(self) -> OptimizerStep | None:
        """The optimizer step; None where none is marked."""
        return self.of(measure_optimizer)

    @property
    def regions(self) -> Regions:
        """Regions that torch.compile runs."""
        return self.of(measure_regions)

    @property
    def pointwise_chains(self) -> Chains:
        """Runs of pointwise kernels over the same elements."""
        return self.of(pointwise_chains)

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
