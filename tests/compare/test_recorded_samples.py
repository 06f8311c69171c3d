"""The samples behind a step time survive the way through the trace file: a comparison needs them."""

from __future__ import annotations

from lanewise.trace.metadata import Recorded, StepTimes, from_metadata, to_json


def test_samples_come_back_in_order() -> None:
    times = StepTimes(
        median_us=2.0, p20_us=1.0, p80_us=3.0, samples=3, steps=3, method="host", times_us=(3.0, 1.0, 2.0)
    )
    read = from_metadata({"lanewise": to_json(Recorded(lanewise="0", unprofiled=times))})
    assert read is not None
    assert read.unprofiled == times


def test_a_file_with_wrong_samples_keeps_the_rest() -> None:
    body = {"median_us": 2.0, "samples": 3, "steps": 3, "times_us": ["x", None, -1, 5.0]}
    read = from_metadata({"lanewise": {"schema": 1, "unprofiled": body}})
    assert read is not None
    assert read.unprofiled is not None
    assert read.unprofiled.times_us == (5.0,)
