"""A window of a large trace: what the server answers agrees with the whole timeline."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.facts import Facts
from lanewise.show.page import window_queries
from lanewise.show.page.packing import unpack
from lanewise.show.page.series import queue_series
from lanewise.show.page.window_queries import Windows
from lanewise.trace.schema import Kind
from tests.web.traces import training


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts(training(6))


def test_at_the_finest_zoom_every_slice_of_the_window_is_there(facts: Facts) -> None:
    trace = facts.trace
    low, high = int(trace.start.max() // 3), int(trace.start.max() // 2)
    columns, _ = unpack(Windows(facts).slices(low, high, 1))
    wanted = np.flatnonzero((trace.end > low) & (trace.start < high))
    assert set(wanted.tolist()) <= set(columns["id"].tolist())
    assert (columns["merged"] == 1).all()
    assert (columns["duration"] == trace.duration[columns["id"]]).all()
    assert columns["row_count"].sum() == len(columns["start"])


def test_coarser_windows_are_smaller_and_lose_no_slice_and_no_time(facts: Facts) -> None:
    trace = facts.trace
    windows, high = Windows(facts), int(trace.end.max()) + 1
    previous = len(trace)
    for pixel in (20_000.0, 200_000.0, 2_000_000.0):
        columns, _ = unpack(windows.slices(0, high, pixel))
        assert columns["merged"].sum() == len(trace)
        assert len(columns["start"]) < previous
        previous = len(columns["start"])
        wide = trace.duration >= pixel
        assert set(np.flatnonzero(wide).tolist()) <= set(columns["id"].tolist())
        for first, count in zip(columns["row_first"], columns["row_count"], strict=True):
            assert (np.diff(columns["start"][first : first + count]) >= 0).all()
        merged = columns["merged"] > 1
        assert (columns["duration"][merged] <= pixel).all()


def test_details_of_a_kernel_and_of_its_operator(facts: Facts) -> None:
    trace = facts.trace
    windows = Windows(facts)
    kernel = int(trace.of(Kind.KERNEL)[5])
    details = windows.details(kernel)
    assert details is not None
    launch = trace.links.launch[np.searchsorted(trace.device_work, kernel)]
    assert details["launch"]["id"] == launch
    assert [a["name"] for a in details["args"]][:3] == ["grid_x", "grid_y", "grid_z"]
    operator = next(a for a in reversed(details["ancestors"]) if trace.kind[a["id"]] == Kind.OPERATOR)
    back = windows.details(operator["id"])
    assert back is not None
    assert kernel in [work["id"] for work in back["launched"]]
    assert windows.details(10**9) is None
    assert windows.details(-1) is None


def test_a_measured_stretch_adds_up(facts: Facts) -> None:
    trace = facts.trace
    measured = Windows(facts).measure(0, int(trace.end.max()) + 1)
    assert measured["deviceSlices"] == len(trace.device_work)
    assert sum(measured["classes"].values()) <= trace.end.max() + 1
    assert measured["kernels"][0]["time"] == max(
        trace.duration[(trace.name == n) & np.isin(trace.kind, (7, 8, 9))].sum() for n in range(len(trace.names))
    )
    assert Windows(facts).measure(0, 1)["deviceSlices"] == 0


def test_search_ignores_case_and_counts_all(facts: Facts) -> None:
    found = Windows(facts).search("MUL_KERNEL", limit=7)
    assert found["total"] == 6 * 30
    assert len(found["slices"]) == 7
    assert all("mul_kernel" in item["name"] for item in found["slices"])
    assert Windows(facts).search("nothing like it") == {"slices": [], "total": 0}


def test_the_overview_carries_no_slices_but_all_rows(facts: Facts) -> None:
    columns, extra = unpack(Windows(facts).overview())
    assert len(columns["start"]) == 0
    assert len(columns["row_lane"]) > 3
    assert extra["total"] == len(facts.trace)


@pytest.mark.parametrize("pixel", [1.0, 700.0, 30_000.0])
def test_a_curve_of_a_window_shows_in_every_pixel_what_all_points_would(
    facts: Facts, monkeypatch: pytest.MonkeyPatch, pixel: float
) -> None:
    monkeypatch.setattr(window_queries, "THINNED", 20)
    (whole,) = queue_series(facts, 10**9)
    span = int(whole.time[-1])
    low, high = span // 3, span // 2
    columns, _ = unpack(Windows(facts).slices(low, high, pixel))
    time, value = columns["time:queue"], columns["value:queue"]
    assert len(time) <= len(whole.time)
    # As a page draws it: of each pixel the highest value. Points are moved by less than a pixel of the window's.
    for at in np.arange(low, high - 4 * pixel, max(4 * pixel, (high - low) / 200)):
        some = peak(time, value, at, at + 4 * pixel)
        assert peak(whole.time, whole.value, at + pixel, at + 3 * pixel) <= some
        assert some <= peak(whole.time, whole.value, at, at + 4 * pixel)
    assert value.max() == whole.value[(whole.time >= time[0]) & (whole.time < high)].max()


def peak(time: np.ndarray, value: np.ndarray, low: float, high: float) -> float:
    first, last = np.searchsorted(time, (low, high), side="left")
    before = value[first - 1] if first else -1
    return float(max(before, value[first:last].max(initial=-1)))


def test_a_curve_that_the_overview_has_whole_is_not_sent_again(facts: Facts) -> None:
    columns, _ = unpack(Windows(facts).slices(0, int(facts.trace.end.max()), 1))
    assert not [name for name in columns if name.startswith("time:")]
