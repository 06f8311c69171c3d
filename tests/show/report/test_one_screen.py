"""The first screen of a report: never longer, never cropped without a mark, at any width."""

from __future__ import annotations

import subprocess
from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console

from lanewise.bundled import BUNDLED, bundled_path
from lanewise.diagnose.explain import explain
from lanewise.report.gain import helps
from lanewise.report.model import Report
from lanewise.show.report.one_screen import LINES, print_one_screen
from lanewise.show.report.terminal import TRY_ON_THE_CPU
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder
from tests.support.explained import report_of

DATA = Path(__file__).resolve().parents[2] / "data"
# From the end: tests/diagnose/test_one_sum.py asks for the same reports from the beginning, perhaps at the same time.
TRACES = sorted([*(DATA / "twins").glob("*.json.gz"), *(DATA / "h200").glob("*.json.gz")], reverse=True)


def shown(report: Report, width: int) -> list[str]:
    out = StringIO()
    print_one_screen(report, Console(file=out, width=width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name[:-8])
def test_every_recording_fits(path: Path) -> None:
    report = report_of(path)
    report = structs.replace(report, source=structs.replace(report.source, path=path.name))
    for width in (60, 80, 100, 160):
        lines = shown(report, width)
        assert len(lines) < LINES
        assert max(map(len, lines)) <= width
        if first := next((finding for finding in report.findings if helps(finding)), None):
            assert any(f"[{first.code}]" in line for line in lines)
        assert "--full" in "".join(lines)


def test_lines_that_are_left_over_finish_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "h100" / "03_mnist_train_stack.json.gz"
    monkeypatch.chdir(path.parent)
    lines = shown(explain(read(Path(path.name), cache=False)), 100)
    assert len(lines) in (LINES - 2, LINES - 1)
    assert "   replay them; meanwhile the device waits 3.26 ms for the host." in lines


@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_traces_fit(name: str) -> None:
    lines = shown(explain(read(bundled_path(name), cache=False)), 80)
    assert len(lines) < LINES


def test_it_says_what_binds_what_is_doubtful_what_to_do_and_where_to_go_on() -> None:
    text = "\n".join(shown(report_of(DATA / "twins" / "item_loop-bad.json.gz"), 100))
    order = [
        "Host-bound: the GPU works",
        "! Recording made the step",
        "1  The host asks the GPU for 50 values",
        "leaving 70.6 us",
        "[SYN101]",
        "Fix: keep the value on the device",
        "lanewise explain",
        "--full",
    ]
    places = [text.index(one) for one in order]
    assert places == sorted(places)
    assert "Start with" not in text


def test_what_does_not_fit_is_marked() -> None:
    report = report_of(DATA / "twins" / "mnist-stacks.json.gz")
    lines = shown(report, 80)
    gains = [at for at, line in enumerate(lines) if " per step (" in line and "[" in line]
    assert len(gains) == 3
    assert all(lines[at - 1].endswith(("…", ".")) for at in gains)
    assert "(and 1 more: --full)" in "\n".join(shown(report, 80))


def test_hostile_names_and_a_long_path_stay_inside() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::\x1b[31m" + "x" * 500):
            b.launch("k\n\x07" * 50, duration=20)
    report = explain(b.build())
    text = "\n".join(shown(report, 60))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert len(text.splitlines()) < LINES


def test_without_a_device_it_names_what_takes_the_time() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::addmm"):
            b.wait(400)
    lines = shown(explain(b.build()), 80)
    assert any("aten::addmm" in line and "us" in line for line in lines)
    assert not any(line.startswith("Undetermined") for line in lines)
    assert len(lines) < LINES


def test_wide_characters_count_as_the_terminal_counts_them() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::" + "計" * 60):
            b.wait(400)
    lines = shown(explain(b.build()), 60)
    assert max(map(cell_len, lines)) <= 60
    assert any("計" in line and line.rstrip().endswith("…") for line in lines)


@pytest.mark.parametrize("width", [60, 72, 80, 100, 160])
@pytest.mark.parametrize("doubted", [0, 2, 3])
def test_a_sentence_ends_or_is_marked_where_there_is_little_room(width: int, doubted: int) -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for name in ("addmm", "mm", "mul", "add", "div", "sqrt", "copy_"):
                with b.op(f"aten::{name}"):
                    b.wait(400)
    report = explain(b.build())
    (like, *_) = report.findings
    doubts = [
        structs.replace(like, code=f"MEA{900 + i}", kind="validity", title="What was recorded is doubtful, " * 8)
        for i in range(doubted)
    ]
    lines = shown(structs.replace(report, findings=[*doubts, *report.findings]), width)
    assert len(lines) < LINES
    text = " ".join(" ".join(lines).split())
    start = text.index("lanewise.optimize tries")
    rest = text[start:].partition("evidence and tables")[0].strip()
    assert rest == TRY_ON_THE_CPU or (rest.endswith("…") and TRY_ON_THE_CPU.startswith(rest[:-1].strip()))


def test_the_command_for_more_is_one_line_where_it_fits() -> None:
    path = "/a/folder/of/some/length/below/another/one/trace-of-a-program.json.gz"
    report = explain(read(bundled_path("mnist"), cache=False))
    named = structs.replace(report, source=structs.replace(report.source, path=path))
    assert f"  lanewise explain {path} --full" in shown(named, 100)
    lines = shown(named, 60)
    at = next(at for at, line in enumerate(lines) if line.startswith("  lanewise explain "))
    copied = "\n".join(lines[at : at + 2])
    ran = subprocess.run(
        ["sh", "-c", copied.replace("lanewise", "echo", 1)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"explain {path} --full\n"
