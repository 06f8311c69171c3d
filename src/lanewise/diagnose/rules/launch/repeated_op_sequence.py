"""LAU103."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lanewise.diagnose.evidence import line_hint, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.columns import sums
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.flops import work_of
from lanewise.measure.launch.rounds import PICKS, are_independent, piece_of
from lanewise.measure.launch.sequences import Repeat, repeats_of_operators
from lanewise.replay.change import Change, add
from lanewise.report.evidence_columns import COUNT, headed
from lanewise.report.model import Block, TableColumn
from lanewise.report.quantity import count, text, time
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

# What takes one sample, expert or head out of a tensor of them, and views of it.
_PICKING = (*PICKS, "aten::squeeze", "aten::unsqueeze", "aten::t", "aten::transpose")
_TAKES_APART = ("aten::unbind", "aten::split")
_PUTS_TOGETHER = ("aten::stack", "aten::cat")
# How far before a loop what it works on may be taken apart: `zip` of several tensors does so for each of them.
_BEFORE = 4
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
    """One round of each loop does what all of them did: the others go, with what takes the pieces apart and puts them
    together again, but not the work of their kernels."""
    trace = facts.trace
    later = np.concatenate([events[repeat.first + repeat.period : repeat.last + 1] for repeat in repeats])
    around = np.concatenate([_around(facts, events, repeat) for repeat in repeats])
    calls = _calls_inside(facts, later)
    work = trace.device_work[np.isin(trace.links.launch, calls)]
    kept = float(np.maximum(trace.duration[work] - _KERNEL_AT_LEAST_NS, 0).sum())
    kept += _at_once(facts, events, repeats)
    return remove(facts, np.concatenate((later, around))) + add(device_ns=kept / steps)


def _around(facts: Facts, events: np.ndarray, repeat: Repeat) -> np.ndarray:
    """What takes a loop's pieces apart, before it and in its first round, and puts the results together behind it; nothing
    where the loop takes nothing apart."""
    trace = facts.trace
    before = _taken_apart(facts, events, repeat)
    first = events[repeat.first : repeat.first + repeat.period]
    picks = first[np.isin(trace.name[first], trace.name_ids(*PICKS))]
    if len(before) + len(picks) == 0:
        return picks
    after = events[repeat.last + 1 : repeat.last + 2]
    joins = np.isin(trace.name[after], trace.name_ids(*_PUTS_TOGETHER)) & _same_place(facts, after, first[0])
    return np.concatenate((before, picks, after[joins]))


def _taken_apart(facts: Facts, events: np.ndarray, repeat: Repeat) -> np.ndarray:
    """Operators shortly before a loop that take a tensor apart into as many pieces as it has rounds."""
    trace = facts.trace
    near = events[max(0, repeat.first - _BEFORE) : repeat.first]
    near = near[
        np.isin(trace.name[near], trace.name_ids(*_TAKES_APART)) & _same_place(facts, near, int(events[repeat.first]))
    ]
    return near[[_pieces(facts, int(event)) == repeat.count for event in near]] if len(near) else near


def _pieces(facts: Facts, event: int) -> int:
    """Into how many pieces an operator takes a tensor apart; 0 where that is not known."""
    call = facts.signatures.of(event)
    whole = call.tensor(0) if call is not None else None
    piece = piece_of(facts.trace.name_of(event), call) if call is not None else None
    if whole is None or piece is None:
        return 0
    return -(-whole.numel // max(1, math.prod(piece)))


def _same_place(facts: Facts, events: np.ndarray, other: int) -> np.ndarray:
    """Whether each event is of the same thread and step as another one."""
    trace, step = facts.trace, facts.trace.steps.of_event
    return (trace.lane[events] == trace.lane[other]) & (step[events] == step[other])


def _at_once(facts: Facts, events: np.ndarray, repeats: list[Repeat]) -> float:
    """How much longer than the work of its kernels a loop with matrix products takes at once, ns, below zero where it is
    shorter: at the rate that a large product reaches, or at the memory's. 0 where shapes or card are not known."""
    trace, peak = facts.trace, facts.device.peak
    heavy = facts.matrix_names[trace.name[events]]
    repeats = [repeat for repeat in repeats if heavy[repeat.first : repeat.last + 1].any()]
    if peak is None or not repeats:
        return 0.0
    calls = facts.launches.call
    owner = facts.host.outermost_operator[calls]
    spent = sums(owner[owner >= 0], facts.device_time_of_call[calls[owner >= 0]], len(trace))
    longer = 0.0
    for repeat in repeats:
        for at in range(repeat.first, repeat.first + repeat.period):
            work = work_of(trace.name_of(int(events[at])), facts.signatures.of(int(events[at])))
            rate = peak.flop_rate(work.dtype) if work is not None and work.kind == "matmul" else math.inf
            if work is None or not rate:
                continue
            whole = repeat.count * max((work.flops or 0.0) / (_REACHABLE * rate), work.bytes / peak.bandwidth) * 1e9
            first, *later = spent[events[at : repeat.last + 1 : repeat.period]].tolist()
            longer += min(sum(later), max(0.0, whole - first)) - sum(max(0.0, ns - _KERNEL_AT_LEAST_NS) for ns in later)
    return longer


# Of the tensor cores' peak, what a large product reaches.
_REACHABLE = 0.70

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
        elif heavy[inside].any() and not (
            (picked[inside].any() and (picked | product)[inside].all()) or _independent(facts, events, repeat)
        ):
            reason = "the sequences that repeat hold matrix work or communication"
        elif facts.host.wait_inside[inside].any() or np.isin(inside, copied).any():
            reason = "each round of the loop waits for the device or copies from the host (SYN101, SYN109)"
        elif not np.isin(inside, launching).any():
            reason = "the sequences that repeat start nothing on the device (LAU105)"
        else:
            kept.append(repeat)
    return kept, reason


def _independent(facts: Facts, events: np.ndarray, repeat: Repeat) -> bool:
    """Whether the shapes show that no round of a loop needs another one."""
    trace = facts.trace
    if not facts.health.shapes:
        return False
    before = _taken_apart(facts, events, repeat)
    call = facts.signatures.of(int(before[0])) if len(before) else None
    piece = piece_of(trace.name_of(int(before[0])), call) if call is not None else None
    round_ = events[repeat.first : repeat.first + repeat.period].tolist()
    return are_independent([(trace.name_of(event), facts.signatures.of(event)) for event in round_], piece)


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
