"""Reports kept beside the copies of their traces: a trace is explained once for the same settings and the same lanewise.

A report follows from the trace, the settings and the code, so that is its key. The code is known by the names, sizes and
times of change of its files: whoever works on a rule never sees a report from before. With rules of other packages
installed nothing is kept, for their code is not ours to watch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points

import msgspec
import numpy as np

from lanewise.cache_folder import code_state
from lanewise.diagnose.explain import explain
from lanewise.diagnose.registry import ENTRY_POINT_GROUP
from lanewise.diagnose.settings import Settings
from lanewise.report.model import Report
from lanewise.trace.file.parquet_cache import Store
from lanewise.trace.file.source import resolve
from lanewise.trace.model import Trace
from lanewise.trace.reader import read_recorded

__all__ = ["explained", "find_report", "keep_report"]

_PREFIX = "report-"


def explained(
    source: str,
    settings: Settings,
    unprofiled_us: float | None = None,
    *,
    opened: Callable[[str], Trace] = read_recorded,
) -> Report:
    """The report on a trace: the kept one, or else a new one, which is kept.

    Args:
        source: what names the trace.
        settings: which rules run, and their thresholds.
        unprofiled_us: step time without a profiler that the user gave, us.
        opened: reads the trace.

    Raises:
        InputError: it cannot be read, or nothing was recorded in it.
    """
    report = find_report(source, settings, unprofiled_us)
    if report is None:
        trace = opened(source)
        report = explain(trace, unprofiled_us=unprofiled_us, settings=settings)
        keep_report(report, trace, settings, unprofiled_us)
    return report


def find_report(source: str, settings: Settings, unprofiled_us: float | None) -> Report | None:
    """The kept report of a trace with this content, or None.

    Args:
        source: what names the trace.
        settings: which rules run, and their thresholds.
        unprofiled_us: step time without a profiler that the user gave, us.

    Raises:
        InputError: there is no such file.
    """
    (origin, *_) = resolve(source)
    if origin.path is None or entry_points(group=ENTRY_POINT_GROUP):
        return None
    data = Store().attached(origin, _name(settings, unprofiled_us))
    if data is None:
        return None
    try:
        report = msgspec.msgpack.decode(data, type=Report)
    except msgspec.MsgspecError:
        return None
    return msgspec.structs.replace(report, source=msgspec.structs.replace(report.source, path=origin.name))


def keep_report(report: Report, trace: Trace, settings: Settings, unprofiled_us: float | None) -> None:
    """Keep a report beside its trace, if that is kept; what prevents it is no error."""
    if entry_points(group=ENTRY_POINT_GROUP):
        return
    of_this_code = f"{_PREFIX}{_code()}-"
    Store().attach(
        trace,
        _name(settings, unprofiled_us),
        msgspec.msgpack.encode(report),
        replaces=lambda name: name.startswith(_PREFIX) and not name.startswith(of_this_code),
    )


def _name(settings: Settings, unprofiled_us: float | None) -> str:
    thresholds = sorted((code, sorted(values.items())) for code, values in settings.thresholds.items())
    asked = repr((settings.select, settings.ignore, thresholds, settings.price, settings.source, unprofiled_us))
    return f"{_PREFIX}{_code()}-{zlib.crc32(asked.encode()):08x}.msgpack"


@cache
def _code() -> str:
    """Changes with every change of this package, and of numpy."""
    return f"{zlib.crc32(f'{np.__version__} {code_state()}'.encode()):08x}"
