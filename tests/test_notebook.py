"""lanewise in a notebook: what is shown for its values, and the cell magic, in a real kernel."""

from __future__ import annotations

import html
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lanewise
from lanewise.bundled import bundled_path
from lanewise.errors import MissingDependencyError, UsageError
from lanewise.show.page import html as page_html
from tests.support.builder import TraceBuilder

MNIST = str(bundled_path("mnist"))
needs_kernel = pytest.mark.skipif(
    find_spec("nbclient") is None or find_spec("ipykernel") is None, reason="needs nbclient and ipykernel"
)
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def text_of(shown: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", shown))


def test_values_are_short_in_a_line_and_whole_on_a_screen() -> None:
    report = lanewise.explain(MNIST)
    twins = Path(__file__).parent / "data" / "twins"
    comparison = lanewise.diff(twins / "item_loop-bad.json.gz", twins / "item_loop-good.json.gz")
    prediction = lanewise.predict(MNIST, "host=2x")
    for value, words in (
        (report, ["Host-bound: the GPU works", "Fix: ", "lanewise explain", "[LAU106]"]),
        (prediction, ["now", "predicted", "host=2x"]),
        (comparison, ["base: ", "against it: "]),
    ):
        assert len(repr(value)) < 1_000
        shown = value._repr_html_()
        assert shown.startswith("<pre")
        assert [word for word in words if word not in text_of(shown)] == []
    assert report.verdict in repr(report)
    assert all(len(repr(finding)) < 500 for finding in report.findings)
    assert all(len(repr(table)) < 300 for table in report.tables.values())


def test_a_trace_shows_the_page_or_where_there_is_none_the_first_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = lanewise.read(MNIST, cache=False)

    def absent() -> Any:
        raise MissingDependencyError("no page <here>")

    monkeypatch.setattr(page_html, "bundle", absent)
    shown = trace._repr_html_()
    assert "no page &lt;here&gt;" in shown
    assert "Host-bound: the GPU works" in text_of(shown)
    monkeypatch.setattr(page_html, "bundle", lambda: page_html.Bundle("script()", "style{}"))
    assert lanewise.NotebookView(trace, height=333).html().startswith("<iframe srcdoc=")
    assert "height:333px" in lanewise.NotebookView(trace, height=333).html()


def test_names_of_a_trace_are_text_in_the_notebook_too() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("<script>alert(1)</script>\x1b[31m"):
            b.wait(400)
    report = lanewise.explain(b.build())
    shown = report._repr_html_()
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert "\x1b" not in repr(report)
    assert "alert(1)" in shown


def test_what_cannot_be_drawn_is_a_line_and_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise UsageError("settings <name> nothing")

    monkeypatch.setattr("lanewise.notebook.load_settings", broken)
    shown = lanewise.read(MNIST, cache=False)._repr_html_()
    assert shown == "<p>settings &lt;name&gt; nothing</p>"


def executed(folder: Path, cells: list[str]) -> list[list[Any]]:
    """The outputs of each cell, run one after another in a kernel of its own; a cell that fails does not end it."""
    import nbformat
    from nbclient import NotebookClient

    v4: Any = nbformat.v4
    book = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    client: Any = NotebookClient(
        book, timeout=120, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell.outputs for cell in book.cells]


def data(outputs: list[Any], kind: str) -> str:
    return "".join(output["data"].get(kind, "") for output in outputs if "data" in output)


def error(outputs: list[Any]) -> tuple[str, str]:
    return next(((one["ename"], one["evalue"]) for one in outputs if one["output_type"] == "error"), ("", ""))


@needs_kernel
def test_a_file_is_explained_in_a_cell(tmp_path: Path) -> None:
    _, outputs = executed(tmp_path, ["import lanewise", f"lanewise.explain({MNIST!r})"])
    assert "Host-bound: the GPU works" in text_of(data(outputs, "text/html"))
    assert data(outputs, "text/plain").startswith("<Report")
    assert len(data(outputs, "text/plain")) < 1_000


MODEL = """
import torch
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 32)
batches = [x] * 30
def train_step(batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""
# What a cell does, and whether steps are found in it.
CELLS = {
    "function": ("for batch in batches:\n    train_step(batch)\n", True),
    "model": ("for _ in range(30):\n    y = model(x)\n", True),
    "optimizer": ("for _ in range(30):\n    model(x).sum().backward()\n    optimizer.step()\n", True),
    "epochs": ("for epoch in range(2):\n    for batch in batches:\n        train_step(batch)\n", True),
    "few": ("for _ in range(2):\n    train_step(x)\n", False),
    "once": ("y = model(x)\n", False),
    "operators": ("for _ in range(30):\n    x @ x.T + 1\n", False),
}


@needs_kernel
@needs_torch
def test_the_magic_records_a_cell_and_shows_the_report(tmp_path: Path) -> None:
    cells = [f"%%lanewise --name {name}\n{cell}" for name, (cell, _) in CELLS.items()]
    _, _, *outputs = executed(tmp_path, [MODEL, "%load_ext lanewise", *cells])
    for (name, (_, steps)), shown in zip(CELLS.items(), outputs, strict=True):
        text = text_of(data(shown, "text/html"))
        assert "aten::" in text, (name, shown)
        assert f"lanewise explain lanewise-out/{name}.json.gz --full" in text
        trace = lanewise.read(tmp_path / "lanewise-out" / f"{name}.json.gz", cache=False)
        assert trace.steps.recorded is steps, name
        assert ("without the profiler, as measured" in text) is steps, name


@needs_kernel
@needs_torch
def test_values_stay_errors_are_the_cells_own_and_ours_are_a_line(tmp_path: Path) -> None:
    mine = "%%lanewise --quick --name mine\nfor i in range(12):\n    train_step(x)\nkept = 41\nkept + 1"
    _, _, shown, after, broken, *wrong, told = executed(
        tmp_path,
        [
            MODEL,
            "%load_ext lanewise",
            mine,
            "print(kept, type(_).__name__)",
            "%%lanewise --name broken\nfor i in range(30):\n    train_step(x)\n1 / 0",
            "%%lanewise --quik\nx + 1",
            "%%lanewise --step-on nowhere\nx + 1",
            '%%lanewise "\nx + 1',
            "%%lanewise\nx +",
            "%%lanewise --help\nx",
        ],
    )
    assert "42" in data(shown, "text/plain")
    assert "mine.json.gz" in text_of(data(shown, "text/html"))
    assert after[0]["text"] == "41 Report\n"
    assert error(broken)[0] == "ZeroDivisionError"
    assert (tmp_path / "lanewise-out" / "broken.json.gz").exists()
    assert error(wrong.pop())[0] == "SyntaxError"
    for outputs, words in zip(wrong, ("No such option", "nothing was recorded", "No closing quotation"), strict=True):
        (line,) = (line for one in outputs for line in one.get("text", "").splitlines() if "%%lanewise" in line)
        assert line.startswith("UsageError: ")
        assert words in line
    assert "--step-on FN" in told[0]["text"]
