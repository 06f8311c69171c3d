"""lanewise explains why a PyTorch program is slow, from its profiler trace, and proves the fix.

    trace = lanewise.read("trace.json.gz")
    report = lanewise.explain(trace)
    print(report.verdict)

Everything is imported on first use, so that `import lanewise` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lanewise._version import __version__

if TYPE_CHECKING:
    from lanewise.diagnose.engine import Settings
    from lanewise.diagnose.explain import explain
    from lanewise.errors import InputError, LanewiseError, NotATraceError, UsageError
    from lanewise.measure.facts import Facts
    from lanewise.report.model import Finding, Report
    from lanewise.trace.model import Trace
    from lanewise.trace.reader import read

__all__ = [
    "Facts",
    "Finding",
    "InputError",
    "LanewiseError",
    "NotATraceError",
    "Report",
    "Settings",
    "Trace",
    "UsageError",
    "__version__",
    "explain",
    "read",
]

_HOMES = {
    "Facts": "lanewise.measure.facts",
    "Finding": "lanewise.report.model",
    "InputError": "lanewise.errors",
    "LanewiseError": "lanewise.errors",
    "NotATraceError": "lanewise.errors",
    "Report": "lanewise.report.model",
    "Settings": "lanewise.diagnose.engine",
    "Trace": "lanewise.trace.model",
    "UsageError": "lanewise.errors",
    "explain": "lanewise.diagnose.explain",
    "read": "lanewise.trace.reader",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lanewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
