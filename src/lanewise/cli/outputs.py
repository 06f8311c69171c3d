"""Which function writes which output: a new one is a file in `show/` and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanewise.cli.common import emit
from lanewise.errors import UsageError

__all__ = ["deliver", "formats", "written"]

_OUTPUTS = {
    ("report", "json"): "lanewise.show.report.json:report_json",
    ("report", "md"): "lanewise.show.report.short_markdown:short_markdown",
    ("whole report", "md"): "lanewise.show.report.markdown:report_markdown",
    ("report", "sarif"): "lanewise.show.check.sarif:report_sarif",
    ("tables", "json"): "lanewise.show.report.tables:tables_json",
    ("tables", "md"): "lanewise.show.report.tables:tables_markdown",
    ("tables", "csv"): "lanewise.show.report.tables:tables_csv",
    ("diff", "json"): "lanewise.show.diff.diff_json:diff_json",
    ("diff", "md"): "lanewise.show.diff.diff_markdown:diff_markdown",
    ("whole diff", "md"): "lanewise.show.diff.diff_markdown:whole_diff_markdown",
    ("check", "json"): "lanewise.show.check.check_text:check_json",
    ("check", "md"): "lanewise.show.check.check_text:check_markdown",
    ("fix", "json"): "lanewise.show.plan.fix_page:fix_json",
    ("fix", "html"): "lanewise.show.plan.fix_page:fix_html",
    ("plan", "json"): "lanewise.show.plan.plan_text:plan_json",
    ("plan", "html"): "lanewise.show.plan.plan_page:plan_html",
    ("tree", "tree"): "lanewise.tree.tree_file:dumps",
    ("tree", "json"): "lanewise.show.tree.tree_json:tree_json",
    ("tree", "pprof"): "lanewise.show.tree.pprof:pprof",
    ("tree", "otlp"): "lanewise.show.tree.otlp:otlp",
    ("tree", "collapsed"): "lanewise.show.tree.collapsed:collapsed",
    ("tree", "hatchet"): "lanewise.show.tree.hatchet:hatchet",
    ("tree", "speedscope"): "lanewise.show.tree.speedscope:speedscope",
    ("tree", "prometheus"): "lanewise.show.tree.prometheus:prometheus",
    ("tree", "csv"): "lanewise.show.tree.tree_tables:tree_csv",
    ("tree", "parquet"): "lanewise.show.tree.tree_tables:tree_parquet",
    ("flat tree", "csv"): "lanewise.show.tree.tree_tables:flat_csv",
    ("flat tree", "parquet"): "lanewise.show.tree.tree_tables:flat_parquet",
    ("flat tree", "json"): "lanewise.show.tree.tree_json:flat_json",
    ("trace", "perfetto"): "lanewise.show.export.perfetto:perfetto_json",
    ("trace", "html"): "lanewise.show.page.html:report_html",
}


def formats(kind: str) -> list[str]:
    """Formats in which something can be written, besides text in a terminal."""
    return sorted(form for what, form in _OUTPUTS if what == kind)


def written(kind: str, form: str, *values: Any, **options: Any) -> Any:
    """Something in one of its formats: text, or bytes where the format is binary."""
    module, function = _OUTPUTS[kind, form].split(":")
    return getattr(importlib.import_module(module), function)(*values, **options)


def deliver(
    kind: str, form: str, values: tuple[Any, ...], output: Path | None, force: bool, *, printed: Callable[[], None]
) -> None:
    """Write something in a format to where the user asked for; in any other `form` it is `printed`, to the terminal.

    Raises:
        UsageError: a file was named for what can only be printed.
    """
    if form in formats(kind):
        emit(written(kind, form, *values), output, force)
    elif output is not None:
        raise UsageError("-o writes data: add --format md or json")
    else:
        printed()
