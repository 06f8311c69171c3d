"""What findings give together: the best is mended first, the others on what it leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lanewise.diagnose import engine
from lanewise.diagnose.rule import Found, Rule, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.replay.change import Change, one_launch, shorten
from lanewise.report.model import Finding
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder


def program(*, kernel: float = 1, operators: int = 10) -> Facts:
    """Steps of operators that take 50 us on the host each; timed, so that nothing is taken off."""
    b = TraceBuilder()
    for _ in range(6):
        with b.step():
            for _ in range(operators):
                with b.op("aten::add", head=20, tail=20):
                    b.launch("add", duration=kernel)
    facts = Facts(b.build())
    return Facts(b.build(), unprofiled_ns=round(facts.unprofiled.recorded_ns))


def operators(facts: Facts, *places: int) -> np.ndarray:
    """The operators at these places of each step."""
    rows = facts.trace.of(Kind.OPERATOR)
    rows = rows[facts.host.parent[rows] >= 0]
    step = facts.trace.steps.of_event[rows]
    return np.concatenate([rows[step == one][list(places)] for one in np.unique(step[step >= 0])])


def giving(code: str, change: Callable[[Facts], Change], *, general: bool = False) -> Rule:
    def check(facts: Facts) -> Found:
        return Found(change=change(facts))

    return rule(code, code.lower(), title="t", general=general)(check)


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Finding]]:
    def run(facts: Facts, *rules: Rule) -> list[Finding]:
        monkeypatch.setattr(engine, "builtin_rules", lambda: rules)
        monkeypatch.setattr(engine, "third_party_rules", lambda: ())
        return engine.diagnose(facts)[0]

    return run


def test_time_that_two_findings_speak_of_is_given_once(ranked: Callable[..., list[Finding]]) -> None:
    facts = program()
    more = giving("AAA101", lambda f: remove(f, operators(f, 0, 1, 2)))
    less = giving("BBB101", lambda f: remove(f, operators(f, 0, 1)))
    found = ranked(facts, less, more)
    assert [f.code for f in found] == ["AAA101", "BBB101"]
    assert found[0].recoverable_us_per_step == pytest.approx(found[0].alone_us_per_step)
    assert found[1].alone_us_per_step == pytest.approx(found[0].alone_us_per_step * 2 / 3, rel=0.02)
    assert found[1].recoverable_us_per_step == 0


def test_gains_add_up_and_never_exceed_the_step(ranked: Callable[..., list[Finding]]) -> None:
    facts = program()
    rules = [giving(f"AAA{101 + i}", lambda f, i=i: remove(f, operators(f, *range(i, 10)))) for i in range(9)]
    rules.append(giving("BBB101", lambda f: one_launch(operators(f, *range(10))), general=True))
    found = ranked(facts, *rules)
    total = sum(f.recoverable_us_per_step for f in found)
    assert 0 < total <= facts.unprofiled.step_ns / 1e3
    assert min(f.leaves_us_per_step for f in found) == pytest.approx(facts.unprofiled.step_ns / 1e3 - total, abs=0.1)


def test_a_remedy_for_anything_counts_on_what_causes_leave(ranked: Callable[..., list[Finding]]) -> None:
    facts = program()
    cause = giving("AAA101", lambda f: remove(f, operators(f, 0, 1, 2)))
    remedy = giving("BBB101", lambda f: one_launch(operators(f, *range(10))), general=True)
    found = ranked(facts, remedy, cause)
    assert [f.code for f in found] == ["AAA101", "BBB101"]
    assert found[1].recoverable_us_per_step > found[0].recoverable_us_per_step
    assert found[1].alone_us_per_step > found[1].recoverable_us_per_step


def test_what_the_host_hides_helps_once_the_host_is_quick(ranked: Callable[..., list[Finding]]) -> None:
    """Kernels of 35 us behind a host of 45 us each: shorter ones give nothing until the host is mended."""
    facts = program(kernel=35)
    device = giving("AAA101", lambda f: shorten(f.trace.device_work, 5_000))
    host = giving("BBB101", lambda f: one_launch(operators(f, *range(10))))
    alone = ranked(facts, device)[0]
    assert alone.kind == "note" or alone.recoverable_us_per_step < 50
    found = {f.code: f for f in ranked(facts, device, host)}
    assert found["AAA101"].recoverable_us_per_step > 5 * found["AAA101"].alone_us_per_step
    assert found["AAA101"].recoverable_us_per_step > 200


def test_a_gain_lies_in_its_interval(ranked: Callable[..., list[Finding]]) -> None:
    found = ranked(program(), giving("AAA101", lambda f: remove(f, operators(f, 0, 1, 2))))[0]
    assert 0 < found.low_us_per_step < found.recoverable_us_per_step < found.high_us_per_step
