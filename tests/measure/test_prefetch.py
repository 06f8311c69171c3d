from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.measure import prefetch as ahead
from lanewise.measure.facts import Facts
from lanewise.trace.memo import once
from lanewise.trace.reader import read

MNIST = Path(__file__).parents[2] / "src" / "lanewise" / "bundled" / "mnist.json.gz"


def report_json() -> bytes:
    return msgspec.json.encode(report_of(facts_of(read(str(MNIST), cache=False))))


@pytest.fixture
def _small_traces_too(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(ahead, "_WORTH_EVENTS", 0)
    monkeypatch.setattr(ahead, "usable_cores", lambda: 2)


def test_every_measure_named_exists() -> None:
    assert all(isinstance(getattr(Facts, name), once | property) for name in ahead._MEASURES)


@pytest.mark.usefixtures("_small_traces_too")
def test_the_report_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_of_need = report_json()
    monkeypatch.setattr(ahead, "usable_cores", lambda: 1)
    assert report_json() == ahead_of_need


@pytest.mark.usefixtures("_small_traces_too")
def test_a_measure_that_fails_ahead_fails_for_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Facts) -> None:
        raise ValueError("cannot be measured")

    unmeasurable = once(broken)
    unmeasurable.__set_name__(Facts, "kernels")
    monkeypatch.setattr(Facts, "kernels", unmeasurable)
    with pytest.raises(ValueError, match="cannot be measured"):
        report_json()
