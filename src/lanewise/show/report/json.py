"""Reports, predictions and sweeps as JSON: the public schemas, as the structs define them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from lanewise.report.model import Report
from lanewise.report.prediction import Prediction
from lanewise.report.swept import Sweep

__all__ = ["prediction_json", "report_json", "sweep_json", "to_plain"]


def report_json(report: Report) -> str:
    """The report, indented; NaN and infinities become null."""
    return msgspec.json.format(msgspec.json.encode(to_plain(report)), indent=2).decode()


def prediction_json(prediction: Prediction) -> str:
    """The prediction, indented."""
    return msgspec.json.format(msgspec.json.encode(to_plain(prediction)), indent=2).decode()


def sweep_json(sweep: Sweep) -> str:
    """The sweep, indented."""
    return msgspec.json.format(msgspec.json.encode(to_plain(sweep)), indent=2).decode()


def to_plain(value: Any) -> Any:
    """Structs to plain values, with nothing that JSON cannot say."""
    plain = msgspec.to_builtins(value, enc_hook=_number)
    return _finite(plain)


def _number(value: Any) -> Any:
    """A rule, perhaps one of another package, may well put a number of numpy into its evidence."""
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a report holds no {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
