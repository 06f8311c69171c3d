"""What a step is bound by where its time is computed, and what it would be at the ends of the interval."""

from __future__ import annotations

import pytest

from lanewise.diagnose.explain import explain
from lanewise.measure.regime.regime import regime_at, regime_of
from tests.support.corpus import facts_of, trace_path, truth, unprofiled_us

CLASSES = {"host": 60.0, "compute": 30.0, "transfer": 10.0}


@pytest.mark.parametrize(
    ("step", "name"), [(100.0, "host"), (70.0, "mixed"), (50.0, "compute"), (40.0, "compute"), (10.0, "compute")]
)
def test_what_is_not_known_of_a_step_is_how_long_the_device_waits(step: float, name: str) -> None:
    assert regime_at(CLASSES, step) == name


def test_a_step_of_its_own_length_is_what_it_is() -> None:
    assert regime_at(CLASSES, 100.0) == regime_of({name: ns / 100 for name, ns in CLASSES.items()})
    assert regime_at({}, 0.0) == ""


@pytest.mark.parametrize("run", sorted(truth()))
def test_the_measured_time_says_nothing_that_the_trace_alone_rules_out(run: str) -> None:
    if run == "06_cuda_graph_replay":
        pytest.skip("three steps of 16 us: what recording adds at the end of a step is not known that well (docs)")
    alone, timed = facts_of(run).regime, facts_of(run, with_unprofiled=True).regime
    assert timed.at_low == timed.at_high == ""
    assert timed.name in (alone.name, alone.at_low, alone.at_high)


def test_the_verdict_says_what_the_ends_of_the_interval_would_be() -> None:
    trace = trace_path("04_resnet50_infer")
    said = explain(trace).regime.sentence
    assert (
        "The step's time is computed: at 11.2 ms it would be device-bound, at 21.2 ms it would be host-bound." in said
    )
    timed = explain(trace, unprofiled_us=unprofiled_us("04_resnet50_infer")).regime.sentence
    assert "would be" not in timed
