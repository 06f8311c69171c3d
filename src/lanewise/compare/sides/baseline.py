"""A baseline file: what some recordings did per step, kept to compare later ones with. Schema `lanewise.baseline/1`.

It is plain JSON, small next to the traces, and holds names, times and the environment, but no source text and no paths.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from lanewise._version import __version__
from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import STEP_SOURCES, HostCost, Run
from lanewise.compare.sides.step_work import Op, Work
from lanewise.errors import InputError
from lanewise.measure.regime.regime import REGIMES
from lanewise.report.model import Finding

__all__ = ["SCHEMA", "Baseline", "dump_baseline", "is_baseline", "load_baseline"]

SCHEMA = "lanewise.baseline/1"

# Samples kept per run: enough for the statistics, not the whole recording.
_MAX_CELLS = 100_000
_MAX_TIMES = 1_000
_LARGEST = 256 << 20


class StoredWork(msgspec.Struct, frozen=True):
    """`work.Work` as plain values."""

    ops: list[Op]
    at: list[int]
    duration: list[list[int]]
    steps: int
    device: bool


class StoredRun(msgspec.Struct, frozen=True):
    """`run.Run` as plain values."""

    source: str
    digest: str
    recorded_at: int
    environment: dict[str, str]
    step_source: str
    steps: int
    steady: int
    step_ns: float
    unprofiled: bool
    samples: list[int]
    sample_ns: list[int]
    classes: dict[str, float]
    regime: str
    busy_share: float
    host_scale: float
    work: StoredWork
    counts: dict[str, float]
    host: list[HostCost]
    memory_peak: int
    findings: list[Finding]
    compiled: bool
    graphs: bool
    trains: bool


class Baseline(msgspec.Struct, frozen=True):
    """The file."""

    schema: str
    version: str
    label: str
    runs: list[StoredRun]


def dump_baseline(arm: Arm) -> bytes:
    """The bytes of a baseline file."""
    content = Baseline(SCHEMA, __version__, arm.label, [_stored(run) for run in arm.runs])
    return msgspec.json.format(msgspec.json.encode(content), indent=1)


def is_baseline(path: Path) -> bool:
    """Whether a file begins as a baseline does."""
    try:
        with path.open("rb") as file:
            head = file.read(200)
    except OSError:
        return False
    return b'"lanewise.baseline/' in head


def load_baseline(path: Path) -> Arm:
    """The arm in a baseline file.

    Raises:
        InputError: it cannot be read, is damaged, too large, or of another version.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if not data:
        raise InputError(f"{path} is empty or larger than {_LARGEST >> 20} MiB: no baseline")
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA:
            raise InputError(
                f"{path} has schema {schema[:40]!r}; this version of lanewise reads {SCHEMA}: save it again"
            )
        content = msgspec.json.decode(data, type=Baseline)
        runs = [_run(stored) for stored in content.runs]
    except (msgspec.MsgspecError, OSError, EOFError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no baseline of lanewise: {' '.join(str(error).split())[:200]}") from None
    if not runs:
        raise InputError(f"{path} holds no runs: save it again")
    return Arm(content.label, runs)


class _Head(msgspec.Struct):
    schema: str


def _stored(run: Run) -> StoredRun:
    work = run.work
    keep = max(1, _MAX_CELLS // max(1, len(work.at)))
    return StoredRun(
        source=Path(run.source).name,
        digest=run.digest,
        recorded_at=run.recorded_at,
        environment=run.environment,
        step_source=run.step_source,
        steps=run.steps,
        steady=run.steady,
        step_ns=run.step_ns,
        unprofiled=run.unprofiled,
        samples=_whole(run.samples[:_MAX_TIMES]),
        sample_ns=_whole(run.sample_ns[:_MAX_TIMES]),
        classes=run.classes,
        regime=run.regime,
        busy_share=run.busy_share,
        host_scale=run.host_scale,
        work=StoredWork(
            work.ops, _whole(work.at), [_whole(row) for row in work.duration[:keep]], work.steps, work.device
        ),
        counts=run.counts,
        host=run.host,
        memory_peak=run.memory_peak,
        findings=[_without_evidence(finding) for finding in run.findings],
        compiled=run.compiled,
        graphs=run.graphs,
        trains=run.trains,
    )


def _without_evidence(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, evidence=[], fix="", verify="")


def _whole(values: np.ndarray) -> list[int]:
    return [int(value) for value in values.tolist()]


def _run(stored: StoredRun) -> Run:
    if stored.regime not in REGIMES or stored.step_source not in STEP_SOURCES:
        raise ValueError("unknown regime or source of steps")
    at = np.array(stored.work.at, dtype=np.int64)
    duration = np.array(stored.work.duration, dtype=np.int64).reshape(len(stored.work.duration), len(at))
    if len(at) and (at.min() < 0 or at.max() >= len(stored.work.ops)):
        raise ValueError("work refers to ops that are not there")
    return Run(
        source=stored.source,
        digest=stored.digest,
        recorded_at=stored.recorded_at,
        environment=stored.environment,
        step_source=stored.step_source,
        steps=stored.steps,
        steady=stored.steady,
        step_ns=stored.step_ns,
        unprofiled=stored.unprofiled,
        samples=_times(stored.samples),
        sample_ns=_times(stored.sample_ns),
        classes=stored.classes,
        regime=stored.regime,
        busy_share=stored.busy_share,
        host_scale=stored.host_scale,
        work=Work(stored.work.ops, at, duration, stored.work.steps, stored.work.device),
        counts=stored.counts,
        host=stored.host,
        memory_peak=stored.memory_peak,
        findings=stored.findings,
        compiled=stored.compiled,
        graphs=stored.graphs,
        trains=stored.trains,
    )


def _times(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)
