"""Plans that were found before, kept per machine, versions, program, calls and what was asked for.

A plan that is found again is still re-verified: what is kept saves the search, not the proof of its results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lanewise.cache_folder import cache_folder
from lanewise.errors import LanewiseError
from lanewise.fix.model import PlanReport
from lanewise.fix.plans.fingerprint import kinds_of, machine_of, structure_of
from lanewise.fix.plans.plan import Plan, load_plan
from lanewise.fix.plans.saved_plan import read_saved
from lanewise.fix.subject import Subject

__all__ = ["find_plan", "keep_plan", "plan_path"]


def plan_path(subject: Subject, asked: Mapping[str, Any]) -> Path:
    """Where the plan for a subject is kept; `asked` are the options that it depends on."""
    facts = [machine_of(subject), structure_of(subject), kinds_of(subject), dict(asked)]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return cache_folder() / "plans" / f"{key}.json"


def find_plan(path: Path, target: Any, example_inputs: Any, *, seconds: float) -> Plan | None:
    """The plan kept at a path, re-verified; None if there is none, it no longer holds, or more time might find more.

    Args:
        seconds: to spend now.
    """
    if not path.is_file():
        return None
    try:
        if _cut_short(report := read_saved(path).report) and seconds > report.budget_s:
            return None
        return load_plan(path, target, example_inputs)
    except LanewiseError:
        return None


def _cut_short(report: PlanReport) -> bool:
    return not report.attempts or any(attempt.outcome == "out of budget" for attempt in report.attempts)


def keep_plan(plan: Plan, path: Path, names: Sequence[str]) -> None:
    """Keep a plan whose candidates come from the catalogue; those of the caller cannot be found again by name.

    A folder that cannot be written to is no reason to fail.
    """
    if not set(plan.report.winner) <= set(names):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        plan.save(path, force=True)
    except (OSError, LanewiseError):
        return
