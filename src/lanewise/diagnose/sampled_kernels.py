"""What was sampled inside of a run's kernels, as sentences of its report: the kernel, its line, its waits, its limit, and
what mending that would give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec import structs

from lanewise.machine_code.disassembly import Place
from lanewise.machine_code.limiter import Verdict, limits_of
from lanewise.machine_code.mended import Gain, gain_of
from lanewise.machine_code.sampled.samples import read_samples
from lanewise.machine_code.sampled.stalls import Stalls, stalls_of
from lanewise.machine_code.stall_reasons import top_stall, wait_called
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.datasheet import Peak
from lanewise.measure.kernel_names import short_name
from lanewise.report.model import Note, Report, TextBlock
from lanewise.report.quantity import ratio, share, text, time
from lanewise.tree.flat import flat
from lanewise.tree.model import Tree

__all__ = ["KernelTime", "inside_statements", "kernel_times", "kernel_times_of_tree", "stalls_in", "with_inside"]

_MOST, _LEAST = 3, 0.02
"""Kernels that are spoken of, and the share of the kernels' time that one takes at least."""


class KernelTime(NamedTuple):
    """Of a kernel: share of what all kernels take, ns of a launch, its blocks, and their threads in x, y and z, where that
    is known."""

    name: str
    share: float
    launch: float
    blocks: int = 0
    threads: tuple[int, int, int] | None = None


def kernel_times(facts: Facts) -> list[KernelTime]:
    """Of a trace, by name: the launch and the grid are those of the form that takes most."""
    trace, groups = facts.trace, facts.kernel_groups
    every = sum(group.total for group in groups) or 1
    args = trace["kernel_args"]
    found: dict[str, KernelTime] = {}
    for group in groups:
        name, part = trace.names[int(trace.name[group.example])], group.total / every
        if name in found:
            found[name] = found[name]._replace(share=found[name].share + part)
            continue
        found[name] = KernelTime(name, part, group.total / len(group.rows))
        if group.arguments >= 0:
            grid, (x, y, z) = (
                [int(args[f"{what}_{axis}"][group.arguments]) for axis in "xyz"] for what in ("grid", "block")
            )
            if min(*grid, x, y, z) > 0:
                found[name] = found[name]._replace(blocks=prod(grid), threads=(x, y, z))
    return sorted(found.values(), key=lambda one: -one.share)


def kernel_times_of_tree(tree: Tree) -> list[KernelTime]:
    """Of a tree, which has no grids."""
    table = flat(tree, "kernel", metric="kernel")
    every = max(int(table["kernel"].sum()), 1)
    rows = zip(table["name"].tolist(), table["kernel"].tolist(), table["count"].tolist(), strict=True)
    return [KernelTime(name, spent / every, spent / max(number, 1)) for name, spent, number in rows if spent]


def stalls_in(samples: Path) -> list[Stalls]:
    """What a file of samples says of each kernel, the most sampled first. InputError if it is none."""
    return stalls_of(read_samples(samples))


def with_inside(report: Report, inside: Sequence[TextBlock], name: str) -> Report:
    """A report that says it, too; a note where `name`, the file of the samples, has nothing on its kernels."""
    if inside:
        return structs.replace(report, statements=[*report.statements, *inside])
    said = f"{name} has none of the kernels that take time here: it is of another program"
    return structs.replace(report, health=[*report.health, Note("warn", "samples", said)])


def inside_statements(kernels: Iterable[KernelTime], stalls: Sequence[Stalls], card: Peak | None) -> list[TextBlock]:
    """A sentence or two on each of the kernels that take most. `card`: what it ran on, None if unknown."""
    known: dict[str, Stalls] = {}
    for one in stalls:
        # Of several of one name the one that was sampled most, which comes first.
        known.setdefault(one.name, one)
    shown = [kernel for kernel in kernels if kernel.name in known and kernel.share >= _LEAST][:_MOST]
    return [_statement(kernel, known[kernel.name], card) for kernel in shown]


def _statement(kernel: KernelTime, stalls: Stalls, card: Peak | None) -> TextBlock:
    top = top_stall(stalls.reasons)
    values = {"kernel": text(short_name(kernel.name)), "share": share(kernel.share)}
    said = "{kernel}, {share} of the kernels' time"
    if top:
        values |= {"wait": text(wait_called(top)), "part": share(stalls.reasons[top] / stalls.number)}
        said += ", {wait} ({part} of its samples)"
    if stalls.lines:
        line = stalls.lines[0]
        values |= {"line": text(_line(line.at)), "there": share(line.number / stalls.number)}
        said += "; {there} of them lie at {line}"
    code = stalls.kernel
    if code is not None and kernel.threads is not None:
        code = replace(code, block=kernel.threads)
    verdict = None if code is None else limits_of(code, grid=kernel.blocks, card=card)
    limit = next((one for one in verdict.limits if one.defect), None) if verdict is not None else None
    if limit is not None:
        values |= {"limit": text(limit.name), "why": text(limit.why)}
        said += ". By its code it is limited by {limit}: {why}"
    gain = _gain(verdict, kernel, card)
    if gain is not None:
        values |= {"times": ratio(gain.times), "now": time(kernel.launch), "then": time(kernel.launch / gain.times)}
        said += ". With that fixed, it would take about {then} instead of {now} ({times})"
    return TextBlock(f"{said}.", values)


def _gain(verdict: Verdict | None, kernel: KernelTime, card: Peak | None) -> Gain | None:
    if verdict is None or card is None or not kernel.blocks:
        return None
    return gain_of(verdict, kernel.blocks, card, seconds=1e-9 * kernel.launch)


def _line(place: Place) -> str:
    return f"{PurePath(place.file).name}:{place.line}"
