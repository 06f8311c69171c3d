"""The Markdown to paste: what to do in the screen's order, nothing cut without a mark, on every kind of report."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from lanewise.bundled import BUNDLED, bundled_path
from lanewise.diagnose.explain import explain
from lanewise.report.gain import helps
from lanewise.show.report.short_markdown import LINES, short_markdown
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_traces_fit(name: str) -> None:
    report = explain(read(bundled_path(name), cache=False))
    text = short_markdown(report)
    assert len(text.splitlines()) <= LINES
    codes = [finding.code for finding in report.findings if helps(finding)]
    shown = [line.rsplit("(", 1)[1].rstrip(")") for line in text.splitlines() if line[1:5] == ". **"]
    assert shown == codes[:5]


def test_more_findings_than_shown_are_counted() -> None:
    report = explain(read(DATA / "twins" / "mnist.json.gz", cache=False))
    helpful = [finding for finding in report.findings if helps(finding)]
    report = structs.replace(report, findings=[*helpful, *helpful][:6])
    assert "1 more finding, evidence and tables" in short_markdown(report)


def test_without_a_device_it_names_what_takes_the_time() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::addmm"):
            b.wait(400)
    text = short_markdown(explain(b.build()))
    assert any("aten::addmm" in line and " us" in line for line in text.splitlines())
    assert "lanewise.optimize tries" in text


def test_a_path_in_the_commands_is_quoted_and_stays_in_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "a folder\nwith `ticks`"
    folder.mkdir()
    path = folder / "trace.json.gz"
    path.write_bytes((DATA / "twins" / "item_loop-bad.json.gz").read_bytes())
    lines = short_markdown(explain(read(path, cache=False))).splitlines()
    assert [line for line in lines if line.startswith("lanewise ") and "'" not in line] == []
    assert lines[2].count("`") == 2
