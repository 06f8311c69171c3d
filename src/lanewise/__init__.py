"""lanewise explains why a PyTorch program is slow, from its profiler trace, and proves the fix.

    trace = lanewise.read("trace.json.gz")
    report = lanewise.explain(trace)
    print(report.verdict)

Everything is imported on first use, so that `import lanewise` costs nothing. For pytest, which warns of packages with
plugins that it finds imported already (by `lanewise run`): PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lanewise._version import __version__

if TYPE_CHECKING:
    from lanewise.capture.context.watch import watch
    from lanewise.capture.context.watcher import Watcher
    from lanewise.capture.recorder import Recorder, handler, record
    from lanewise.compare.diff import diff
    from lanewise.compare.model import Comparison
    from lanewise.diagnose.explain import explain
    from lanewise.diagnose.settings import Settings, load_settings
    from lanewise.diagnose.what_if.predict import predict
    from lanewise.errors import InputError, LanewiseError, NotATraceError, UsageError
    from lanewise.fix.optimize import optimize
    from lanewise.fix.plans.plan import Plan, load_plan
    from lanewise.measure.facts import Facts
    from lanewise.measure.memory.snapshot import Snapshot, read_snapshot
    from lanewise.report.model import Finding, Report
    from lanewise.report.prediction import Prediction
    from lanewise.trace.model import Trace
    from lanewise.trace.reader import read
    from lanewise.tree.build import build as build_tree
    from lanewise.tree.model import Tree

__all__ = [
    "Comparison",
    "Facts",
    "Finding",
    "InputError",
    "LanewiseError",
    "NotATraceError",
    "Plan",
    "Prediction",
    "Recorder",
    "Report",
    "Settings",
    "Snapshot",
    "Trace",
    "Tree",
    "UsageError",
    "Watcher",
    "__version__",
    "build_tree",
    "diff",
    "explain",
    "handler",
    "load_plan",
    "load_settings",
    "optimize",
    "predict",
    "read",
    "read_snapshot",
    "record",
    "watch",
]

_HOMES = {
    "Comparison": "lanewise.compare.model",
    "Facts": "lanewise.measure.facts",
    "Finding": "lanewise.report.model",
    "InputError": "lanewise.errors",
    "LanewiseError": "lanewise.errors",
    "NotATraceError": "lanewise.errors",
    "Plan": "lanewise.fix.plans.plan",
    "Prediction": "lanewise.report.prediction",
    "Recorder": "lanewise.capture.recorder",
    "Report": "lanewise.report.model",
    "Settings": "lanewise.diagnose.settings",
    "Snapshot": "lanewise.measure.memory.snapshot",
    "Trace": "lanewise.trace.model",
    "Tree": "lanewise.tree.model",
    "UsageError": "lanewise.errors",
    "Watcher": "lanewise.capture.context.watcher",
    "build_tree": "lanewise.tree.build",
    "diff": "lanewise.compare.diff",
    "explain": "lanewise.diagnose.explain",
    "handler": "lanewise.capture.recorder",
    "load_plan": "lanewise.fix.plans.plan",
    "load_settings": "lanewise.diagnose.settings",
    "optimize": "lanewise.fix.optimize",
    "predict": "lanewise.diagnose.what_if.predict",
    "read": "lanewise.trace.reader",
    "read_snapshot": "lanewise.measure.memory.snapshot",
    "record": "lanewise.capture.recorder",
    "watch": "lanewise.capture.context.watch",
}
# Names that the module itself spells differently.
_SPELLED = {"build_tree": "build"}


def _home(name: str) -> Any:
    try:
        return importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from lanewise.errors import MissingDependencyError

        raise MissingDependencyError(
            f"lanewise.{name} needs torch, which is not installed here: pip install torch"
        ) from None


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(_home(name), _SPELLED.get(name, name))
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lanewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
