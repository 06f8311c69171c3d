"""What changed and what did not, in sentences. Names in them come from traces: outputs escape the text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lanewise.compare.matching.kernels import identity
from lanewise.compare.model import Change, Difference, Ratio
from lanewise.compare.outcome.descriptions import chain_words, plural
from lanewise.compare.sides.arm import Arm
from lanewise.measure.regime.regime import REGIMES
from lanewise.report.quantity import format_quantity

__all__ = ["is_change", "step_sentence", "verdict"]

_UNCHANGED = frozenset({"same", "name"})
# Device time differs by less than this share: it is called the same.
_SAME_TIME = 0.03
_MAX_NAMED = 3
_MANY = 200


def is_change(changes: Sequence[Change], step: Ratio) -> bool:
    """Whether something else runs, or a time differs by its verdict word."""
    times = [step, *(change.ratio for change in changes if change.ratio is not None)]
    return any(change.how not in _UNCHANGED for change in changes) or any(
        ratio.verdict in {"faster", "slower"} for ratio in times
    )


def verdict(a: Arm, b: Arm, difference: Difference) -> Difference:
    """The difference with its verdict filled in."""
    # How long a step takes is what one asks first; why comes after it.
    sentences = [
        _step_sentences(a, b, difference),
        step_sentence(difference.step),
        _work_sentence(a, b, difference.device),
    ]
    return msgspec.structs.replace(difference, verdict=" ".join(s for s in sentences if s))


def subject(a: Arm, b: Arm) -> str:
    """What B did, as the beginning of a sentence."""
    if b.typical.compiled and not a.typical.compiled:
        return "Compiling with a CUDA graph" if b.typical.graphs and not a.typical.graphs else "Compiling"
    if b.typical.graphs and not a.typical.graphs:
        return "Replaying a CUDA graph"
    if a.typical.compiled and not b.typical.compiled:
        return "Not compiling"
    return b.label


def _work_sentence(a: Arm, b: Arm, changes: Sequence[Change]) -> str:
    who = subject(a, b)
    if a.typical.partial or b.typical.partial:
        return ""
    where = "on the device" if b.typical.work.device else "among the operators"
    other = [change for change in changes if change.how not in _UNCHANGED]
    if not other:
        count = len(b.typical.work.at)
        noun = "device op" if b.typical.work.device else "operator"
        text = f"{who} changed nothing {where}: the same {plural(count, noun)} per step"
        return f"{text}{_times(a, b, changes)}{_timed(changes)}."
    parts = [
        part
        for part in (
            _products(changes),
            _fused(other),
            _absorbed(other),
            _moved(other),
            _relaunched(other),
            _sized(other),
            _graph_inputs(other),
            _alone(other),
        )
        if part
    ]
    times = _times(a, b, changes)
    if len(parts) == 1 and parts[0].endswith(f"({_before_and_after(a.typical.device_ns, b.typical.device_ns)})"):
        times = ""  # said already: all of it is this
    return f"{who}: {'; '.join(parts)}{times}{_timed(changes)}."


def _times(a: Arm, b: Arm, changes: Sequence[Change]) -> str:
    """Device time on both sides; where it differs although the work does not, which op makes the difference."""
    if not b.typical.work.device:
        return ""
    before, after = a.typical.device_ns, b.typical.device_ns
    if abs(after - before) <= _SAME_TIME * max(before, after):
        return f" ({_time(before)} of device time against {_time(after)})"
    text = f"device time {_before_and_after(before, after)}"
    largest = max(changes, key=lambda change: abs(change.delta_ns))
    if largest.how in _UNCHANGED and abs(largest.delta_ns) > 0.5 * abs(after - before):
        waits = ", which waits for other ranks" if _family(largest.b[0].name) == "communication" else ""
        text += f", most of it {chain_words(largest.b)}{waits}"
    return f" ({text})"


def _timed(changes: Sequence[Change]) -> str:
    """Kernels that run as before but take another time, by their verdict."""
    moved = [
        c
        for c in changes
        if c.how in {"same", "name", "launch", "moved", "epilogue"}
        and c.ratio is not None
        and c.ratio.verdict in {"faster", "slower"}
    ]
    if not moved:
        return ""
    named = ", ".join(
        f"{chain_words(c.b)} {c.ratio.verdict} ({_time(c.a_ns)} → {_time(c.b_ns)})"
        for c in moved[:_MAX_NAMED]
        if c.ratio
    )
    more = f" and {len(moved) - _MAX_NAMED} more" if len(moved) > _MAX_NAMED else ""
    return f"; {named}{more}"


def _products(changes: Sequence[Change]) -> str:
    """What became of the matrix products, which compilers leave alone."""
    with_product = [c for c in changes if any(_family(op.name) == "gemm" for op in (*c.a, *c.b) if op.kind == "kernel")]
    if not with_product:
        return ""
    kept = sum(c.times for c in with_product if c.how in {"same", "name", "absorbed", "epilogue", "launch", "moved"})
    others = sum(c.times for c in with_product) - kept
    noun = "matrix product"
    if not others:
        return f"the same {noun}" if kept == 1 else f"the same {plural(kept, noun)}"
    chosen = sum(c.times for c in with_product if c.how == "kernel")
    if kept + chosen == 0:
        return ""
    if not kept and chosen == others:
        return f"{plural(chosen, noun)} with another kernel"
    text = f"{kept} of {plural(kept + others, noun)} the same"
    return text + (f", {chosen} with another kernel" if chosen else "")


def _fused(changes: Sequence[Change]) -> str:
    fused = [c for c in changes if c.how == "fused"]
    if not fused:
        split = [c for c in changes if c.how == "split"]
        if not split:
            return ""
        before, after = sum(c.times for c in split), sum(c.times * len(c.b) for c in split)
        return f"{plural(before, 'generated kernel')} split into {plural(after, 'kernel')} ({_sum_times(split)})"
    written_out = [c for c in fused if not identity(c.b[0].name).fused and c.b[0].kind == "kernel"]
    generated = [c for c in fused if c not in written_out]
    parts = [
        f"{plural(c.times * len(c.a), 'kernel')} became {chain_words(c.b)} ({_sum_times([c])})"
        for c in written_out[:_MAX_NAMED]
    ]
    if generated:
        parts.append(_generated(generated))
    return "; ".join(parts)


def _generated(fused: Sequence[Change]) -> str:
    before, after = sum(c.times * len(c.a) for c in fused), sum(c.times for c in fused)
    if before == after:
        what = ", ".join(dict.fromkeys(chain_words(c.a) for c in fused[:_MAX_NAMED]))
        return f"nothing was fused, {what} only became a generated kernel ({_sum_times(fused)})"
    noun = "operator" if fused[0].a[0].kind == "operator" else "kernel"
    return f"{plural(before, noun)} fused into {after} ({_sum_times(fused)})"


def _absorbed(changes: Sequence[Change]) -> str:
    found = [c for c in changes if c.how == "absorbed"]
    if not found:
        return ""
    one = found[0]
    small = [op for op in one.a if op.kind == "kernel" and _family(op.name) != "gemm"]
    copies = [op for op in one.b if op.kind == "copy"]
    what = chain_words(small) if small else "pointwise work"
    text = f"{what} moved into the product's epilogue" if small else "the product's epilogue changed"
    if copies:
        text += ", which copies its operand first"
    return f"{text} ({_sum_times(found)})"


def _moved(changes: Sequence[Change]) -> str:
    moved = sum(c.times for c in changes if c.how == "moved")
    noun = "device op" if any(op.kind != "operator" for c in changes for op in c.a) else "operator"
    return f"{plural(moved, noun)} run{'s' if moved == 1 else ''} in a different order" if moved else ""


def _relaunched(changes: Sequence[Change]) -> str:
    launched = [c for c in changes if c.how == "launch"]
    return (
        f"{plural(sum(c.times for c in launched), 'kernel')} with a different grid ({_sum_times(launched)})"
        if launched
        else ""
    )


def _sized(changes: Sequence[Change]) -> str:
    sized = [c for c in changes if c.how == "size"]
    if not sized:
        return ""
    one = sized[0]
    names = (
        f"{one.a[0].name} became {one.b[0].name}"
        if one.a[0].name != one.b[0].name
        else f"{chain_words(one.b)} of a different size"
    )
    return f"{names} ({_sum_times(sized)})"


def _graph_inputs(changes: Sequence[Change]) -> str:
    found = [c for c in changes if c.how == "graph input"]
    added, removed = sum(c.b_ns for c in found), sum(c.a_ns for c in found)
    if not found:
        return ""
    count = sum(c.times for c in found)
    return f"{plural(count, 'copy')} of graph inputs ({'+' if added >= removed else '-'}{_time(abs(added - removed))})"


def _alone(changes: Sequence[Change]) -> str:
    """What has no partner, by what it is called, the most time first."""
    parts: list[str] = []
    for how in ("gone", "new"):
        times: dict[str, int] = {}
        for change in changes:
            if change.how == how:
                words = chain_words(change.a or change.b)
                times[words] = times.get(words, 0) + change.times
        if times:
            named = [words if count == 1 else f"{count}x {words}" for words, count in times.items()]
            more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
            total = sum(c.a_ns + c.b_ns for c in changes if c.how == how)
            parts.append(f"{', '.join(named[:_MAX_NAMED])}{more} {how} ({_time(total)})")
    return ", ".join(parts)


def _step_sentences(a: Arm, b: Arm, difference: Difference) -> str:
    before, after = a.step_ns, b.step_ns
    if not before or not after:
        return ""
    delta = after - before
    parts: list[str] = []
    if abs(delta) <= 0.005 * max(before, after):
        parts.append(f"The step takes {_time(after)} on both sides")
    elif difference.step.verdict not in {"faster", "slower"}:
        # What the runs do not show is not stated, and nobody's either.
        same = difference.step.verdict == "no difference"
        known = "no difference" if same else "too few runs to tell them apart"
        parts.append(f"The step took {_time(before)} and {_time(after)}: {known}")
    else:
        word = "more" if delta > 0 else "less"
        parts.append(f"The step takes {_time(after)} instead of {_time(before)}, {_time(abs(delta))} {word}")
        parts.append(_whose(difference, delta))
    regimes = a.typical.regime, b.typical.regime
    if regimes[0] != regimes[1] and "undetermined" not in regimes:
        parts.append(f"it went from {REGIMES[regimes[0]][1]} to {REGIMES[regimes[1]][1]}")
    launches = a.typical.counts.get("launches", 0.0), b.typical.counts.get("launches", 0.0)
    if launches[0] != launches[1]:
        parts.append(f"{launches[0]:g} launch{'es' * (launches[0] != 1)} became {launches[1]:g}")
    return "; ".join(part for part in parts if part) + "."


def _whose(difference: Difference, delta: float) -> str:
    """Which side of the machine the difference is on."""
    by_key = {item.key: item.ns for item in difference.waterfall.items}
    host = by_key.get("host", 0)
    device = sum(by_key.get(key, 0) for key in ("compute", "transfer", "communication"))
    if not by_key or "step" in by_key:
        return ""
    if abs(host - delta) <= 0.1 * abs(delta):
        return "all of it host time"
    if abs(device - delta) <= 0.1 * abs(delta):
        return "all of it device time"
    signed = [f"{_signed(host)} of host time" if host else "", f"{_signed(device)} of device time" if device else ""]
    return " and ".join(part for part in signed if part)


def step_sentence(step: Ratio) -> str:
    """The verdict on the step time with what supports it."""
    if step.ratio is None:
        return ""
    ratio, low, high = step.ratio, step.low, step.high
    if step.verdict == "slower":
        ratio, low, high = (1 / value if value else None for value in (ratio, high, low))
    interval = f"{ratio:.3g}x" + " as long" * (step.verdict == "slower")
    if low is not None and high is not None:
        interval += f", 95 % interval {low:.3g} to {high:.3g}"
    basis = f"{step.a_count} and {step.b_count} {step.unit}"
    if step.a_count == step.b_count == 1:
        # An interval of single values rests on how much such runs differ on our hosts.
        basis = "one value per side" + (", and the spread to expect between runs" if step.low is not None else "")
    elif step.low is None:
        basis = f"only {basis}"
    text = f"Step time: {step.verdict} ({interval}; {basis}"
    if step.mde is not None:
        text += f"; differences of {format_quantity('share', step.mde)} or more would show"
    text += ")"
    if step.verdict == "not enough samples" and step.further:
        count = f"about {step.further}" if step.further <= _MANY else f"more than {_MANY}"
        each = f"{count} runs per side" if step.further_unit == "runs" else f"{count} more {step.further_unit}"
        text += f": {each} would tell"
    return text + "."


def _sum_times(changes: Sequence[Change]) -> str:
    return _before_and_after(sum(c.a_ns for c in changes), sum(c.b_ns for c in changes))


def _before_and_after(before: float, after: float) -> str:
    return f"{_time(before)} → {_time(after)}"


def _family(name: str) -> str:
    return identity(name).family


def _time(ns: float) -> str:
    return format_quantity("time", ns)


def _signed(ns: float) -> str:
    return f"{'+' if ns >= 0 else '-'}{_time(abs(ns))}"
