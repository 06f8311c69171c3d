"""Findings, and budgets that are over, as SARIF 2.1.0: what code-scanning pages and editors read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from lanewise._version import __version__
from lanewise.compare.check import BudgetResult, CheckReport
from lanewise.diagnose.registry import installed_rules
from lanewise.diagnose.rule import Rule
from lanewise.report.gain import helps
from lanewise.report.model import Finding, Location, Report
from lanewise.show.check.source_files import SourceFiles
from lanewise.show.report.rule_pages import first_sentence, meaning, rule_markdown
from lanewise.show.safe_text import clean

__all__ = ["check_sarif", "report_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MAX_TEXT = 1_000
_LEVELS = {"error": "error", "warn": "warning"}
_NOTIFIED = {"bad": "error", "warn": "warning"}


def report_sarif(report: Report, files: SourceFiles | None = None) -> str:
    """The findings of a report about the program, as results; what is wrong with the recording, as notifications.

    Args:
        report: what `explain` said.
        files: of the program; those below the working directory by default.
    """
    shown = [finding for finding in report.findings if finding.kind in {"problem", "statement"}]
    files = files or SourceFiles()
    results = [_finding(finding, files) for finding in shown]
    notes = [
        {"level": _NOTIFIED[note.level], "message": {"text": clean(f"{note.topic}: {note.text}", _MAX_TEXT)}}
        for note in report.health
        if note.level in _NOTIFIED
    ]
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    return _document({finding.code: finding.name for finding in shown}, results, invocations=[invocation])


def check_sarif(report: CheckReport, files: SourceFiles | None = None) -> str:
    """The budgets of a check that are over; those that are not about a finding point at their line in the file."""
    over = [result for result in report.results if result.status == "over"]
    rules = {_rule(result): result.key if not result.code else result.code for result in over}
    files = files or SourceFiles()
    results = [_entry(_rule(r), _LEVELS[r.level], r.sentence, r.location or _own_line(r, report), files) for r in over]
    return _document(rules, results)


def _rule(result: BudgetResult) -> str:
    return result.code or f"budget/{result.key}"


def _own_line(result: BudgetResult, report: CheckReport) -> Location | None:
    return Location(file=report.budget_file, line=result.line) if report.budget_file and result.line else None


def _document(names: Mapping[str, str], results: list[dict[str, Any]], **more: Any) -> str:
    order = sorted(names)
    for result in results:
        result["ruleIndex"] = order.index(result["ruleId"])
    documented = {rule.code: rule for rule in installed_rules()}
    driver = {
        "name": "lanewise",
        "version": __version__,
        "rules": [_descriptor(code, names[code], documented.get(code)) for code in order],
    }
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", **more, "results": results}
    data = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def _descriptor(code: str, name: str, rule: Rule | None) -> dict[str, Any]:
    """What a reader shows about a rule: from its documentation, where it is a rule and not a budget."""
    if rule is None:
        return {"id": code, "name": clean(name, 80), "shortDescription": {"text": clean(name, 80)}}
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": first_sentence(rule)},
        "fullDescription": {"text": clean(meaning(rule), _MAX_TEXT)},
        "help": {"text": rule.document, "markdown": rule_markdown(rule)},
        "properties": {"tags": ["performance"]},
    }


def _finding(finding: Finding, files: SourceFiles) -> dict[str, Any]:
    sentence = f"{finding.title}. Fix: {finding.fix}" if finding.fix else finding.title
    result = _entry(finding.code, "warning" if helps(finding) else "note", sentence, finding.location, files)
    result["properties"] = {
        "recoverableMicrosecondsPerStep": finding.recoverable_us_per_step,
        "lowMicrosecondsPerStep": finding.low_us_per_step,
        "highMicrosecondsPerStep": finding.high_us_per_step,
        "aloneMicrosecondsPerStep": finding.alone_us_per_step,
        "leavesMicrosecondsPerStep": finding.leaves_us_per_step,
        "confidence": finding.confidence,
    }
    return result


def _entry(code: str, level: str, sentence: str, location: Location | None, files: SourceFiles) -> dict[str, Any]:
    file = files.find(location.file) if location is not None else ""
    result: dict[str, Any] = {"ruleId": code, "level": level, "message": {"text": clean(sentence, _MAX_TEXT)}}
    where: dict[str, Any] = {}
    if location is not None and file:
        where["physicalLocation"] = {
            "artifactLocation": {"uri": quote(file), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": max(1, location.line)},
        }
    if location is not None and (logical := list(_logical(location))):
        where["logicalLocations"] = logical
    if where:
        result["locations"] = [where]
    # The sentence holds numbers that change from run to run: the same finding is the same code at the same place.
    place = f"{code}:{file}:{location.function if location is not None else ''}"
    result["partialFingerprints"] = {"lanewise/v1": hashlib.sha256(place.encode()).hexdigest()[:32]}
    return result


def _logical(location: Location) -> Iterable[dict[str, str]]:
    """Where in the program, for a trace without stacks or beside the line."""
    if location.function:
        yield {"name": clean(location.function, 200), "kind": "function"}
    if location.module:
        yield {"name": clean(location.module, 200), "kind": "module"}
    if location.operators:
        operators = " > ".join(location.operators)
        yield {"name": clean(location.operators[-1], 200), "fullyQualifiedName": clean(operators, _MAX_TEXT)}
