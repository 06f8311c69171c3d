"""LAU103."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import line_hint, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.loops.at_once import KERNEL_AT_LEAST_NS, products_at_once
from lanewise.measure.loops.over_tensors import loops_over_tensors
from lanewise.measure.loops.pieces import around
from lanewise.measure.loops.sequences import Repeat
from lanewise.replay.change import Change, add
from lanewise.report.evidence_columns import COUNT, headed
from lanewise.report.model import Block, TableColumn
from lanewise.report.quantity import count, text, time
from lanewise.trace.schema import Kind


@rule(
    "LAU103",
    "repeated-op-sequence",
    title="{sequence} runs {count} times in a row: a Python loop over tensors, {span} of host time per step.",
)
def repeated_op_sequence(facts: Facts, *, times_from: int = 10, longest: int = 20) -> Outcome:
    """A loop in Python calls the same few operators again and again.

    Each call costs the host Python, dispatch and a launch, for a kernel that handles one small piece. One call over all
    pieces costs that once.

    Costs: the host time of the loop, less one of its rounds, with what takes the pieces apart and puts the results
    together; and what its matrix products take longer than one large product would.

    Fix: stack the pieces and call once: batched operators (`bmm`, broadcasting), `torch.vmap`, `torch._foreach_*` for
    lists of tensors, or indexing with a tensor instead of a loop over indices.

    Verify: the sequence appears once.

    Silent: where the sequence holds a convolution, attention, or a matrix product, unless all around it picks operands or
    the shapes show that each round works on a piece of its own (the layers of a model repeat, too, and a recurrence needs
    the round before); for calls of compiled code (CMP103), for rows of frameworks (optimizers,
    DDP, FSDP, autograd), for collectives (DIS103), for loops that start nothing on the device (LAU105), and where each
    round waits for the device (SYN101).

    Source: torch/profiler/_pattern_matcher.py, ForLoopIndexingPattern.
    """
    trace = facts.trace
    if len(trace.of(Kind.OPERATOR)) == 0:
        return NotApplicable("the trace holds no operators")
    if facts.classes.device == "":
        return NotApplicable("no device work: loops on the CPU have other costs")
    loops = loops_over_tensors(facts, longest=longest, at_least=times_from)
    events, light = loops.events, loops.repeats
    if not light:
        return Clear(loops.reason or f"no sequence of operators repeats {times_from} times in a row")

    steps = facts.steady_count
    totals: dict[tuple[str, ...], list[tuple[float, Repeat]]] = {}
    for repeat in light:
        first, last = int(events[repeat.first]), int(events[repeat.last])
        names = tuple(trace.name_of(int(event)) for event in events[repeat.first : repeat.first + repeat.period])
        totals.setdefault(names, []).append((float(trace.end[last] - trace.start[first]), repeat))
    ordered = sorted(totals.items(), key=lambda item: -sum(span for span, _ in item[1]))
    gain = sum(span * (r.count - 1) / r.count for runs in totals.values() for span, r in runs) / steps
    rows: list[dict[str, Any]] = [
        {
            "sequence": _label(names),
            "count": round(sum(r.count for _, r in runs) / len(runs)),
            "loops": round(len(runs) / steps, 1),
            "span": sum(span for span, _ in runs) / steps,
        }
        for names, runs in ordered
    ]
    names, runs = ordered[0]
    claims = _calls_inside(facts, np.concatenate([events[r.first : r.last + 1] for r in light]))
    evidence: list[Block] = [
        table(
            "Sequences that repeat",
            [
                TableColumn("sequence", "text", "operators"),
                headed(COUNT, "times in a row"),
                TableColumn("loops", "count", "loops per step"),
                TableColumn("span", "time", "host time per step"),
            ],
            rows,
        )
    ]
    return Found(
        values={
            "sequence": text(_label(names)),
            "count": count(rows[0]["count"]),
            "span": time(rows[0]["span"]),
            "gain": time(gain),
        },
        change=_one_round(facts, events, light, steps),
        spread=0.3,
        evidence=[*evidence, *line_hint(facts)],
        location=locate(facts, int(events[runs[0][1].first])),
        confidence="high" if facts.health.stacks else "medium",
        events=claims.tolist(),
    )


def _one_round(facts: Facts, events: np.ndarray, repeats: list[Repeat], steps: int) -> Change:
    """One round of each loop does what all of them did: the others go, with what takes the pieces apart and puts them
    together again, but not the work of their kernels."""
    trace = facts.trace
    later = np.concatenate([events[repeat.first + repeat.period : repeat.last + 1] for repeat in repeats])
    beside = np.concatenate([around(facts, events, repeat) for repeat in repeats])
    calls = _calls_inside(facts, later)
    work = trace.device_work[np.isin(trace.links.launch, calls)]
    kept = float(np.maximum(trace.duration[work] - KERNEL_AT_LEAST_NS, 0).sum())
    kept += products_at_once(facts, events, repeats)
    return remove(facts, np.concatenate((later, beside))) + add(device_ns=kept / steps)


def _calls_inside(facts: Facts, operators: np.ndarray) -> np.ndarray:
    """Launching calls inside the given outermost operators."""
    calls = facts.launches.call
    return calls[np.isin(facts.host.outermost_operator[calls], operators)]


def _label(names: tuple[str, ...]) -> str:
    short = [name.removeprefix("aten::") for name in names]
    return " > ".join(short[:5]) + (f" ... ({len(short)} operators)" if len(short) > 5 else "")
