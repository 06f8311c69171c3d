"""A step without activation checkpointing: beside what is computed again, its own work on the host goes."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.what_if.remedies import without_stretch
from lanewise.measure.facts import Facts
from lanewise.replay.change import Change, cheaper, cut
from lanewise.trace.intervals import Union, covered, union
from lanewise.trace.schema import Kind

__all__ = ["without_checkpoints"]

# The autograd function with which `checkpoint(use_reentrant=False)` keeps a region's inputs, before it runs the region.
_KEEPS_INPUTS = "_NoopSaveInputs"

# What Python takes for each tensor that an operator of a region would save: in the forward pass a hook leaves it away,
# and in the backward pass another one looks up its copy. About 11 us each where an operator takes 4: torch 2.13 on a CPU,
# a chain of 21 `nn.Tanh` against a single one, checkpointed and not, the quickest tenth of 200 rounds of each.
_HOOK_NS = 11_000.0

# So much is left of the operators that call these hooks, however many tensors they save.
_LEFT = 0.25


def without_checkpoints(facts: Facts, calls: np.ndarray) -> Change:
    """Nothing is computed again, and no region is set up.

    To set up a region takes the host: it keeps the inputs and the state of the random numbers, and from then on calls
    Python for each tensor that an operator would save.

    Args:
        facts: the measures. calls: the launches that only repeat forward work.
    """
    again = without_stretch(facts, calls)
    trace, host = facts.trace, facts.host
    marks = facts.steady_events(np.flatnonzero(np.isin(trace.name, trace.name_ids(_KEEPS_INPUTS))))
    if len(marks) == 0 or facts.backward is None:
        return again
    operators = facts.steady_events(trace.of(Kind.OPERATOR))
    outer = operators[host.outermost_operator[operators] == operators]
    outer = outer[np.argsort(trace.start[outer], kind="stable")]
    forward = outer[np.isin(trace.lane[outer], trace.lane[marks]) & ~np.isin(outer, facts.backward.node)]
    saved = operators[np.isin(trace.name[operators], trace.name_ids("aten::detach"))]
    repeated = union(again.cut_start, again.cut_end)
    hooks = _HOOK_NS * np.count_nonzero(covered(repeated, trace.start[saved], trace.end[saved]))
    return (
        again
        + _set_up(facts, marks, forward)
        + _less(facts, forward, hooks, Union.empty())
        + _less(facts, facts.backward.node, hooks, repeated)
    )


def _set_up(facts: Facts, marks: np.ndarray, forward: np.ndarray) -> Change:
    """From the operator that last launched something before a region to the first one in it. What the program itself does
    there is no part of it: no region takes longer than is usual for them."""
    trace = facts.trace
    launching = forward[facts.launches_inside[forward] > 0]
    before = np.searchsorted(trace.start[launching], trace.start[marks]) - 1
    after = np.searchsorted(trace.start[forward], trace.end[marks])
    known = (before >= 0) & (after < len(forward))
    begin, end = trace.end[launching[before[known]]], trace.start[forward[after[known]]]
    usual = int(np.median(end - begin)) if known.any() else 0
    return cut(np.maximum(begin, end - usual), end)


def _less(facts: Facts, rows: np.ndarray, ns: float, gone: Union) -> Change:
    """The host does so much less in these rows, outside of what is gone anyhow; ns of all steady steps, as they are without
    the profiler."""
    trace, recorded, quick = facts.trace, facts.graph, facts.unprofiled.graph
    start, end = trace.start[rows], trace.end[rows]
    spent = float((end - start - covered(gone, start, end)).sum())
    host = recorded.on_host
    spent *= float(quick.gap[host].sum()) / max(1.0, float(recorded.gap[host].sum()))
    return cheaper(rows, max(_LEFT, 1 - ns / spent)) if spent > 0 else Change()
