from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanewise.capture.file.event_counts import Contents, scan
from lanewise.capture.profiling.faults import find
from lanewise.capture.profiling.profiler import Flags

SOUND = Contents(operators=100, launches=40, kernels=40, copies=2, steps=10, size=10_000)


def codes(
    contents: Contents, flags: Flags | None = None, messages: list[str] | None = None, missing: list[str] | None = None
) -> list[str]:
    return [fault.code for fault in find(contents, flags or Flags(), messages or [], missing or [])]


def test_a_sound_recording_has_no_fault() -> None:
    assert codes(SOUND) == []
    assert codes(replace(SOUND, launches=0, kernels=0, copies=0)) == []


@pytest.mark.parametrize(
    ("contents", "flags", "messages", "expected"),
    [
        (replace(SOUND, kernels=0, copies=0), Flags(), [], "no-device-records"),
        (
            replace(SOUND, kernels=0, copies=0),
            Flags(),
            ["ERROR CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"],
            "another-subscriber",
        ),
        (replace(SOUND, kernels=0, copies=0), Flags(), ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"], "another-subscriber"),
        (replace(SOUND, kernels=20), Flags(), [], "device-records-lost"),
        (replace(SOUND, dropped=1), Flags(), [], "records-dropped"),
        (SOUND, Flags(), ["WARNING: 12 events out of range"], "records-dropped"),
        (SOUND, Flags(stacks=True), [], "no-stacks"),
        (replace(SOUND, compilations=30), Flags(), [], "compiled-inside"),
        (Contents(), Flags(), [], "nothing-recorded"),
    ],
)
def test_each_fault_is_named(contents: Contents, flags: Flags, messages: list[str], expected: str) -> None:
    assert codes(contents, flags, messages) == [expected]


def test_a_graph_makes_more_kernels_than_launches_and_that_is_no_fault() -> None:
    assert codes(replace(SOUND, launches=10, graph_launches=10, kernels=300)) == []


def test_a_flag_that_this_torch_lacks_is_said() -> None:
    assert codes(SOUND, missing=["sync_events"]) == ["flag-unavailable"]


def test_sentences_say_what_to_do_on_one_line() -> None:
    everything = Contents(launches=10, dropped=1, compilations=1)
    for fault in find(everything, Flags(stacks=True), [], ["all_threads"]):
        assert "\n" not in fault.sentence
        assert len(fault.sentence) < 250


def test_rows_are_counted_in_a_real_trace(tmp_path: Path) -> None:
    import gzip

    from lanewise.bundled import bundled_path

    raw = tmp_path / "trace.json"
    raw.write_bytes(gzip.decompress(Path(str(bundled_path("mnist"))).read_bytes()))
    found = scan(raw)
    assert found.kernels == 147
    assert found.steps == 3
    assert found.launches >= 100
    assert found.operators > 300
