"""A check for GitHub: annotations at file and line, the step summary, and data for github-action-benchmark."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lanewise.compare.check import BudgetResult, CheckReport
from lanewise.show.check.source_files import SourceFiles
from lanewise.show.safe_text import clean

__all__ = ["benchmark_json", "workflow_commands"]

_MAX_MESSAGE = 1_000
_UNITS = {"time": (1e3, "us"), "share": (0.01, "%"), "count": (1.0, "count"), "bytes": (1e6, "MB")}


def workflow_commands(report: CheckReport) -> str:
    """Workflow commands, one a line: an error or warning per budget that is over, a notice per undecided one.

    They point at the line of the program that a finding names, else at the budget's own line. Paths are relative to the
    working directory; one outside of it is left out. Nothing of a name can end a command or begin another.
    """
    return "".join(f"{line}\n" for line in _commands(report.results, report.budget_file, SourceFiles()))


def benchmark_json(report: CheckReport) -> str:
    """`customSmallerIsBetter` entries; the busy share, of which more is better, is left out."""
    entries = [
        {
            "name": f"{clean(report.label, 60)}: {measure.label}",
            "unit": _UNITS[measure.type][1],
            "value": measure.value / _UNITS[measure.type][0],
            "range": f"± {measure.spread / _UNITS[measure.type][0]:.4g}",
            "extra": f"{report.runs} run{'s' if report.runs > 1 else ''}, lanewise {report.version}",
        }
        for measure in report.measures
        if measure.key != "busy_share"
    ]
    return msgspec.json.format(msgspec.json.encode(entries), indent=2).decode()


def _commands(results: Iterable[BudgetResult], budget_file: str, files: SourceFiles) -> Iterable[str]:
    for result in results:
        if result.status not in {"over", "undecided"}:
            continue
        command = "notice" if result.status == "undecided" else result.level if result.level == "error" else "warning"
        file, line = _place(result, budget_file, files)
        properties = [f"title={_property(f'lanewise {result.code or result.key}')}"]
        if file:
            properties.insert(0, f"file={_property(file)},line={line}")
        yield f"::{command} {','.join(properties)}::{_message(result.sentence)}"


def _place(result: BudgetResult, budget_file: str, files: SourceFiles) -> tuple[str, int]:
    if result.location is not None and result.location.file:
        file = files.find(result.location.file)
        if file:
            return file, max(1, result.location.line)
    file = files.find(budget_file)
    return (file, max(1, result.line)) if file else ("", 0)


def _message(text: str) -> str:
    return _escaped(clean(text, _MAX_MESSAGE))


def _property(text: str) -> str:
    return _escaped(clean(text, 200)).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
