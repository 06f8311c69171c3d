"""LAU110."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, Saving, rule
from lanewise.diagnose.select import counted, per
from lanewise.diagnose.what_if.gap_fixes import fix_of_gap, is_needed
from lanewise.measure.facts import Facts
from lanewise.measure.group_keys import combined
from lanewise.measure.launch.bubbles import LOADER, frame_of, host_bubbles
from lanewise.measure.launch.recurring_gaps import Gaps, recurring_gaps
from lanewise.measure.regime.python_functions import function_label
from lanewise.replay.change import add, cut
from lanewise.report.evidence_columns import COUNT, DURATION, OPERATOR, SITE, START, STEP, TIME, headed
from lanewise.report.model import Block, TableColumn, TextBlock
from lanewise.report.quantity import text, time
from lanewise.trace.schema import Kind
from lanewise.tree.model import NodeKind, Phase

_LONGEST_NAME = 60
_PLACES = 8
_FRAME = TableColumn("frame", "text", "innermost Python frame")

_SHORT = (
    "For {time} {per} no thread launches anything: {times} of about {typical} each, most between {operators}; the time "
    "goes into {where}."
)

_PASSES = "For {time} {per} no thread launches anything; the time goes into {where}, or into what it waits for."


def _of_tree(contexts: Contexts, *, from_us: float, share_from: float) -> Outcome:
    if not contexts.has_device:
        return NotApplicable("no device work")
    if not contexts.host_matters:
        return NotApplicable(f"the run is {contexts.regime}-bound: the device does not wait for the host")
    tree = contexts.tree
    loading = contexts.within(contexts.operators(LOADER))
    frames = (tree.kind == NodeKind.FRAME) & contexts.on_main & ~loading
    least = max(from_us * 1e3, share_from * contexts.step.ns)
    own = _without_backward(contexts, np.where(frames, contexts.host, 0.0))
    rows = np.flatnonzero(own >= least)
    if len(rows) == 0:
        return Clear(f"no function without an operator or a call for {least / 1e3:,.0f} us")
    spent = own[rows]
    worst = int(rows[np.argmax(spent)])
    return Found(
        values={
            "time": time(float(spent.sum())),
            "per": contexts.per,
            "where": text(contexts.function(worst)[:_LONGEST_NAME]),
        },
        title=_PASSES,
        fix=fix_of_gap(tree.label(worst), stacks=True, called=contexts.function(worst)),
        saves=Saving(np.where(own >= least, own, 0.0), np.zeros(len(tree))),
        confidence="medium",
        evidence=[
            table(
                "Functions in which no operator runs for that long",
                [headed(SITE, "function"), headed(TIME, "time between its operators")],
                contexts.by_site(rows, time=spent),
            )
        ],
        location=contexts.location(worst),
    )


def _without_backward(contexts: Contexts, own: np.ndarray) -> np.ndarray:
    """Without the time in which a function waits for backward on the autograd thread. Which one did is not in the tree:
    the longest come first, as they would be named first."""
    left = float(contexts.host[~contexts.on_main & (contexts.tree.phase == Phase.BACKWARD)].sum())
    left += float(contexts.host[~contexts.on_main & (contexts.tree.phase == Phase.RECOMPUTE)].sum())
    waits = contexts.frames(r"run_backward")
    result = np.where(waits, 0.0, own)
    left -= float(own[waits].sum())
    for row in np.argsort(-result, kind="stable").tolist():
        taken = min(left, float(result[row]))
        if taken <= 0:
            break
        result[row] -= taken
        left -= taken
    return result


@rule(
    "LAU110",
    "host-bubble",
    of_tree=_of_tree,
    title="For {time} {per} no thread launches anything ({times}, the longest {longest}); the time goes into {where}.",
)
def host_bubble(
    facts: Facts,
    *,
    from_us: float = 500.0,
    share_from: float = 0.05,
    each_from_us: float = 20.0,
    times_from: int = 4,
    together_from: float = 0.20,
) -> Outcome:
    """The device waits, and no thread of the program starts anything.

    The time goes into Python or into something that the profiler cannot see: preparing data, logging, writing
    checkpoints, garbage collection, a lock, a sleep. Fixing it makes no kernel faster, but it makes the step faster.
    One long gap is such a cost, and so is Python that runs for each layer or sample: gaps of some 50 us, which add up.

    Costs: the length of these gaps; of short ones less what is usual between two operators of this program. What makes a
    batch, before it is copied to the device, is not gone but done ahead by another thread: a step takes at least as long.

    Fix: depends on what fills the gap, and the finding says it: take work out of the loop or give it to worker processes,
    write less often, run `gc.freeze()` after start-up, or look at what another thread or process does meanwhile.

    Verify: the gap is gone.

    Silent: below 500 us and 5 % of the step, unless gaps recur between the same two operators: from 20 us and 4 times
    beyond what is usual in this program, four times in a step, 20 % of the step together. For gaps that come in less than
    half of the steps and are less than 5 % of all of them together, which chance makes on any machine; while the autograd
    thread or any other thread works; while a call waits for the device; in the DataLoader (OPT103) and in optimizers; and
    for the profiler's own work between two steps.

    Source: HTA's host-wait idle time; a 20 ms sleep per step and an 8 ms delay injected on one rank of our H100 runs;
    a loop of Python numbers in each layer on an H200 (benchmarks/replay, python-small).
    """
    trace, classes = facts.trace, facts.classes
    if classes.device == "":
        return NotApplicable("no device work")
    least = max(from_us * 1e3, share_from * facts.steps.period_ns)
    bubbles = host_bubbles(facts, from_ns=least)
    length = bubbles.end - bubbles.start
    per_step = float(length.sum()) / facts.steady_count
    recurring = len(np.unique(bubbles.step)) * 2 >= facts.steady_count
    if len(length) == 0 or (not recurring and per_step < share_from * facts.steps.period_ns):
        together = together_from * facts.unprofiled.step_ns
        if facts.steps.class_ns.get("host", 0.0) >= together > 0:
            short = recurring_gaps(facts, from_ns=each_from_us * 1e3, times_from=times_from)
            if float(short.length.sum()) / facts.steady_count >= together:
                return _add_up(facts, short)
        if len(length) == 0:
            return Clear(f"no gap of {least / 1e3:,.0f} us without an operator or a call on any thread")
        return Clear(f"{len(length)} gap(s) in {len(np.unique(bubbles.step))} of {facts.steady_count} steps: chance")
    order = np.argsort(-length, kind="stable")
    rows = [
        {
            "step": int(trace.steps.number[bubbles.step[at]]),
            "start": int(bubbles.start[at] - trace.steps.start[bubbles.step[at]]),
            "time": int(length[at]),
            "frame": _shown(facts, int(bubbles.frame[at])),
        }
        for at in order.tolist()
    ]
    frame = int(bubbles.frame[order[0]])
    function = trace.name_of(frame) if frame >= 0 else ""
    tail = _tail(facts, least)
    feeds = bubbles.feeds & [is_needed(trace.name_of(at) if at >= 0 else "") for at in bubbles.frame.tolist()]
    ahead = float(length[feeds].sum()) / facts.steady_count
    return Found(
        values={
            "time": time(per_step),
            "per": per(facts),
            "times": counted(len(length) / facts.steady_count, "gap", "gaps"),
            "longest": time(float(length.max())),
            "where": text(_where(facts, frame)),
        },
        fix=fix_of_gap(function, stacks=facts.health.stacks, feeds=bool(feeds[order[0]])),
        change=cut(np.append(bubbles.start, tail[0]), np.append(bubbles.end, tail[1])) + add(beside_ns=ahead),
        evidence=[
            table(
                "Gaps in which no thread dispatches",
                [STEP, headed(START, "after the step began"), headed(TIME, "gap"), _FRAME],
                rows,
            ),
            *_how_to_see_more(facts, frame),
        ],
        steps=np.unique(bubbles.step).tolist() if trace.steps.recorded else (),
        location=locate(facts, frame),
        confidence="high" if frame >= 0 else "medium",
    )


def _add_up(facts: Facts, gaps: Gaps) -> Found:
    """Gaps that are short, and many."""
    trace, steps = facts.trace, facts.steady_count
    after = np.where(gaps.after >= 0, trace.name[gaps.after], -1)
    _, place, number = np.unique(combined(trace.name[gaps.before], after), return_inverse=True, return_counts=True)
    spent = np.bincount(place, weights=gaps.length)
    rows: list[dict[str, Any]] = []
    frames: list[int] = []
    for at in np.argsort(-spent, kind="stable")[:_PLACES].tolist():
        mine = np.flatnonzero(place == at)
        longest = mine[np.argmax(gaps.length[mine])]
        frames.append(frame_of(facts, int(gaps.start[longest]), int(gaps.end[longest])))
        behind = int(gaps.after[longest])
        rows.append(
            {
                "operator": f"{trace.name_of(int(gaps.before[longest]))}, "
                + (trace.name_of(behind) if behind >= 0 else "end of the step"),
                "count": float(number[at]) / steps,
                "duration": float(np.median(gaps.length[mine])),
                "time": float(spent[at]) / steps,
                "frame": _shown(facts, frames[-1]),
            }
        )
    frame = frames[0]
    return Found(
        title=_SHORT,
        values={
            "time": time(float(spent.sum()) / steps),
            "per": per(facts),
            "times": counted(len(gaps.start) / steps, "gap", "gaps"),
            "typical": time(float(np.median(gaps.length))),
            "operators": text(rows[0]["operator"].replace(", ", " and ")),
            "where": text(_where(facts, frame)),
        },
        fix=fix_of_gap(trace.name_of(frame) if frame >= 0 else "", stacks=facts.health.stacks),
        change=cut(gaps.start, gaps.end),
        evidence=[
            table(
                "Gaps that recur, less what is usual between operators and what recording Python took in them",
                [
                    headed(OPERATOR, "between"),
                    headed(COUNT, "times per step"),
                    headed(DURATION, "each"),
                    headed(TIME, "per step"),
                    _FRAME,
                ],
                rows,
            ),
            *_how_to_see_more(facts, frame),
        ],
        location=locate(facts, frame if frame >= 0 else int(gaps.before[0])),
        confidence="high" if frame >= 0 else "medium",
    )


def _shown(facts: Facts, frame: int) -> str:
    return facts.trace.name_of(frame)[:_LONGEST_NAME] if frame >= 0 else ""


def _where(facts: Facts, frame: int) -> str:
    """What the time of a gap goes into."""
    if frame >= 0:
        return function_label(facts.trace.name_of(frame))[:_LONGEST_NAME]
    return "many short Python functions" if facts.health.stacks else "code that the trace does not show"


def _how_to_see_more(facts: Facts, frame: int) -> list[Block]:
    if frame >= 0:
        return []
    if facts.health.stacks:
        return [TextBlock("No single Python function fills the gap: `lanewise tree --metric host` shows what runs.")]
    return [TextBlock("Record with stacks (`with_stack=True`) to see what Python does in the gap.")]


def _tail(facts: Facts, least: float) -> tuple[int, int]:
    """The same stretch at the end of the last step, where no device operation follows; empty where there is none."""
    trace, steps = facts.trace, facts.trace.steps
    last = int(np.flatnonzero(facts.steady)[-1]) if facts.steady.any() else len(steps) - 1
    rows = trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
    rows = rows[steps.of_event[rows] == last]
    end = int(steps.end[last])
    begin = min(end, int(trace.end[rows].max(initial=0)))
    return (begin, end) if end - begin >= least else (end, end)
