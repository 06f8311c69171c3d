"""Names in a trace are untrusted: no output lets them drive a terminal, a renderer, a spreadsheet or a format string."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from lanewise.diagnose.explain import explain
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.report.json import report_json
from lanewise.show.report.markdown import report_markdown
from lanewise.show.report.short_markdown import LINES, short_markdown
from lanewise.show.report.tables import Tables, profiler_tables, tables_csv
from lanewise.show.report.terminal import print_report
from lanewise.show.safe_text import clean
from tests.support.builder import TraceBuilder

HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07kernel",
    "[bold red]markup[/]",
    "{values} {0} %s",
    "<script>alert(1)</script>",
    "| a | b |",
    "=cmd|' /C calc'!A0",
    "\u202egnp.exe",
    "a" * 100_000,
    "`code` *x* [link](javascript:1)",
    "line\nbreak\ttab",
]


def report_of(name: str) -> tuple[Facts, Report]:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.frame(f"{name}.py(1): {name}"), b.op(name):
            for _ in range(25):
                with b.op(name):
                    b.launch(name)
            b.copy(source="pageable")
    trace = b.build()
    return Facts(trace), explain(trace)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_output_passes_control_sequences_on(name: str) -> None:
    facts, report = report_of(name)
    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=110, force_terminal=False, markup=False), verbose=True)
    assert len(short_markdown(report).splitlines()) <= LINES
    for text in (buffer.getvalue(), report_markdown(report), short_markdown(report)):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "a" * 2_000 not in text
    json.loads(report_json(report).encode("utf-8", "surrogatepass"))
    csv = tables_csv(Tables("", profiler_tables(facts, ("kernels",), limit=None), {}))
    assert not any(line.startswith(("=", "+", "@")) for line in csv.splitlines())


def test_markdown_shows_markup_as_text() -> None:
    report = report_of("<script>alert(1)</script>")[1]
    for text in (report_markdown(report), short_markdown(report)):
        assert "<script>" not in text.replace("\\<script\\>", "")


def test_clean_keeps_ordinary_names() -> None:
    name = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>"
    assert clean(name) == name
    assert len(clean("x" * 10_000, 64)) == 64
