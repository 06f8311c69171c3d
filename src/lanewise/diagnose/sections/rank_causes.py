"""What a late rank does in the time that it takes more, in words."""

from __future__ import annotations

from lanewise.measure.distributed.late_ranks import Excess, Late
from lanewise.measure.distributed.own.own_context import Context
from lanewise.trace.schema import ENGINE_PREFIX

__all__ = ["cause_of", "context_name", "described", "main_cause", "what_to_do"]

_MORE_OFTEN = 1.2
_LONG = 70


def cause_of(one: Excess) -> str:
    """The cause as one word or two: the same for what is mended in the same way."""
    context = one.context
    if context.kind == "kernel":
        return "more work" if one.mine_count > _MORE_OFTEN * one.others_count else "slower kernels"
    return {
        "python": "Python",
        "sleep": "sleep",
        "collection": "garbage collection",
        "loader": "data loading",
        "copy": "copies",
    }.get(context.kind, "operators")


def described(one: Excess) -> str:
    """Where the time goes, to follow "it spends them"."""
    context = one.context
    at = f", called in {context.place}" if context.place else ""
    if context.kind == "python":
        if context.until:
            between = f"{_short(context.name)} and {_short(context.until)}"
            inside = f" in {context.inside}" if context.inside else at
            return f"in Python that calls no operator, or asleep, between {between}{inside}"
        return f"in the Python function {context.name}{at if context.place != context.name else ''}"
    if context.kind == "sleep":
        return f"asleep (time.sleep){at}"
    if context.kind == "collection":
        return f"collecting garbage (gc.collect){at}"
    if context.kind == "loader":
        return "waiting for its data loader"
    often = _often(one)
    if context.kind == "copy":
        way = f"copying on the device ({context.name})" if context.on_device else f"copying ({context.name})"
        return f"{way}{often}{at}"
    if context.kind == "kernel":
        if often:
            return f"in kernels {_short(context.name)}{often}"
        slower = one.mine_ns / max(one.others_ns, 1.0)
        return f"in the same kernels as the others, {slower:.2f} times as long ({_short(context.name)})"
    return f"in {_short(context.name)}{often}{at}"


def what_to_do(one: Excess, *, stacks: bool) -> str:
    """What to look at next, one sentence; "" where the cause says it."""
    if one.context.kind == "python" and one.context.until and not stacks:
        return "Record with --stacks, and the trace names the function."
    if cause_of(one) == "slower kernels":
        return "The same work takes this device longer: compare its clock, power and temperature with the others'."
    if cause_of(one) == "more work":
        return "It has more to compute: compare the sizes of its inputs and its part of the model with the others'."
    return ""


def main_cause(late: Late) -> tuple[Excess, float]:
    """The place that most of the time goes to, of the cause that most of it has; and what that cause takes."""
    sums: dict[str, float] = {}
    for one in late.excess:
        sums[cause_of(one)] = sums.get(cause_of(one), 0.0) + one.more_ns
    cause = max(sums, key=lambda name: sums[name])
    return next(one for one in late.excess if cause_of(one) == cause), sums[cause]


def _often(one: Excess) -> str:
    if one.others_count < 0.5:
        return ", which the others do not run"
    if one.mine_count > _MORE_OFTEN * one.others_count:
        return f", {one.mine_count:.0f} of them instead of {one.others_count:.0f}"
    return ""


def context_name(context: Context) -> str:
    """A context in a table."""
    if context.kind == "python" and context.until:
        return f"{_short(context.name)} -> {_short(context.until)}"
    return context.name + (f" ({context.place})" if context.place not in ("", context.name) else "")


def _short(name: str) -> str:
    name = name.removeprefix(ENGINE_PREFIX).removeprefix("void ")
    name = name.partition("(")[0].partition("<")[0] or name
    return name if len(name) <= _LONG else f"{name[: _LONG - 3]}..."
