"""Findings of both sides: fixed, new, remaining."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.compare.model import FindingChange
from lanewise.report.model import Finding

__all__ = ["compare_findings"]

_STATUS_ORDER = {"new": 0, "fixed": 1, "remaining": 2}
_COMPARED = frozenset({"problem", "validity", "statement"})


def compare_findings(a: Sequence[Finding], b: Sequence[Finding]) -> list[FindingChange]:
    """Findings by code, new ones first, then fixed ones, each by what it costs.

    A code that several places have is one line per side: the places with the same line of source are the same finding.
    """
    left, right = _by_key(a), _by_key(b)
    # A finding whose place one side cannot name (no stacks) is still the same finding.
    if {key[0] for key in left} == {code for code, _ in left} and not _agree(left, right):
        left, right = _by_code(left), _by_code(right)
    found: list[FindingChange] = []
    for key in {**left, **right}:
        before, after = left.get(key), right.get(key)
        status = "remaining" if before and after else "fixed" if before else "new"
        one = after or before
        assert one is not None
        found.append(
            FindingChange(
                status=status,
                code=one.code,
                name=one.name,
                kind=one.kind,
                a_title=before.title if before else "",
                b_title=after.title if after else "",
                a_us=before.alone_us_per_step if before else 0.0,
                b_us=after.alone_us_per_step if after else 0.0,
            )
        )
    return sorted(found, key=lambda f: (_STATUS_ORDER[f.status], -max(f.a_us, f.b_us), f.code))


def _by_key(findings: Sequence[Finding]) -> dict[tuple[str, str], Finding]:
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if finding.kind in _COMPARED:
            at = finding.location
            place = f"{at.file}:{at.function}" if at is not None and at.file else ""
            found.setdefault((finding.code, place), finding)
    return found


def _agree(left: dict[tuple[str, str], Finding], right: dict[tuple[str, str], Finding]) -> bool:
    """Whether both sides name places, or neither does, for the codes that they share."""
    for code in {c for c, _ in left} & {c for c, _ in right}:
        places = [{bool(place) for c, place in side if c == code} for side in (left, right)]
        if places[0] != places[1]:
            return False
    return True


def _by_code(found: dict[tuple[str, str], Finding]) -> dict[tuple[str, str], Finding]:
    merged: dict[tuple[str, str], Finding] = {}
    for (code, _), finding in found.items():
        merged.setdefault((code, ""), finding)
    return merged
