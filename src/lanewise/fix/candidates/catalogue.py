"""All candidates for a subject, in the order in which they are tried: cheapest and safest first."""

from __future__ import annotations

import dataclasses

from lanewise.fix.candidates import (
    attention_backend,
    compiled,
    fused,
    graphs,
    layout,
    optimizers,
    pinned_arguments,
    precision,
    program,
    threads,
)
from lanewise.fix.candidates.candidate import Candidate, Several
from lanewise.fix.subject import Subject
from lanewise.fix.work.worklist import WorkList

__all__ = ["catalogue"]

_SLOW = ("compile-max-autotune", "compile-blocks")
"""Engines that take longest to make, and least often win."""


def catalogue(subject: Subject, work: WorkList) -> list[Candidate]:
    """Program fixes, then settings and layouts, then other ways to compute parts, then graphs and the compiler.

    Each of these builds on what was kept before it, except that of graphs and compilers a plan has one: see
    `Candidate.engine`. Where the program can be captured, those come first, so that they are timed in any budget, and parts
    are tried inside of a graph first: launched one by one, many cost the host more than they save. They are tried in the
    place of a graph, too: it copies inputs and results, which may take longer than the launches of a small program. The
    likeliest kernel comes before the compilers that take longest, and as an engine, so that none of those is built on it.
    """
    layouts, kernels, backends = (
        layout.candidates(subject),
        fused.candidates(subject),
        attention_backend.candidates(subject, work),
    )
    first = [*program.candidates(subject), *pinned_arguments.candidates(subject), *optimizers.candidates(subject)]
    settings = [*precision.candidates(subject), *threads.candidates(subject)]
    captured, engines = graphs.candidates(subject), _engines(subject, work)
    if not captured:
        return [*first, *layouts, *settings, *backends, *kernels, *engines]
    # What is known not to pay is not what comes first.
    parts = sorted([*_together(kernels), *kernels, *layouts], key=lambda one: bool(one.hopeless))
    likely, others = (graphs.with_parts(subject, some) for some in (parts[:1], [*parts[1:], *backends]))
    quick = [one for one in engines if not one.name.startswith(_SLOW)]
    slow = [one for one in engines if one not in quick]
    alone = [one for one in parts[:1] if one.family == "kernel"]
    rest = [one for one in (*layouts, *backends, *kernels) if one not in alone]
    return [*first, *settings, *captured, *quick, *likely, *map(_as_engine, alone), *slow, *others, *rest]


def _as_engine(part: Candidate) -> Candidate:
    return dataclasses.replace(part, engine=True)


def _together(kernels: list[Candidate]) -> list[Candidate]:
    """All of our kernels at once, if there are several."""
    ours = [one for one in kernels if one.name.startswith("kernel-") and not one.hopeless]
    if len(ours) < 2:
        return []

    def build(subject: Subject) -> Several:
        return Several([one.build(subject) for one in ours])

    return [
        dataclasses.replace(
            ours[0],
            name="kernels",
            region="; ".join(one.region for one in ours),
            what="every fused kernel that fits",
            build=build,
            predictions=tuple(prediction for one in ours for prediction in one.predictions),
        )
    ]


def _engines(subject: Subject, work: WorkList) -> list[Candidate]:
    """The compiler's modes, each followed by a graph of what it makes: that is compiled by then."""
    made = compiled.candidates(subject, work)
    captured = graphs.of_compiled(subject, [one.name for one in made])
    blocks = [one for one in made if one.name == "compile-blocks"]
    found: list[Candidate] = []
    for one in made:
        if one not in blocks:
            found += [one, *([captured[one.name]] if one.name in captured else [])]
    return [*found, *blocks]
