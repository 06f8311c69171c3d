"""The timeline's layout: rows, links, causes, caps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.measure.facts import Facts
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.show.page.packing import unpack
from lanewise.show.page.payload import timeline_block
from lanewise.show.page.series import queue_series, thin
from lanewise.show.page.timeline import _drawing_order, cause_intervals, timeline_of
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder
from tests.web.traces import training


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 6), st.integers(0, 3)), min_size=0, max_size=60
    ),
    st.sampled_from([1, 40_000]),
)
def test_slices_are_drawn_by_row_start_and_length(rows: list[tuple[int, int, int, int]], lanes_apart: int) -> None:
    lane, depth, start, duration = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    order = _drawing_order(lane * lanes_apart, depth, start, duration)
    assert order.tolist() == np.lexsort((-duration, start, depth, lane)).tolist()


def test_rows_are_sorted_and_their_slices_do_not_overlap() -> None:
    facts = Facts(training())
    timeline, trace = timeline_of(facts), facts.trace
    assert sorted(timeline.event.tolist()) == list(range(len(trace)))
    for first, count, lane, depth in zip(
        timeline.row_first, timeline.row_count, timeline.row_lane, timeline.row_depth, strict=True
    ):
        events = timeline.event[first : first + count]
        assert (np.diff(trace.start[events]) >= 0).all()
        assert (trace.end[events][:-1] <= trace.start[events][1:]).all()
        assert len(set(trace.lane[events].tolist())) == 1
        assert timeline.lanes[lane]["side"] == trace["lanes"]["side"][trace.lane[events[0]]]
        if timeline.lanes[lane]["side"] == "host":
            assert (trace.nesting.depth[events] == depth).all()
    assert (timeline.position[timeline.event] == np.arange(len(trace))).all()


def test_devices_come_first_then_the_thread_that_marks_the_steps() -> None:
    lanes = timeline_of(Facts(training())).lanes
    assert [lane["side"] for lane in lanes] == ["device", "host", "host"]
    assert lanes[1]["steps"]
    assert not lanes[2]["steps"]


def test_ranges_on_a_stream_do_not_push_its_kernels_down() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch("inside", duration=10)
        b.slice("a range", Kind.GPU_ANNOTATION, 0, 40, side="device", process="0", thread="7")
        b.launch("outside", duration=10, delay=200)
    facts = Facts(b.build())
    timeline = timeline_of(facts)
    rows = {
        facts.trace.name_of(int(timeline.event[first])): (timeline.lanes[lane]["label"], depth)
        for first, lane, depth in zip(timeline.row_first, timeline.row_lane, timeline.row_depth, strict=True)
    }
    assert rows["a range"] == ("ranges, stream 7", 0)
    assert rows["inside"] == ("stream 7", 0)
    assert timeline.row_count[list(rows).index("inside")] == 2


def test_above_the_cap_device_work_stays_and_the_rest_is_counted() -> None:
    facts = Facts(training())
    trace = facts.trace
    work = len(trace.device_work)
    timeline = timeline_of(facts, max_slices=work + 20)
    assert len(timeline.event) == work + 20
    assert (timeline.position[trace.device_work] >= 0).all()
    assert sum(timeline.omitted.values()) == len(trace) - work - 20
    assert "kernel" not in timeline.omitted


def test_the_block_holds_every_link_and_place() -> None:
    facts = facts_of(training())
    report = report_of(facts)
    columns, extra = unpack(timeline_block(facts, report))
    trace, timeline = facts.trace, timeline_of(facts)
    assert len(columns["device"]) == np.count_nonzero(trace.links.launch >= 0)
    for device, launch in zip(columns["device"], columns["launch"], strict=True):
        row = np.searchsorted(trace.device_work, timeline.event[device])
        assert trace.links.launch[row] == timeline.event[launch]
    for backward, forward in zip(columns["backward"], columns["forward"], strict=True):
        assert trace.links.forward_of[timeline.event[backward]] == timeline.event[forward]
    assert len(columns["backward"]) == 40
    places = [place.event for finding in report.findings for place in finding.places if place.event >= 0]
    assert {int(event): timeline.event[at] for event, at in extra["places"].items()} == {e: e for e in places}
    names = extra["names"]["text"]
    assert [names[i] for i in columns["name"]] == [trace.name_of(int(event)) for event in timeline.event]
    assert extra["total"] == len(trace)


def test_causes_are_disjoint_and_add_up_to_the_classes() -> None:
    facts = Facts(training())
    start, duration, cause = cause_intervals(facts)
    assert (start[1:] >= (start + duration)[:-1]).all()
    for row, name in enumerate(CLASSES):
        assert duration[cause == row].sum() == facts.classes.sets[name].total


def test_thinning_keeps_every_peak_of_its_buckets() -> None:
    rng = np.random.default_rng(3)
    time, value = np.arange(100_000), rng.integers(0, 1000, 100_000)
    value[51_234] = 5_000
    thinned_time, thinned = thin(time, value, 3_000)
    assert len(thinned) <= 3_001
    assert thinned.max() == 5_000
    assert thinned_time[np.argmax(thinned)] == 51_234
    assert thinned[-1] == value[-1]
    assert (np.diff(thinned_time) > 0).all()


def test_the_queue_counts_what_is_launched_and_not_started() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        for _ in range(3):
            b.launch("kernel", duration=100, delay=12)
    (queue,) = queue_series(Facts(b.build()))
    assert queue.value.max() == 3
    assert queue.value[-1] == 0
    assert (queue.value >= 0).all()
