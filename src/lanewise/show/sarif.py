"""Findings, and budgets that are over, as SARIF 2.1.0: what code-scanning pages and editors read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from lanewise._version import __version__
from lanewise.compare.check import BudgetResult, CheckReport
from lanewise.report.model import Finding, Location
from lanewise.show.github import relative
from lanewise.show.text import clean

__all__ = ["check_sarif", "findings_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MAX_TEXT = 1_000
_LEVELS = {"error": "error", "warn": "warning"}


def findings_sarif(findings: Sequence[Finding]) -> str:
    """The findings of a report. Validity and regime are about the recording, not about the program: left out."""
    shown = [finding for finding in findings if finding.kind in {"problem", "statement"}]
    results = [
        _entry(
            finding.code,
            "warning" if finding.on_bottleneck and finding.recoverable_us_per_step > 0 else "note",
            finding.title,
            finding.location,
        )
        for finding in shown
    ]
    return _document({finding.code: finding.name for finding in shown}, results)


def check_sarif(report: CheckReport) -> str:
    """The budgets of a check that are over; those that are not about a finding point at their line in the file."""
    over = [result for result in report.results if result.status == "over"]
    rules = {_rule(result): result.key if not result.code else result.code for result in over}
    results = [_entry(_rule(r), _LEVELS[r.level], r.sentence, r.location or _own_line(r, report)) for r in over]
    return _document(rules, results)


def _rule(result: BudgetResult) -> str:
    return result.code or f"budget/{result.key}"


def _own_line(result: BudgetResult, report: CheckReport) -> Location | None:
    return Location(file=report.budget_file, line=result.line) if report.budget_file and result.line else None


def _document(rules: dict[str, str], results: list[dict[str, Any]]) -> str:
    order = sorted(rules)
    for result in results:
        result["ruleIndex"] = order.index(result["ruleId"])
    driver = {
        "name": "lanewise",
        "version": __version__,
        "rules": [
            {"id": code, "name": clean(rules[code], 80), "shortDescription": {"text": clean(rules[code], 80)}}
            for code in order
        ],
    }
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}
    data = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def _entry(code: str, level: str, sentence: str, location: Location | None) -> dict[str, Any]:
    text = clean(sentence, _MAX_TEXT)
    file = relative(location.file) if location is not None else ""
    result: dict[str, Any] = {"ruleId": code, "level": level, "message": {"text": text}}
    if location is not None and file:
        physical = {
            "artifactLocation": {"uri": quote(file), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": max(1, location.line)},
        }
        result["locations"] = [{"physicalLocation": physical}]
    # The sentence holds numbers that change from run to run: the same finding is the same code at the same place.
    place = f"{code}:{file}:{location.function if location is not None else ''}"
    result["partialFingerprints"] = {"lanewise/v1": hashlib.sha256(place.encode()).hexdigest()[:32]}
    return result
