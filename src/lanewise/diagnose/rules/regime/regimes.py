"""REG101 to REG106: exactly one of them holds."""

from __future__ import annotations

from functools import partial

import numpy as np

from lanewise.diagnose.evidence import by_line, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, Outcome, Rule, rule
from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.report.evidence_columns import DEVICE, HOST, LAUNCHES, SHARE, TIME, WHAT, headed
from lanewise.report.quantity import format_quantity, share, text, time
from lanewise.trace.schema import Kind

_LABELS = {
    "compute": "the device computes",
    "transfer": "copies run, or the host waits in one",
    "host": "the device waits for the host",
    "communication": "communication runs alone",
    "dependency": "launched work waits for other work",
    "unknown": "the trace cannot tell",
}
_SPENT = {
    "compute": "computing",
    "transfer": "on copies",
    "host": "waiting for the host",
    "communication": "communicating",
    "dependency": "waiting for other work",
    "unknown": "on what the trace cannot tell",
}


_SPINNING = (
    "Host-bound: {share} of every {step} the next work has not been launched yet, although the GPU looks busy "
    "{busy_share} of the time: collectives are spinning."
)
_COLLECTED = (
    "Host-bound: the GPU works {busy} of every {step} ({busy_share}); {collected} of the time work has been launched and "
    "the GPU is idle: on Windows the driver collects launches before it submits them."
)
_ON_WINDOWS = (
    "launch less often (larger batches, torch.compile, CUDA graphs), turn on hardware-accelerated GPU scheduling, or run "
    "under Linux (WSL 2 included), where launches are submitted at once."
)
_WAITS_TOO = (
    "Device-bound: the GPU computes {share} of every {step}; it also waits for the host {host_share} of the time."
)
_ALSO_FROM = 0.10
_MOSTLY_PRODUCTS = 0.6
_HOST_TOO = 0.2
_COPIES_TOO = (
    "Device-bound: the GPU computes {share} of every {step} and the host runs ahead; copies or collectives that overlap "
    "with nothing take another {other_share}."
)
_OPEN = " The step's time is computed: at {ends}."
_AT_LEAST = " The GPU works at least that much: {lost} of the launches have no record of their work."
_AT_LEAST_FROM = 0.02
_QUEUED = (
    "Device-bound: when recording began the host had run {queued} ahead of the GPU, longer than the {step} recorded after "
    "that."
)
_TO_FIND_OUT = {
    "none": "record with stacks: `lanewise run --stacks` names what runs between the operators.",
    "not recorded": "record the device's activities as well.",
    "lost": "record fewer steps at a time, and with nothing else that profiles the device.",
    "head": "call `torch.cuda.synchronize()` right before recording, or record some steps more and leave the first out.",
    "stalls": "record fewer steps, or without stacks.",
    "unlinked": "record the host's activities together with the device's, in one profiler.",
    "blocked": "record the other processes and cards as well (`lanewise ranks` compares them).",
    "held": "record the whole of some steps, all streams and cards, while nothing else uses the GPU.",
    "start": "run the program for some steps before recording: a schedule with `wait` and `warmup`, or `lanewise run`.",
    "capture": "record some steps after the capture: those that replay the graph.",
}
_BY_LINE = [headed(HOST, "host time in operators"), DEVICE, LAUNCHES]


def _largest(top: list[tuple[str, float]]) -> str:
    """ "41 % waiting for the host and 37 % computing"."""
    return " and ".join(f"{100 * part:.0f} % {_SPENT[name]}" for name, part in top)


def _usual_title(name: str) -> str:
    return next(one.title for one in ALL if one.code == REGIMES[name][0])


