"""Which function writes which output: a new one is a file in `show/` and a line here."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["formats", "written"]

_OUTPUTS = {
    ("report", "json"): "lanewise.show.report.json:report_json",
    ("report", "md"): "lanewise.show.report.markdown:report_markdown",
    ("report", "sarif"): "lanewise.show.check.sarif:report_sarif",
    ("diff", "json"): "lanewise.show.diff.diff_json:diff_json",
    ("diff", "md"): "lanewise.show.diff.diff_markdown:diff_markdown",
    ("check", "json"): "lanewise.show.check.check_text:check_json",
    ("check", "md"): "lanewise.show.check.check_text:check_markdown",
    ("tree", "tree"): "lanewise.tree.tree_file:dumps",
    ("tree", "pprof"): "lanewise.show.tree.pprof:pprof",
    ("tree", "collapsed"): "lanewise.show.tree.collapsed:collapsed",
    ("tree", "hatchet"): "lanewise.show.tree.hatchet:hatchet",
    ("tree", "speedscope"): "lanewise.show.tree.speedscope:speedscope",
}


def formats(kind: str) -> list[str]:
    """Formats in which something can be written, besides text in a terminal."""
    return sorted(form for what, form in _OUTPUTS if what == kind)


def written(kind: str, form: str, *values: Any) -> Any:
    """A report, comparison, check or tree in one of its formats: text, or bytes where the format is binary."""
    module, function = _OUTPUTS[kind, form].split(":")
    return getattr(importlib.import_module(module), function)(*values)
