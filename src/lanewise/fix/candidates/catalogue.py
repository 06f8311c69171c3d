"""All candidates for a subject, in the order in which they are tried: cheapest and safest first."""

from __future__ import annotations

from lanewise.fix.candidates import (
    attention,
    compiled,
    copies,
    fused,
    graphs,
    layout,
    optimizers,
    precision,
    program,
    threads,
)
from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.gate.worklist import WorkList
from lanewise.fix.subject import Subject

__all__ = ["catalogue"]


def catalogue(subject: Subject, work: WorkList) -> list[Candidate]:
    """Program fixes, then settings and layouts, then kernels, then graphs and the compiler, then graphs with parts.

    Each of these builds on what was kept before it, except that of graphs and compilers a plan has one: see
    `Candidate.engine`.
    """
    kernels, layouts = fused.candidates(subject), layout.candidates(subject)
    return [
        *program.candidates(subject),
        *copies.candidates(subject),
        *optimizers.candidates(subject),
        *layouts,
        *precision.candidates(subject),
        *attention.candidates(subject, work),
        *threads.candidates(subject),
        *kernels,
        *graphs.candidates(subject),
        *_engines(subject),
        *graphs.with_parts(subject, [*layouts, *kernels]),
    ]


def _engines(subject: Subject) -> list[Candidate]:
    """The compiler's modes, each followed by a graph of what it makes: that is compiled by then."""
    made = compiled.candidates(subject)
    captured = {one.name: one for one in graphs.of_compiled(subject, compiled.modes_for(subject))}
    after = {"compile": "compile-cuda-graph", "compile-max-autotune": "compile-max-autotune-cuda-graph"}
    blocks = [one for one in made if one.name == "compile-blocks"]
    found: list[Candidate] = []
    for one in made:
        if one not in blocks:
            found += [one, *([captured[after[one.name]]] if after.get(one.name) in captured else [])]
    return [*found, *blocks]