def _judge(facts: Facts, name: str) -> Outcome:
    regime, steps = facts.regime, facts.steps
    if regime.name != name:
        return Clear(f"the run is {regime.name}")
    rows = [
        {"what": _LABELS[c], "time": steps.class_ns.get(c, 0.0), "share": regime.shares.get(c, 0.0)}
        for c in CLASSES
        if regime.shares.get(c, 0.0) > 0
    ]
    top = sorted(regime.shares.items(), key=lambda item: -item[1])[:2]
    host = regime.shares.get("host", 0.0)
    other = regime.shares.get("transfer", 0.0) + regime.shares.get("communication", 0.0)
    values = {
        "busy": time(regime.busy_share * steps.step_ns),
        "step": time(steps.step_ns),
        "busy_share": share(regime.busy_share),
        "share": share(regime.shares.get(name, 0.0)),
        "host_share": share(host),
        "other_share": share(other),
        "class_time": time(steps.class_ns.get(name, 0.0)),
        "queue_delay": time(regime.queue_delay_ns),
        "queued": time(regime.queued_ns),
        "top": text(_largest(top)),
        "reason": text(regime.reason),
    }
    headings = [headed(WHAT, "where the step goes"), TIME, SHARE]
    title, fix = None, _TO_FIND_OUT.get(regime.why)
    if name == "compute" and (products := _products(facts)) >= _MOSTLY_PRODUCTS:
        fix = (
            f"compute less, or with quicker kernels for these shapes: {100 * products:.0f} % of it is matrix products, "
            "convolutions and attention already (batch, cache, a smaller or quantised model)."
        )
    if name == "mixed" and host >= _HOST_TOO:
        fix = "give the device more to do per launch: a larger batch, more in each graph, several steps in one."
    collected = facts.classes.collected.total / max(1, int(facts.classes.of_step.sum()))
    if name == "host" and collected >= _ALSO_FROM:
        values["collected"] = share(collected)
        title, fix = _COLLECTED, _ON_WINDOWS
    elif name == "host" and regime.busy_share + host > 1.02:
        title = _SPINNING
    elif regime.queued_ns:
        title = _QUEUED
    elif name == "compute" and host >= _ALSO_FROM:
        title = _WAITS_TOO
    elif name == "compute" and other >= _ALSO_FROM:
        title = _COPIES_TOO
    ends = [
        f"{format_quantity('time', ns)} it would be {REGIMES[other][1]}"
        for ns, other in ((facts.unprofiled.low_ns, regime.at_low), (facts.unprofiled.high_ns, regime.at_high))
        if other
    ]
    if ends:
        values["ends"] = text(", at ".join(ends))
        title = (title or _usual_title(name)) + _OPEN
    lost = facts.health.lost_work_share
    if lost > _AT_LEAST_FROM and name != "undetermined":
        values["lost"] = share(lost)
        title = (title or _usual_title(name)) + _AT_LEAST
    evidence = [table("Time per step", headings, rows)] if rows else []
    if name in {"host", "mixed"}:
        evidence += by_line(facts, "Who keeps the host busy, per step", _BY_LINE, by="host")
    return Found(values=values, title=title, evidence=evidence, fix=fix)


def _products(facts: Facts) -> float:
    """Share of the device's computing time that is matrix work in kernels made for it."""
    work = facts.trace.device_work
    computing = facts.in_steady_step[work] & (facts.trace.kind[work] == Kind.KERNEL) & ~facts.is_family("communication")
    time_of = np.where(computing, facts.trace.duration[work], 0)
    return float(time_of[facts.is_family("gemm", "convolution", "attention")].sum()) / max(1, int(time_of.sum()))


def _of_tree(contexts: Contexts, *, name: str) -> Outcome:
    if contexts.regime != name:
        return Clear(f"the run is {contexts.regime}")
    shares, step = contexts.shares, contexts.step.ns
    waits = shares.get("host", 0.0)
    top = sorted(shares.items(), key=lambda item: -item[1])[:2]
    other = shares.get("transfer", 0.0) + shares.get("communication", 0.0)
    values = {
        "busy": time((1.0 - waits) * step),
        "step": time(step),
        "busy_share": share(1.0 - waits),
        "share": share(shares.get(name, 0.0)),
        "host_share": share(waits),
        "other_share": share(other),
        "class_time": time(shares.get(name, 0.0) * step),
        "top": text(_largest(top)),
        "reason": text(contexts.why_undetermined),
    }
    title = None
    if name == "compute" and waits >= _ALSO_FROM:
        title = _WAITS_TOO
    elif name == "compute" and other >= _ALSO_FROM:
        title = _COPIES_TOO
    rows = [{"what": _LABELS[c], "time": part * step, "share": part} for c, part in shares.items()]
    headings = [headed(WHAT, "where the step goes"), TIME, SHARE]
    evidence = [table("Time per step, from sums", headings, rows)] if rows and name != "undetermined" else []
    return Found(values=values, title=title, evidence=evidence)


