"""The diagnoses on the recorded H100 corpus: what must fire does, what must not stays silent."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.registry import builtin_rules
from lanewise.measure.facts import Facts
from lanewise.report.gain import helps
from lanewise.report.model import Check, Finding
from lanewise.trace.reader import read
from tests.diagnose.corpus_expectations import EVERYWHERE_NOT, EXPECTED, Expected

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "traces" / "h100"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded corpus is not beside this checkout")


@cache
def unprofiled_ns() -> dict[str, int]:
    """Step time without a profiler of each recording that has one."""
    with gzip.open(CORPUS / "truth.json.gz") as file:
        truth = json.load(file)
    return {
        name: round(run["unprofiled_us_per_step"] * 1e3)
        for name, run in truth.items()
        if run.get("unprofiled_us_per_step")
    }


@cache
def diagnosed(name: str) -> tuple[str, list[Finding], list[Check]]:
    """Regime, findings and checks of one recording."""
    facts = Facts(read(CORPUS / f"{name}.json.gz", cache=False), unprofiled_ns=unprofiled_ns().get(name))
    findings, checks = diagnose(facts)
    return facts.regime.name, findings, checks


def known() -> set[str]:
    """Codes that are built."""
    return {rule.code for rule in builtin_rules()}


def costs_something(finding: Finding) -> bool:
    """Whether a finding speaks of time that this run would get back."""
    return helps(finding) or finding.kind in {"validity", "statement"}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_must_fire_fires_and_what_must_not_stays_silent(name: str) -> None:
    expected: Expected = EXPECTED[name]
    regime, findings, checks = diagnosed(name)
    by_code = {finding.code: finding for finding in findings}
    wanted, off = set(expected.must.split()), set(expected.off.split())
    unwanted = set(expected.must_not.split()) | (set(EVERYWHERE_NOT.split()) - wanted - off)

    assert regime == expected.regime
    assert {check.code: check.reason for check in checks if check.status == "error"} == {}
    assert sorted(wanted & known() - by_code.keys()) == [], "must fire"
    assert sorted(code for code in unwanted & by_code.keys() if costs_something(by_code[code])) == [], "must not fire"
    assert sorted(off & known() - by_code.keys()) == [], "must fire off the bottleneck"
    assert sorted(code for code in off & by_code.keys() if costs_something(by_code[code])) == [], (
        "only off the bottleneck"
    )


def test_every_recording_has_a_row() -> None:
    names = {path.name.removesuffix(".json.gz") for path in CORPUS.glob("*.json.gz")} - {"truth"}
    # What the first version got wrong has a test of its own.
    assert {name for name in names if not name.startswith("spent_")} == EXPECTED.keys()
