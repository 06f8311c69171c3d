"""Nesting against the obvious stack, and the ways in which real traces fail to nest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lanewise.trace.nesting import innermost, nearest, nest


def arrays(events: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = np.array(events, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Properly nested intervals on up to three lanes, in random order."""
    events: list[tuple[int, int, int]] = []

    def fill(lane: int, low: int, high: int, depth: int) -> None:
        at = low
        while depth < 4 and at < high - 2 and draw(st.booleans()):
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start + 1, high))
            events.append((lane, start, end - start))
            fill(lane, start, end, depth + 1)
            at = end

    for lane in range(draw(st.integers(1, 3))):
        fill(lane, 0, 200, 0)
    return draw(st.permutations(events))


def by_stack(events: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    parent, depth = [-1] * len(events), [0] * len(events)
    stack: list[int] = []
    order = sorted(range(len(events)), key=lambda i: (events[i][0], events[i][1], -events[i][2], i))
    for i in order:
        lane, start, _ = events[i]
        while stack and (events[stack[-1]][0] != lane or events[stack[-1]][1] + events[stack[-1]][2] <= start):
            stack.pop()
        parent[i] = stack[-1] if stack else -1
        depth[i] = len(stack)
        stack.append(i)
    return parent, depth


@given(nested())
def test_nested_events_get_the_parents_of_a_stack(events: list[tuple[int, int, int]]) -> None:
    result = nest(*arrays(events))
    parent, depth = by_stack(events)
    assert result.parent.tolist() == parent
    assert result.depth.tolist() == depth
    assert result.crossing == 0


# The first one ends before the others, but only once these have been closed early does it cross them.
@example([(0, 0, 25), (0, 0, 25), (0, 24, 5), (0, 24, 5), (0, 26, 7)])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 30)), max_size=40))
def test_any_events_at_all_give_a_forest(events: list[tuple[int, int, int]]) -> None:
    lane, start, duration = arrays(events)
    result = nest(lane, start, duration)
    for event, parent in enumerate(result.parent.tolist()):
        if parent < 0:
            assert result.depth[event] == 0
        else:
            assert lane[parent] == lane[event]
            assert start[parent] <= start[event] <= start[parent] + duration[parent]
            assert result.depth[event] == result.depth[parent] + 1
    assert sorted(result.order.tolist()) == list(range(len(events)))


def test_a_step_that_opens_inside_a_python_frame_keeps_its_content() -> None:
    # frame [0, 10], step [5, 1000] opens inside it, an operator [20, 30] belongs to the step.
    result = nest(*arrays([(0, 0, 10_000), (0, 5_000, 995_000), (0, 20_000, 10_000)]))
    assert result.parent.tolist()[2] == 1
    assert result.crossing == 1


def test_a_child_that_outlives_its_parent_is_closed_with_it() -> None:
    # parent [0, 100], child [10, 103] crosses by little, a later event [101, 102] is the parent's sibling.
    result = nest(*arrays([(0, 0, 100_000), (0, 10_000, 93_000), (0, 101_000, 1_000)]))
    assert result.parent.tolist() == [-1, 0, -1]


def test_rounding_does_not_count_as_crossing() -> None:
    result = nest(*arrays([(0, 0, 100_000), (0, 99_500, 50_000)]))
    assert result.crossing == 0
    assert result.parent.tolist() == [-1, -1]


def test_events_without_duration_have_parents_but_no_children() -> None:
    result = nest(*arrays([(0, 0, 10), (0, 5, 0), (0, 5, 0), (0, 5, 2)]))
    assert result.parent.tolist() == [-1, 3, 3, 0]


def test_far_apart_lanes_do_not_overflow() -> None:
    result = nest(*arrays([(0, 0, 2**61), (2**20, 1, 5)]))
    assert result.parent.tolist() == [-1, -1]


@given(nested(), st.integers(0, 2), st.integers(-5, 205))
def test_innermost_is_the_shortest_open_event(events: list[tuple[int, int, int]], at_lane: int, at_time: int) -> None:
    lane, start, duration = arrays(events)
    result = nest(lane, start, duration)
    found = int(innermost(result, lane, start, start + duration, np.array([at_lane]), np.array([at_time]))[0])
    holding = [i for i, (ln, s, d) in enumerate(events) if ln == at_lane and s <= at_time < s + d]
    assert found == (max(holding, key=lambda i: result.depth[i]) if holding else -1)


def test_nearest_wanted_ancestor() -> None:
    parent = np.array([-1, 0, 1, 2])
    wanted = np.array([True, False, True, False])
    assert nearest(parent, wanted, np.arange(4)).tolist() == [-1, 0, 0, 2]
    assert nearest(parent, wanted, np.arange(4), include_self=True).tolist() == [0, 0, 2, 2]
    assert nearest(parent, wanted, np.array([-1, 3])).tolist() == [-1, 2]
    nothing = np.empty(0, np.int64)
    assert nearest(nothing, nothing.astype(bool), np.array([-1])).tolist() == [-1]


@pytest.mark.parametrize("steps", [3, 40])
def test_a_chain_of_crossings_is_settled_however_long(steps: int) -> None:
    # Each step's last annotation outlives the step and reaches into the next one, as step marks set by a hook do.
    inside = [(100, 150), (200, 250)]
    spans = [
        (step * 1000 + begin, step * 1000 + end)
        for step in range(steps)
        for begin, end in [(0, 985), *inside, (900, 1010)]
    ]
    result = nest(
        np.zeros(len(spans), dtype=np.int64),
        np.array([begin * 1000 for begin, _ in spans]),
        np.array([(end - begin) * 1000 for begin, end in spans]),
    )
    for step in range(steps):
        assert result.parent[4 * step : 4 * step + 4].tolist() == [-1, 4 * step, 4 * step, 4 * step]
    assert result.crossing == steps