@rule(
    "REG101",
    "host-bound",
    kind="regime",
    of_tree=partial(_of_tree, name="host"),
    title="Host-bound: the GPU works {busy} of every {step} ({busy_share}); it waits for the host {share} of the time.",
)
def host_bound(facts: Facts) -> Outcome:
    """The device waits because the host has not launched the next operation yet.

    Python, dispatch and launch calls take longer than the kernels they start. A faster GPU or a faster kernel changes
    nothing.

    Fix: launch less often (larger batches, torch.compile, CUDA graphs) and take waiting and Python work out of the step.

    Verify: double the batch: the step time grows by less than 1.3x while the device does twice the work.

    Source: the regimes of "Making Deep Learning Go Brrrr From First Principles"; HTA's idle-time classes.
    """
    return _judge(facts, "host")


@rule(
    "REG102",
    "device-bound",
    kind="regime",
    of_tree=partial(_of_tree, name="compute"),
    title="Device-bound: the GPU computes {share} of every {step} and the host runs ahead; faster host code would gain "
    "nothing.",
)
def device_bound(facts: Facts) -> Outcome:
    """The device computes nearly all the time; its queue never runs dry.

    Launch calls may look slow then: the queue is full and the host waits for a free slot. That is back-pressure, not a
    problem of the host.

    Fix: give the device less to do: fuse pointwise operations, use tensor cores, a narrower dtype, a better algorithm.

    Verify: halve the batch: the step time falls by nearly half.

    Source: as REG101.
    """
    return _judge(facts, "compute")


@rule(
    "REG103",
    "transfer-bound",
    kind="regime",
    of_tree=partial(_of_tree, name="transfer"),
    title="Transfer-bound: {share} of every {step} goes into copies between host and device.",
)
def transfer_bound(facts: Facts) -> Outcome:
    """Copies, or calls that wait for their own copy, take most of the step.

    Fix: use pinned host memory with `non_blocking=True`, prefetch on a side stream, and copy once instead of every step.

    Verify: the copies' share falls and the device computes meanwhile.

    Source: PyTorch's pinned-memory tutorial.
    """
    return _judge(facts, "transfer")


@rule(
    "REG104",
    "communication-bound",
    kind="regime",
    of_tree=partial(_of_tree, name="communication"),
    title="Communication-bound: {share} of every {step} is communication, or waiting for other ranks, that overlaps with "
    "nothing.",
)
def communication_bound(facts: Facts) -> Outcome:
    """Collectives run, or wait for the other ranks, while no computation is ready.

    Fix: find out first whether data moves or a rank is late: compare the ranks' traces. Then overlap or shrink the
    messages, or speed up the late rank.

    Verify: exposed communication falls.

    Source: HTA's communication overlap.
    """
    return _judge(facts, "communication")


@rule(
    "REG105",
    "mixed",
    kind="regime",
    of_tree=partial(_of_tree, name="mixed"),
    title="Mixed: no single bottleneck; of every {step} the device spends {top}.",
)
def mixed(facts: Facts) -> Outcome:
    """No class of time reaches 40 % with a lead of 10 points.

    Fix: take the findings in order; fixing one side saves only its own share.

    Verify: record again after each fix: the regime moves.

    Source: TensorBoard's profiler plug-in gave one number instead; a mixed run has none.
    """
    return _judge(facts, "mixed")


@rule(
    "REG106",
    "undetermined",
    kind="regime",
    of_tree=partial(_of_tree, name="undetermined"),
    title="Undetermined: {reason}.",
)
def undetermined(facts: Facts) -> Outcome:
    """The trace cannot say what the run is bound by.

    Fix: record again as the findings about the measurement say; what would answer the question depends on what is missing,
    and the report says it.

    Verify: a regime is named.
    """
    return _judge(facts, "undetermined")


ALL: tuple[Rule, ...] = (host_bound, device_bound, transfer_bound, communication_bound, mixed, undetermined)
