"""The answer of each lesson, computed from the files in the reader's folder: the numbers that the commands print."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from lanewise.diagnose.explain import explain, facts_of
from lanewise.diagnose.settings import Settings
from lanewise.diagnose.what_if.predict import predict_of
from lanewise.errors import InputError
from lanewise.report.gain import helps
from lanewise.report.model import Report
from lanewise.report.prediction import Prediction
from lanewise.tour.mark import Truth
from lanewise.tour.practice import PROGRAM, original, recording
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.tree.build import build_tree
from lanewise.tree.views import top_down

__all__ = ["TRUTHS"]

OWN = "lanewise-out/optimizer_loop.json.gz"
FIXED = "lanewise-out/fixed.json.gz"
SMALL, LARGE, ITEMS = "matmul-small.json.gz", "matmul-large.json.gz", "item-loop.json.gz"


def _trace(folder: Path, name: str) -> Trace:
    return read(recording(folder, name))


def _report(folder: Path, name: str) -> Report:
    return explain(_trace(folder, name), settings=Settings())


def _predicted(folder: Path, name: str, change: str) -> Prediction:
    return predict_of(facts_of(_trace(folder, name)), [change], Settings())


def _step_us(folder: Path, name: str) -> float:
    regime = _report(folder, name).regime
    if not regime.unprofiled:
        raise InputError(
            f"{name} holds no step time without the profiler: the program ended before steps were timed; record it again"
        )
    return regime.step_us


def step_time(folder: Path) -> Truth:
    """Step without the profiler, ms."""
    return Truth(_step_us(folder, OWN) / 1e3)


def recording_cost(folder: Path) -> Truth:
    """Recorded step over the step without the profiler: of the medians, and of single steps."""
    measured = _trace(folder, OWN).metadata.get("lanewise", {})
    ratio = _report(folder, OWN).regime.recorded_step_us / _step_us(folder, OWN)
    known = [ratio, *(measured[key] for key in ("distortion", "distortion_low", "distortion_high") if key in measured)]
    return Truth(ratio, low=min(known), high=max(known))


def host_bound_recording(folder: Path) -> Truth:
    """Name of the recording whose GPU waits for the host."""
    names = [name for name in (SMALL, LARGE) if _report(folder, name).regime.name == "host-bound"]
    return Truth(words=tuple(word for name in names for word in (name.removesuffix(".json.gz"), _last_part(name))))


def _last_part(name: str) -> str:
    return name.removesuffix(".json.gz").rpartition("-")[2]


def saved_by_faster_gpu(folder: Path) -> Truth:
    """What a step is shorter by with kernels twice as fast, us."""
    return Truth(_predicted(folder, SMALL, "device=2x").changes[0].alone_us)


def host_time_over_kernel(folder: Path) -> Truth:
    """Time in aten::matmul over that of the kernel that it launches, in the step that `lanewise chain` shows."""
    links = facts_of(_trace(folder, SMALL)).chain().links
    first = next(at for at, link in enumerate(links) if link.name == "aten::matmul")
    kernel = next(link for link in links[first:] if link.kind == "kernel")
    return Truth(links[first].duration_ns / kernel.duration_ns)


def first_code(folder: Path) -> Truth:
    """Code of the first finding that shortens the step."""
    return Truth(words=tuple(f.code for f in _report(folder, ITEMS).findings if helps(f))[:1])


def step_without_readbacks(folder: Path) -> Truth:
    """The step without values read from the device, us."""
    return Truth(_predicted(folder, ITEMS, "SYN101").predicted.step_us)


def square_roots_per_step(folder: Path) -> Truth:
    """Calls of aten::sqrt per recorded step."""
    trace = _trace(folder, OWN)
    calls = trace.events.filter((pl.col("name") == "aten::sqrt") & (pl.col("step") >= 0)).height
    return Truth(calls / max(len(trace.steps.number), 1))


def optimizer_share(folder: Path) -> Truth:
    """Share of the recorded host time inside Optimizer.step, per cent."""
    tree = top_down(build_tree(_trace(folder, OWN)))
    inside = tree.inclusive("host")
    nodes = [node for node in range(len(tree)) if tree.label(node).startswith("Optimizer.step")]
    return Truth(100.0 * sum(float(inside[node]) for node in nodes) / max(tree.total("host"), 1))


def without_optimizer(folder: Path) -> Truth:
    """How many times as fast a step is without its optimizer."""
    prediction = _predicted(folder, OWN, "optimizer=remove")
    return Truth(prediction.now.step_us / prediction.predicted.step_us)


def keyword_set(folder: Path) -> Truth:
    """Keywords that are True in the reader's program and not in the original.

    Raises:
        InputError: the program is as it was.
    """
    there = Path(recording(folder, PROGRAM)).read_text(encoding="utf-8", errors="replace").splitlines()
    added = [line for line in there if line not in original().splitlines()]
    if not added:
        raise InputError(f"{PROGRAM} is as it was: lanewise fix --apply {PROGRAM} proves the suggestion and writes it")
    return Truth(words=tuple(word for line in added for word in re.findall(r"(\w+)[\"']?\s*[:=]\s*True", line)))


def faster_now(folder: Path) -> Truth:
    """Step of the first recording over that of the second."""
    return Truth(_step_us(folder, OWN) / _step_us(folder, FIXED))


TRUTHS: dict[str, Callable[[Path], Truth]] = {
    truth.__name__: truth
    for truth in (
        step_time, recording_cost, host_bound_recording, saved_by_faster_gpu, host_time_over_kernel, first_code,
        step_without_readbacks, square_roots_per_step, optimizer_share, without_optimizer, keyword_set, faster_now,
    )
}  # fmt: skip
