"""A report file as one side of a comparison: step time, classes of time and findings, without the work of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import STEP_SOURCES, Run
from lanewise.compare.sides.step_work import Work
from lanewise.errors import InputError
from lanewise.measure.regime.regime import REGIMES
from lanewise.report.model import SCHEMA, Report

__all__ = ["is_report", "load_report"]

_COUNTED = ("launches", "kernels", "copies")
_LARGEST = 256 << 20


def is_report(path: Path) -> bool:
    """Whether a file begins as a report does."""
    try:
        with path.open("rb") as file:
            return b'"lanewise.report/' in file.read(200)
    except OSError:
        return False


class _Head(msgspec.Struct):
    schema: str


def load_report(path: Path, label: str) -> Arm:
    """The arm in a report file.

    Raises:
        InputError: it cannot be read, is damaged, or of another version.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA:
            raise InputError(
                f"{path} has schema {schema[:40]!r}; this version of lanewise reads {SCHEMA}: explain its trace again"
            )
        report = msgspec.json.decode(data, type=Report)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is no report of this version of lanewise: {str(error)[:200]}") from None
    return Arm(label, [_run(report)])


def _run(report: Report) -> Run:
    regime = report.regime
    name = next((key for key, (code, _) in REGIMES.items() if code == regime.code), "undetermined")
    rows = _steady_rows(report)
    step_ns = regime.step_us * 1e3
    environment = {"card": report.source.device} if report.source.device else {}
    return Run(
        source=report.source.path,
        digest=report.source.digest,
        recorded_at=0,
        environment=environment,
        step_source=report.steps.source if report.steps.source in STEP_SOURCES else "window",
        steps=report.steps.count,
        steady=len(report.steps.steady),
        step_ns=step_ns,
        unprofiled=regime.unprofiled,
        samples=np.empty(0, np.int64),
        sample_ns=np.array([_number(row.get("period")) for row in rows], dtype=np.int64),
        classes={key: share * step_ns for key, share in regime.shares.items()},
        regime=name,
        busy_share=regime.busy_share,
        host_scale=1.0,
        work=Work([], np.empty(0, np.int64), np.empty((0, 0), np.int64), len(rows), bool(regime.shares)),
        counts={key: sum(_number(row.get(key)) for row in rows) / max(1, len(rows)) for key in _COUNTED}
        if rows
        else {},
        findings=report.findings,
        partial=True,
    )


def _steady_rows(report: Report) -> list[dict[str, Any]]:
    wanted = {f"#{number}" for number in report.steps.steady}
    return [row for row in report.steps.table.rows if str(row.get("number")) in wanted]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
