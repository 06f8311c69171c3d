"""LAU103."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import line_hint, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.launch.sequences import Repeat, repeats_of_operators
from lanewise.replay.change import Change, add
from lanewise.report.evidence_columns import COUNT, headed
from lanewise.report.model import Block, TableColumn
from lanewise.report.quantity import count, text, time
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

# What takes one sample, expert or head out of a tensor of them.
_PICKING = ("aten::select", "aten::slice", "aten::squeeze", "aten::unsqueeze", "aten::t", "aten::transpose")
_HEAVY = ("gemm", "convolution", "attention", "communication")


@rule(
    "LAU103",
    "repeated-op-sequence",
    title="{sequence} runs {count} times in a row: a Python loop over tensors, {span} of host time per step.",
)
def repeated_op_sequence(facts: Facts, *, times_from: int = 10, longest: int = 20) -> Outcome:
    """A loop in Python calls the same few operators again and again.

    Each call costs the host Python, dispatch and a launch, for a kernel that handles one small piece. One call over all
    pieces costs that once.

    Costs: the host time of the loop, less one of its rounds.

    Fix: stack the pieces and call once: batched operators (`bmm`, broadcasting), `torch.vmap`, `torch._foreach_*` for
    lists of tensors, or indexing with a tensor instead of a loop over indices.

    Verify: the sequence appears once.

    Silent: where the sequence holds a convolution, attention, or a matrix product with more around it than what picks its
    operands (the layers of a model repeat, too); for calls of compiled code (CMP103), for rows of frameworks (optimizers,
    DDP, FSDP, autograd), for collectives (DIS103), for loops that start nothing on the device (LAU105), and where each
    round waits for the device (SYN101).

    Source: torch/profiler/_pattern_matcher.py, ForLoopIndexingPattern.
    """
    trace = facts.trace
    if len(trace.of(Kind.OPERATOR)) == 0:
        return NotApplicable("the trace holds no operators")
    if facts.classes.device == "":
        return NotApplicable("no device work: loops on the CPU have other costs")
    events, repeats = repeats_of_operators(facts, longest=longest, at_least=times_from)
    light, reason = _light(facts, events, repeats)
    if not light:
        return Clear(reason or f"no sequence of operators repeats {times_from} times in a row")

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
    """One round of each loop does what all of them did: the others go, but not the work of their kernels."""
    trace = facts.trace
    later = np.concatenate([events[repeat.first + repeat.period : repeat.last + 1] for repeat in repeats])
    calls = _calls_inside(facts, later)
    work = trace.device_work[np.isin(trace.links.launch, calls)]
    kept = float(np.maximum(trace.duration[work] - _KERNEL_AT_LEAST_NS, 0).sum()) / steps
    return remove(facts, later) + add(device_ns=kept)


# A kernel that does nothing takes about this long on a data-centre card.
_KERNEL_AT_LEAST_NS = 1_500


def _light(facts: Facts, events: np.ndarray, repeats: list[Repeat]) -> tuple[list[Repeat], str]:
    """Repeats without matrix work, communication or waiting; and why the last one left out was."""
    trace, reason = facts.trace, ""
    heavy = np.zeros(len(trace), dtype=bool)
    launch = trace.links.launch[facts.is_family(*_HEAVY)]
    owner = facts.host.outermost_operator[launch[launch >= 0]]
    heavy[owner[owner >= 0]] = True
    heavy |= (trace.kind == Kind.OPERATOR) & facts.matrix_names[trace.name]
    compiled = mask_of(
        len(trace), np.concatenate((facts.regions.region, facts.regions.lookup, facts.regions.graph_call))
    )
    picked = np.isin(trace.name, trace.name_ids(*_PICKING))
    product = facts.matrix_names[trace.name]
    copied = _owners_of_host_copies(facts)
    launching = np.unique(facts.host.outermost_operator[facts.launches.call])
    kept: list[Repeat] = []
    for repeat in repeats:
        inside = events[repeat.first : repeat.last + 1]
        if compiled[inside].any():
            reason = "the sequences that repeat are calls of compiled code (CMP103)"
        elif heavy[inside].any() and not (picked[inside].any() and (picked | product)[inside].all()):
            reason = "the sequences that repeat hold matrix work or communication"
        elif facts.host.wait_inside[inside].any() or np.isin(inside, copied).any():
            reason = "each round of the loop waits for the device or copies from the host (SYN101, SYN109)"
        elif not np.isin(inside, launching).any():
            reason = "the sequences that repeat start nothing on the device (LAU105)"
        else:
            kept.append(repeat)
    return kept, reason


def _owners_of_host_copies(facts: Facts) -> np.ndarray:
    """Outermost operators that copy between host and device."""
    trace = facts.trace
    copies = trace["copy_args"]
    chosen = copies["event"][np.isin(copies["direction"], ("HtoD", "DtoH"))]
    launch = trace.links.launch[np.searchsorted(trace.device_work, chosen)] if len(chosen) else np.empty(0, np.int64)
    return np.unique(facts.host.outermost_operator[launch[launch >= 0]])


def _calls_inside(facts: Facts, operators: np.ndarray) -> np.ndarray:
    """Launching calls inside the given outermost operators."""
    calls = facts.launches.call
    return calls[np.isin(facts.host.outermost_operator[calls], operators)]


def _label(names: tuple[str, ...]) -> str:
    short = [name.removeprefix("aten::") for name in names]
    return " > ".join(short[:5]) + (f" ... ({len(short)} operators)" if len(short) > 5 else "")
