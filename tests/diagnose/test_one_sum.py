"""Title, table and gain of a finding come from one sum, on every recording that is kept here."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.report.model import Finding, TableBlock
from tests.support.corpus import REPOSITORY
from tests.support.explained import report_of

FOLDERS = ("h100", "h200", "twins")
PATHS = [
    path
    for folder in FOLDERS
    for path in sorted((REPOSITORY / "tests" / "data" / folder).glob("*.json.gz"))
    if "truth" not in path.name
]

# Where a number of the title is the sum of a column: code -> (value, table's column), in the table with that column.
SUMS = {
    "LAU101": (("kernels", "kernels"),),
    "LAU102": (("device", "device"), ("host", "host")),
    "MEM103": (("device", "device"), ("host", "host")),
    "MEM106": (("device", "device"), ("host", "host")),
    "SYN105": (("after", "after"), ("time", "wait")),
}
# Counts in titles are rounded.
ROUNDED = 0.06


def tables(finding: Finding) -> list[TableBlock]:
    return [block for block in finding.evidence if isinstance(block, TableBlock)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.name[:-8]}")
def test_no_share_is_above_one_and_no_gain_above_the_step(path: Path) -> None:
    report = report_of(path)
    step = report.regime.step_us * (1 + 1e-6) + 1e-3
    assert [check for check in report.checks if check.status == "error"] == []
    problems = [finding for finding in report.findings if finding.kind == "problem"]
    assert sum(finding.recoverable_us_per_step for finding in problems) <= step
    for finding in report.findings:
        assert 0 <= finding.low_us_per_step <= finding.recoverable_us_per_step <= finding.high_us_per_step <= step
        assert 0 <= finding.alone_us_per_step <= step
        for name, value in finding.values.items():
            if value.type == "share":
                assert -1e-9 <= float(value.value) <= 1, (finding.code, name)
        for block in tables(finding):
            for column in block.columns:
                if column.type == "share":
                    shares = [row[column.key] for row in block.rows]
                    assert all(share is None or share != share or share <= 1 + 1e-9 for share in shares), (
                        finding.code,
                        column.key,
                    )


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.name[:-8]}")
def test_what_is_left_is_the_step_without_the_gains(path: Path) -> None:
    report = report_of(path)
    problems = [finding for finding in report.findings if finding.kind == "problem"]
    if problems:
        gains = sum(finding.recoverable_us_per_step for finding in problems)
        least = min(finding.leaves_us_per_step for finding in problems)
        assert least == pytest.approx(report.regime.step_us - gains, abs=0.01 + 0.001 * len(problems))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.name[:-8]}")
def test_numbers_of_titles_are_the_sums_of_their_tables(path: Path) -> None:
    for finding in report_of(path).findings:
        for name, key in SUMS.get(finding.code, ()):
            block = next(block for block in tables(finding) if key in {column.key for column in block.columns})
            said = float(finding.values[name].value)
            total = sum(float(row[key]) for row in block.rows)
            if block.omitted:
                assert total <= said * 1.001, (finding.code, name)
            else:
                assert total == pytest.approx(said, rel=0.001, abs=ROUNDED), (finding.code, name)


def test_every_sum_was_looked_at() -> None:
    seen = {finding.code for path in PATHS for finding in report_of(path).findings}
    assert set(SUMS) <= seen
