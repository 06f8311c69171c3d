"""Nothing is lost: device time over the tree is the trace's device total, to the nanosecond, in every view."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from lanewise.show.tree.collapsed import collapsed
from lanewise.trace.model import Trace
from lanewise.tree import views
from lanewise.tree.algebra import merge, subtract
from lanewise.tree.build import build_tree
from lanewise.tree.flat import BY, flat
from lanewise.tree.limits import limit_nodes
from lanewise.tree.model import METRICS, PHASES, Tree
from lanewise.tree.tree_file import dumps, loads
from tests.support.collapsed_stacks import parse_collapsed
from tests.tree.programs import Action, play, programs

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def device_total(trace: Trace) -> int:
    return int(trace.duration[trace.device_work].sum())


def all_views(tree: Tree) -> dict[str, Tree]:
    found: dict[str, Tree] = {"raw": tree}
    for placement in ("forward", "ran"):
        for fold in (True, False):
            shown = views.top_down(tree, placement=placement, fold=fold)
            found[f"top-down {placement} {fold}"] = shown
            found[f"modules {placement} {fold}"] = views.modules(shown)
            found[f"bottom-up {placement} {fold}"] = views.bottom_up(shown)
            found[f"layers {placement} {fold}"] = views.merge_layers(shown)
    found["saved"] = loads(dumps(tree))
    found["limited"] = limit_nodes(tree, max(len(tree) // 2, 1))
    return found


@relaxed
@given(programs)
def test_every_view_has_the_device_total_of_the_trace(program: list[list[Action]]) -> None:
    trace = play(program)
    total = device_total(trace)
    tree = build_tree(trace)
    assert tree.info.device_total == total
    for name, view in all_views(tree).items():
        assert view.total("device") == total, name
        roots = view.parent < 0
        assert int(view.inclusive("device")[roots].sum()) == total, name
        assert view.total("count") == len(trace.device_work), name
    for by in BY:
        for placement in ("forward", "ran"):
            table = flat(views.placed(tree, placement), by)
            assert int(table["device"].sum()) == total, by
            assert int(table["count"].sum()) == len(trace.device_work), by
    assert sum(parse_collapsed(collapsed(tree)).values()) == total


@relaxed
@given(programs)
def test_every_sum_survives_every_view(program: list[list[Action]]) -> None:
    tree = build_tree(play(program))
    for name, view in all_views(tree).items():
        if name.startswith("bottom-up"):
            continue
        for metric in METRICS:
            if metric not in {"shortest", "longest", "calls", "squares"}:
                assert view.total(metric) == tree.total(metric), (name, metric)


@relaxed
@given(programs)
def test_phases_divide_the_tree(program: list[list[Action]]) -> None:
    tree = build_tree(play(program))
    parts = [views.only_phases(tree, [phase]) for phase in PHASES]
    assert sum(part.total("device") for part in parts) == tree.total("device")
    assert sum(part.total("host") for part in parts) == tree.total("host")


@relaxed
@given(programs)
def test_a_limit_keeps_the_device_time_of_each_phase(program: list[list[Action]]) -> None:
    tree = build_tree(play(program))
    small = limit_nodes(tree, max(len(tree) // 3, 1))
    for phase in PHASES:
        assert views.only_phases(small, [phase]).total("device") == views.only_phases(tree, [phase]).total("device")


@relaxed
@given(programs)
def test_steps_divide_the_tree(program: list[list[Action]]) -> None:
    trace = play(program)
    whole = build_tree(trace)
    numbers = trace.steps.number.tolist()
    steps = build_tree(trace, steps=numbers)
    parts = [build_tree(trace, steps=[number]) for number in numbers]
    assert sum(part.total("device") for part in parts) == steps.total("device") <= whole.total("device")
    merged = merge(parts)
    assert len(merged) == len(steps)
    for metric in METRICS:
        assert np.array_equal(np.sort(merged.metrics[metric]), np.sort(steps.metrics[metric])), metric
    assert merged.info.steps == tuple(numbers)


@relaxed
@given(programs)
def test_streams_divide_the_tree(program: list[list[Action]]) -> None:
    trace = play(program)
    lanes = trace["lanes"]
    streams = sorted(set(lanes["thread"][lanes["side"] == "device"].tolist()))
    parts = [build_tree(trace, streams=[stream]) for stream in streams]
    assert sum(part.total("device") for part in parts) == device_total(trace)


@relaxed
@given(programs)
def test_a_tree_less_itself_is_nothing(program: list[list[Action]]) -> None:
    tree = build_tree(play(program))
    twice = merge([tree, tree])
    assert len(twice) == len(tree)
    for metric in METRICS:
        if metric not in {"shortest", "longest"}:
            assert twice.total(metric) == 2 * tree.total(metric), metric
    nothing = subtract(tree, tree)
    assert len(nothing) == 0
    assert nothing.total("device") == 0
    assert not any(nothing.metrics[m].any() for m in METRICS if m not in {"shortest", "longest"})


@relaxed
@given(programs)
def test_equal_programs_give_equal_bytes(program: list[list[Action]]) -> None:
    assert dumps(build_tree(play(program))) == dumps(build_tree(play(program)))


@relaxed
@given(programs)
def test_more_steps_give_no_more_contexts(program: list[list[Action]]) -> None:
    """Every step the same program: the set of contexts is that of three steps, however many there are.

    Work without a launch and gradient accumulations stand by position, and the first step has no forward neighbour
    before
    it: both are the same from the second step on.
    """
    few = build_tree(play([program[0]] * 3))
    many = build_tree(play([program[0]] * 7))
    assert len(few) == len(many)
