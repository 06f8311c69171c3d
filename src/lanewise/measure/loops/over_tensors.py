"""Python loops that run a few light operators again and again: what one call over all pieces could do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.measure.loops.pieces import piece_before
from lanewise.measure.loops.rounds import PICKS, are_independent
from lanewise.measure.loops.sequences import Repeat, repeats_of_operators
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

__all__ = ["Loops", "loops_over_tensors"]

# What takes one sample, expert or head out of a tensor of them, and views of it.
_PICKING = (*PICKS, "aten::squeeze", "aten::unsqueeze", "aten::t", "aten::transpose")
_HEAVY = ("gemm", "convolution", "attention", "communication")


@dataclass(frozen=True, eq=False)
class Loops:
    """Loops whose rounds one call could do.

    Attributes:
        events: the sequence of operators that the program calls.
        repeats: the loops, by positions in it.
        reason: why the last loop that is not among them was left out; "" where none was.
    """

    events: np.ndarray
    repeats: list[Repeat]
    reason: str


def loops_over_tensors(facts: Facts, *, longest: int, at_least: int) -> Loops:
    """Repeats of up to `longest` operators, `at_least` rounds each, without communication, waiting, or matrix work of which
    one round may need another."""
    events, repeats = repeats_of_operators(facts, longest=longest, at_least=at_least)
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
    return Loops(events, kept, reason)


def _independent(facts: Facts, events: np.ndarray, repeat: Repeat) -> bool:
    """Whether the shapes show that no round of a loop needs another one."""
    if not facts.health.shapes:
        return False
    round_ = events[repeat.first : repeat.first + repeat.period].tolist()
    named = [(facts.trace.name_of(event), facts.signatures.of(event)) for event in round_]
    return are_independent(named, piece_before(facts, events, repeat))


def _owners_of_host_copies(facts: Facts) -> np.ndarray:
    """Outermost operators that copy between host and device."""
    trace = facts.trace
    copies = trace["copy_args"]
    chosen = copies["event"][np.isin(copies["direction"], ("HtoD", "DtoH"))]
    launch = trace.links.launch_of(chosen)
    return np.unique(facts.host.outermost_operator[launch[launch >= 0]])
