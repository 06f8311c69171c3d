"""Every finding says where it is, so that a timeline can go there."""

from __future__ import annotations

from lanewise.diagnose.explain import explain
from lanewise.diagnose.rule import Found
from lanewise.diagnose.where.places import places_of
from lanewise.measure.facts import Facts
from tests.support.builder import TraceBuilder


def three_steps() -> tuple[Facts, list[int]]:
    b = TraceBuilder()
    calls: list[int] = []
    for _ in range(3):
        with b.step(), b.op("aten::add"):
            calls += b.launch("add", duration=5)
            calls += b.launch("mul", duration=50)
    return Facts(b.build()), calls


def test_a_place_spans_the_claimed_events_of_a_step_and_names_the_longest() -> None:
    facts, events = three_steps()
    trace = facts.trace
    kernels = [event for event in events if trace.kind[event] == 7]
    places = places_of(facts, Found(events=kernels))
    assert [place.step for place in places] == [3, 4, 2]  # the cold step last
    first = places[0]
    assert first.start_ns == trace.start[kernels[2]]
    assert first.end_ns == trace.end[kernels[3]]
    assert (first.event, first.events) == (kernels[3], 2)


def test_without_claims_the_place_is_the_steps() -> None:
    facts, _ = three_steps()
    places = places_of(facts, Found())
    assert [place.step for place in places] == [3, 4]
    assert all(place.events == 0 and place.end_ns > place.start_ns for place in places)


def test_places_are_bounded() -> None:
    facts, events = three_steps()
    assert len(places_of(facts, Found(events=events), limit=2)) == 2


def test_every_finding_of_a_report_has_a_place_inside_the_trace() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(30):
                with b.op("aten::add"):
                    b.launch("add", duration=2)
    trace = b.build()
    report = explain(trace)
    assert report.findings
    for finding in report.findings:
        assert finding.places, finding.code
        for place in finding.places:
            assert 0 <= place.start_ns <= place.end_ns <= trace.end.max()
