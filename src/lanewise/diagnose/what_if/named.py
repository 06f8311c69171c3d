"""What a user asks for in words -> a change: `MEM106`, `kernel:gemm=2x`, `dtype=bf16`, `cuda-graph` ...

    CODE                    a finding of the report, mended: by its code or its name
    SUBJECT=2x              so many times as fast (0.5x: slower), on the device and, if it has any, on the host
    SUBJECT=remove          not done at all
    SUBJECT=overlap         beside the rest: on a stream, or by a thread, of its own
    host=2x, device=2x      all that the host, all that the device does
    device=H200, bandwidth=2x, dtype=bf16|fp16|tf32, batch=2x
    cuda-graph, compile, no-profiler

A SUBJECT is `kernel:NAME`, `operator:NAME`, `module:NAME`, `line:FILE:LINE`, `function:NAME`, `copies`, `communication`,
`waits`, `optimizer`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from lanewise.diagnose.engine import evaluate, render_title, wish_of
from lanewise.diagnose.registry import find_rule, installed_rules
from lanewise.diagnose.rule import Found, Rule
from lanewise.diagnose.select import device_rows, outermost
from lanewise.diagnose.settings import Settings
from lanewise.diagnose.what_if.hardware import TYPES, other_bandwidth, other_batch, other_card, other_type
from lanewise.diagnose.what_if.remedies import remove, replayed
from lanewise.diagnose.what_if.subjects import NAMED, UNNAMED, Subject, find_subject
from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.replay.best_first import Wish
from lanewise.replay.change import Change, cheaper, drop_wait, move, overlap, pace, scale
from lanewise.report.quantity import format_quantity
from lanewise.trace.schema import Kind

__all__ = ["WAYS", "Named", "named_change"]

WAYS = (
    "a finding's code, kernel:NAME=2x, operator:NAME=remove, host=2x, copies=overlap, cuda-graph, compile, dtype=bf16"
)
"""Some of what can be asked for, for messages."""

_FACTOR = re.compile(r"(?:x\s*)?(\d+(?:\.\d+)?|\.\d+)(?:\s*x)?$", re.IGNORECASE)
_CODE = re.compile(r"[A-Za-z]{3}\d{3}$")
_REMOVED, _BESIDE = ("remove", "removed", "none"), ("overlap", "overlapped")

# A kernel of compiled code is launched by generated code: about this much of the host's time each, without the profiler.
_COMPILED_LAUNCH_NS = 8_000.0


@dataclass(frozen=True, eq=False)
class Named:
    """A change that a user asked for.

    Attributes:
        asked: in the user's words, a finding's code in capitals.
        title: what it means in this trace.
        wish: what it does to the step.
        note: what one should know about it, "" for nothing.
        bound: whether it gives at most what the replay says.
    """

    asked: str
    title: str
    wish: Wish
    note: str = ""
    bound: bool = False


def named_change(facts: Facts, words: str, settings: Settings) -> Named:
    """The change that some words mean in a trace.

    Raises:
        UsageError: no such change, or nothing in the trace that it could apply to; with what is near, or there.
    """
    words = words.strip()
    if words.lower() in _WHOLE:
        return _WHOLE[words.lower()](facts, settings)
    if "=" not in words:
        return _finding(facts, words, settings)
    subject, _, what = (part.strip() for part in words.rpartition("="))
    kind, colon, name = subject.partition(":")
    kind = kind.lower()
    if kind in _SETTINGS and not colon:
        return _SETTINGS[kind](facts, words, what)
    if colon and kind in NAMED:
        if not name:
            raise UsageError(f"which {kind}? {kind}:NAME={what or '2x'}")
        return _of_subject(facts, words, find_subject(facts, kind, name), what)
    if not colon and kind in UNNAMED:
        return _of_subject(facts, words, find_subject(facts, kind, ""), what)
    if kind in NAMED:
        raise UsageError(f"which {kind}? {kind}:NAME={what or '2x'}")
    known = [*_SETTINGS, *UNNAMED, *(f"{one}:NAME" for one in NAMED)]
    raise UsageError(f"no change {words!r}; {_near(kind, known)}")


def _near(word: str, known: list[str]) -> str:
    short = {one.partition(":")[0]: one for one in known}
    near = get_close_matches(word, short, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(short[one] for one in near)}?" if near else f"what can be asked for: {WAYS}"


# -- findings -------------------------------------------------------------------------------------------------------------


def _finding(facts: Facts, words: str, settings: Settings) -> Named:
    known = {rule.code.lower() for rule in installed_rules()} | {rule.name for rule in installed_rules()}
    if words.lower() not in known:
        names = sorted({*known, *_WHOLE, *_SETTINGS, *UNNAMED} if not _CODE.match(words) else known)
        near = get_close_matches(words.lower(), names, n=3, cutoff=0.6)
        shown = ", ".join(one.upper() if _CODE.match(one) else one for one in near)
        raise UsageError(f"no finding or change {words!r}; " + (f"near: {shown}" if near else f"say {WAYS}"))
    rule = find_rule(words)
    found, checks = evaluate(facts, Settings(select=(rule.code,), thresholds=settings.thresholds))
    outcome = next((outcome for one, outcome in found if one.code == rule.code), None)
    if outcome is None:
        reason = next((check.reason for check in checks if check.code == rule.code), "")
        raise UsageError(f"{rule.code} ({rule.name}) is not found in this trace" + (f": {reason}" if reason else ""))
    return of_finding(rule, outcome)


def of_finding(rule: Rule, outcome: Found) -> Named:
    """A finding, mended. Raises UsageError where there is nothing to mend."""
    wish = wish_of(rule, outcome)
    if wish is None:
        raise UsageError(
            f"{rule.code} ({rule.name}) states something and names nothing to fix; say what changes, as in kernel:NAME=2x"
        )
    return Named(rule.code, render_title(outcome.title or rule.title, outcome), wish, rule.name, outcome.bound)


# -- subjects -------------------------------------------------------------------------------------------------------------


def _of_subject(facts: Facts, words: str, subject: Subject, what: str) -> Named:
    host, device = subject.host, subject.device
    waits = len(host) > 0 and bool(facts.host.waiting[host].all())
    if len(host) + len(device) == 0:
        raise UsageError(f"{words}: a steady step holds none of that")
    steps = facts.steady_count
    parts = [] if not len(host) else [_many(len(host) / steps, "call", "on the host")]
    parts += [] if not len(device) else [_many(len(device) / steps, "operation", "on the device")]
    what = what.lower()
    if what in _REMOVED:
        change = drop_wait(host) if waits else Change(gone=host) if len(host) else remove(facts, device)
        text = "not waited for" if waits else "left out"
    elif what in _BESIDE:
        change = move(device) + (overlap(host) if len(host) and not waits else Change())
        # A copy that blocks the host cannot be beside anything.
        launch = facts.trace.links.launch_of(device)
        blocking = np.unique(launch[launch >= 0])
        change = change + drop_wait(blocking[facts.host.waiting[blocking]])
        if waits:
            change = drop_wait(host)
        text = "in parallel with the rest"
    else:
        factor = _factor(words, what, also="remove or overlap")
        change = scale(device, 1 / factor) + (cheaper(host, 1 / factor) if len(host) and not waits else Change())
        text = f"{factor:g} times as fast"
    return Named(words, f"{' and '.join(parts)} per step, {text}", Wish(change))


def _many(number: float, what: str, where: str) -> str:
    return f"{number:,.3g} {what}{'' if number == 1 else 's'} {where}"


def _factor(words: str, what: str, *, also: str = "") -> float:
    match = _FACTOR.match(what)
    value = float(match[1]) if match else 0.0
    if not 1e-3 <= value <= 1e6:
        raise UsageError(f"{words}: say a factor, such as 2x" + (f", or {also}" if also else ""))
    return value


# -- all of the step ------------------------------------------------------------------------------------------------------


def _host(facts: Facts, words: str, what: str) -> Named:
    factor = _factor(words, what)
    return Named(words, f"all that the host does, {factor:g} times as fast", Wish(pace(1 / factor)))


def _device(facts: Facts, words: str, what: str) -> Named:
    if _FACTOR.match(what):
        factor = _factor(words, what)
        work = facts.trace.device_work[device_rows(facts)]
        return Named(words, f"all device work {factor:g} times as fast", Wish(scale(work, 1 / factor)))
    change, card = other_card(facts, what)
    note = "by the cards' peak rates; the host and the bus stay as they are"
    return Named(words, f"the same kernels on {card}", Wish(change, 0.3), note)


def _bandwidth(facts: Facts, words: str, what: str) -> Named:
    factor = _factor(words, what)
    return Named(words, f"device memory {factor:g} times as fast", Wish(other_bandwidth(facts, factor), 0.2))


def _dtype(facts: Facts, words: str, what: str) -> Named:
    given = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(what.lower(), what.lower())
    if given not in TYPES:
        raise UsageError(f"{words}: types that a change to is predicted for: {', '.join(TYPES)}")
    note = "" if given == "tf32" else "model and data in that type: casts that autocast adds are not in it"
    return Named(words, f"what runs in fp32 in {given}", Wish(other_type(facts, given), 0.3), note)


def _batch(facts: Facts, words: str, what: str) -> Named:
    factor = _factor(words, what)
    note = f"a step then holds {factor:g} times as many samples"
    return Named(words, f"a batch {factor:g} times as large", Wish(other_batch(facts, factor), 0.3), note)


def _cuda_graph(facts: Facts, settings: Settings) -> Named:
    calls = facts.launches.call
    calls = facts.steady_events(calls)
    if len(calls) == 0:
        raise UsageError("cuda-graph: a steady step launches nothing that a graph could replay")
    steps = facts.steady_count
    waits = float(np.count_nonzero(facts.in_steady_step & facts.host.waiting)) / steps
    note = f"a capture ends at each wait, and a step waits {waits:,.3g} times" if waits else ""
    title = f"{len(calls) / steps:,.3g} launches per step replayed as CUDA graphs"
    return Named("cuda-graph", title, Wish(replayed(facts, calls), 0.2, general=True), note)


def _compile(facts: Facts, settings: Settings) -> Named:
    trace = facts.trace
    operators = outermost(facts, trace.of(Kind.OPERATOR))
    operators = operators[facts.in_steady_step[operators] & (facts.launches_inside[operators] > 0)]
    if len(operators) == 0:
        raise UsageError("compile: no operator of a steady step launches anything")
    found, _ = evaluate(facts, Settings(select=("LAU102",), thresholds=settings.thresholds))
    change = next((outcome.change for _, outcome in found if outcome.change is not None), Change())
    left = int(facts.launches_inside[operators].sum()) - int(np.isin(change.gone, facts.launches.call).sum())
    host = float((trace.duration[operators] - facts.host.wait_inside[operators]).sum()) * facts.unprofiled.host_scale
    keep = min(1.0, max(0, left) * _COMPILED_LAUNCH_NS / host) if host > 0 else 1.0
    change = change + cheaper(operators, keep)
    title = (
        f"pointwise chains fused, operators launched by generated code ({format_quantity('share', keep)} of their time)"
    )
    note = "an estimate: what compiling cannot take in stays as it is"
    return Named("compile", title, Wish(change, 0.4, general=True), note)


def _no_profiler(facts: Facts, settings: Settings) -> Named:
    title = "the step without the profiler: every prediction begins there"
    return Named("no-profiler", title, Wish(Change(), 0.0))


_SETTINGS: dict[str, Callable[[Facts, str, str], Named]] = {
    "host": _host,
    "device": _device,
    "bandwidth": _bandwidth,
    "dtype": _dtype,
    "batch": _batch,
}

_WHOLE: dict[str, Callable[[Facts, Settings], Named]] = {
    "cuda-graph": _cuda_graph,
    "compile": _compile,
    "no-profiler": _no_profiler,
}
