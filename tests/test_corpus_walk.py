"""Every real trace at hand is explained, or refused for a stated reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.diagnose.explain import explain
from lanewise.errors import NotATraceError
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.show.report.json import report_json
from lanewise.show.report.markdown import report_markdown
from lanewise.show.report.short_markdown import LINES, short_markdown
from lanewise.trace.reader import read
from tests.support.corpus import CORPUS, DATA, fast_or_slow

REFUSED = {
    "benchmark_simple_add_et.json.gz": "execution trace",
    "memory_timeline.raw.gz": "memory timeline",
}
FILES = sorted(p for root in (CORPUS, DATA) if root.exists() for p in root.rglob("*.gz") if p.name != "truth.json.gz")


@pytest.mark.parametrize("path", [fast_or_slow(path) for path in FILES])
def test_every_trace_is_explained_or_refused(path: Path) -> None:
    if path.name in REFUSED:
        with pytest.raises(NotATraceError, match=REFUSED[path.name]):
            read(str(path), cache=False)
        return
    trace = read(str(path), cache=False)
    report = explain(trace)
    failed = [check for check in report.checks if check.status == "error"]
    assert not failed
    assert report.verdict
    assert report.health
    assert len([f for f in report.findings if f.kind == "regime"]) == 1
    assert sum(f.recoverable_us_per_step for f in report.findings) <= report.regime.step_us * 1.001 + 1
    shares = report.regime.shares
    assert not shares or sum(shares[name] for name in CLASSES) == pytest.approx(1.0, abs=0.01)
    assert report.source.path in report_json(report)
    assert report_markdown(report).startswith("# ")
    short = short_markdown(report)
    assert len(short.splitlines()) <= LINES
    assert len(short.encode()) <= 4_096


def test_the_small_copies_are_there() -> None:
    assert len([p for p in FILES if p.is_relative_to(DATA)]) >= 10
