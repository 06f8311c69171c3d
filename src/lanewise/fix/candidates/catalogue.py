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
    """Program fixes, then settings and layouts, then kernels, then graphs and the compiler.

    Each of these builds on what was kept before it, except that of graphs and compilers a plan has one: see
    `Candidate.engine`.
    """
    kernels = fused.candidates(subject)
    return [
        *program.candidates(subject),
        *copies.candidates(subject),
        *optimizers.candidates(subject),
        *layout.candidates(subject),
        *precision.candidates(subject),
        *attention.candidates(subject, work),
        *threads.candidates(subject),
        *kernels,
        *graphs.candidates(subject, kernels),
        *compiled.candidates(subject),
        *graphs.of_compiled(subject, compiled.modes_for(subject)),
    ]
