"""Which thresholds no test pins: every default is moved up and down by a half, one at a time, and the tests of its rule
must notice either.

A default that can move without a failing test is a number that nobody holds. Takes about a minute; exits 1 if there is one.

    python scripts/pinned_thresholds.py [CODE]...
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.diagnose.test_every_rule_is_tested import path_of  # noqa: E402

from lanewise.diagnose.registry import builtin_rules  # noqa: E402
from lanewise.diagnose.rule import Rule  # noqa: E402

BY = 0.5

# Moves that change nothing: a chain has two kernels in any case, and a constant is built in every step or is none.
SAME = {("LAU102", "kernels_from", "down"), ("MEM108", "per_step_from", "down")}


def passes(rule: Rule) -> bool:
    """Whether the tests of a rule pass."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.main(["-q", "-x", "-p", "no:cacheprovider", str(path_of(rule))]) == 0


def unnoticed(rule: Rule) -> Iterator[str]:
    """Moves of a threshold that no test of the rule notices."""
    defaults = rule.check.__kwdefaults__
    for name, value in dict(defaults or {}).items():
        for way, moved in (("up", value * (1 + BY)), ("down", value * (1 - BY))):
            moved = type(value)(round(moved)) if isinstance(value, int) else moved
            if moved == value:
                moved = value + (1 if way == "up" else -1)
            defaults[name] = moved
            if (rule.code, name, way) not in SAME and passes(rule):
                yield f"{rule.code} {name} = {value}: {way} to {moved}"
            defaults[name] = value


def main() -> int:
    wanted = {code.upper() for code in sys.argv[1:]}
    rules = [rule for rule in builtin_rules() if rule.thresholds and (not wanted or rule.code in wanted)]
    found = 0
    for rule in rules:
        if not passes(rule):
            print(f"{rule.code}: its tests fail as they are")
            found += 1
            continue
        for move in unnoticed(rule):
            print(move, flush=True)
            found += 1
    print(f"{sum(len(rule.thresholds) for rule in rules)} thresholds, {found} moves that no test notices")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
