"""lanewise explains why a PyTorch program is slow, from its profiler trace, and proves the fix.

    trace = lanewise.read("trace.json.gz")
    report = lanewise.explain(trace)
    print(report.verdict)

Everything is imported on first use, so that `import lanewise` costs nothing; where LANEWISE_WATCH names a file, it begins
to watch the program. For pytest, which warns of packages with plugins that it finds imported already (by `lanewise run`):
PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from lanewise._version import __version__ as __version__


@cache
def _homes() -> dict[str, str]:
    """The module of each public name, from `__init__.pyi`: names are listed once."""
    import pkgutil
    import re

    stub = (pkgutil.get_data("lanewise", "__init__.pyi") or b"").decode()
    lines: list[tuple[str, str]] = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    return {name: module for module, name in lines}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_homes(), "__version__"])
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"module 'lanewise' has no attribute {name!r}")
    import importlib

    try:
        value = globals()[name] = getattr(importlib.import_module(_homes()[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from lanewise.errors import MissingDependencyError

        raise MissingDependencyError(
            f"lanewise.{name} needs torch, which is not installed here: pip install torch"
        ) from None
    return value


def __dir__() -> list[str]:
    return __getattr__("__all__")


if "LANEWISE_WATCH" in os.environ:
    from lanewise.cli.recording.watch_asked import start_if_asked as _start_if_asked

    _start_if_asked()
