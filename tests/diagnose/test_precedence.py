"""Who owns time that two findings speak of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lanewise.diagnose import engine
from lanewise.diagnose.rule import Found, Rule, rule
from lanewise.measure.facts import Facts
from lanewise.report.model import Finding
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder


def host_bound() -> Facts:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(10):
                with b.op("aten::add", head=20, tail=20):
                    b.launch("add", duration=1)
    return Facts(b.build())


def claiming(code: str, gain_us: float, claims: list[int], yields_to: tuple[str, ...] = ()) -> Rule:
    def check(facts: Facts) -> Found:
        return Found(gain_ns=gain_us * 1e3, claims=claims)

    return rule(code, code.lower(), title="t", side="host", yields_to=yields_to)(check)


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Finding]]:
    def run(*rules: Rule) -> dict[str, Finding]:
        monkeypatch.setattr(engine, "builtin_rules", lambda: rules)
        monkeypatch.setattr(engine, "third_party_rules", lambda: ())
        return {finding.code: finding for finding in engine.diagnose(host_bound())[0]}

    return run


def test_without_a_precedence_the_larger_gain_owns(ranked: Callable[..., dict[str, Finding]]) -> None:
    found = ranked(claiming("AAA101", 300, [1, 2]), claiming("BBB101", 100, [1, 2]))
    assert (found["AAA101"].claims_from, found["BBB101"].claims_from) == ("", "AAA101")


def test_the_special_case_owns_whatever_the_gains(ranked: Callable[..., dict[str, Finding]]) -> None:
    found = ranked(claiming("AAA101", 300, [1, 2], ("BBB101",)), claiming("BBB101", 100, [1, 2]))
    assert (found["AAA101"].claims_from, found["BBB101"].claims_from) == ("BBB101", "")
    assert found["BBB101"].recoverable_us_per_step == 100


def test_a_general_rule_keeps_what_no_special_case_claims(ranked: Callable[..., dict[str, Finding]]) -> None:
    found = ranked(claiming("AAA101", 300, [1, 2, 3, 4], ("BBB",)), claiming("BBB101", 100, [1, 2]))
    assert found["AAA101"].claims_from == ""
    assert [found[code].recoverable_us_per_step for code in ("AAA101", "BBB101")] == [200, 100]


def test_no_time_counts_twice_and_what_is_left_still_counts(ranked: Callable[..., dict[str, Finding]]) -> None:
    """Many operators (300 us) of which most, but little of their time, belong to a special case."""
    events = host_bound().trace.of(Kind.OPERATOR)[:5].tolist()
    general, special = claiming("AAA101", 300, events, ("BBB",)), claiming("BBB101", 100, events[:3])
    found = ranked(general, special)
    assert (found["AAA101"].claims_from, found["AAA101"].recoverable_us_per_step) == ("", 200)
    found = ranked(general, claiming("BBB101", 160, events[:3]))
    assert (found["AAA101"].claims_from, found["AAA101"].recoverable_us_per_step) == ("BBB101", 0)


def test_a_call_stands_for_the_work_that_it_launches(ranked: Callable[..., dict[str, Finding]]) -> None:
    facts = host_bound()
    work = facts.trace.device_work[:4]
    calls = facts.trace.links.launch[:4]
    found = ranked(claiming("AAA101", 300, calls.tolist(), ("BBB",)), claiming("BBB101", 300, work.tolist()))
    assert found["AAA101"].claims_from == "BBB101"


def test_rules_that_yield_to_each_other_are_still_ranked(ranked: Callable[..., dict[str, Finding]]) -> None:
    found = ranked(claiming("AAA101", 300, [1], ("BBB101",)), claiming("BBB101", 100, [1], ("AAA101",)))
    assert (found["AAA101"].claims_from, found["BBB101"].claims_from) == ("", "AAA101")
