"""What a terminal shows: the sums are visible, the names harmless, the lines fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.tree.tree_terminal import flat_block, header, tree_rows, tree_text
from lanewise.tree import views
from lanewise.tree.build import build_tree
from lanewise.tree.flat import BY, flat
from lanewise.tree.source_excerpt import find_source
from tests.support.builder import TraceBuilder
from tests.tree.samples import case_tree, corpus_tree, small_tree
from tests.tree.test_exports import named

HOSTILE = ["\x1b[2J\x1b]0;owned\x07", "[bold red]markup[/]", "{values} {0} %s", "\u202egnp.exe", "a" * 100_000,
           "line\nbreak\ttab"]  # fmt: skip


def test_a_small_program() -> None:
    tree = views.top_down(small_tree())
    text = tree_text(tree, tree_rows(tree), width=100).plain
    assert text.splitlines() == [
        "    device   share   count  context",
        "  146.0 us 100.0 %      12  main thread › step (train.py:10)  [backward 56.2 %, forward 28.8 %]",
        "  124.0 us  84.9 %       8  ├ Net › forward (net.py:20)  [backward 56.2 %, forward 28.8 %]",
        "   64.0 us  43.8 %       4  │ ├ Linear_1 (Linear)  [backward 28.8 %, forward 15.1 %]",
        "   42.0 us  28.8 %       2  │ │ ├ AddmmBackward0 › aten::mm  [backward]",
        "   42.0 us  28.8 %       2  │ │ │ └ gemm backward",
        "   22.0 us  15.1 %       2  │ │ └ gemm",
        "   60.0 us  41.1 %       4  │ └ Linear_0 (Linear)  [backward 27.4 %, forward 13.7 %]",
        "   40.0 us  27.4 %       2  │   ├ AddmmBackward0 › aten::mm  [backward]",
        "   40.0 us  27.4 %       2  │   │ └ gemm backward",
        "   20.0 us  13.7 %       2  │   └ gemm",
        "   16.0 us  11.0 %       2  ├ aten::to",
        "   16.0 us  11.0 %       2  │ └ Memcpy HtoD (Pageable -> Device)",
        "   6.00 us   4.1 %       2  └ Optimizer.step#SGD.step › aten::_foreach_add_  [optimizer]",
        "   6.00 us   4.1 %       2    └ update",
    ]
    assert header(tree).plain.splitlines() == [
        "built · NVIDIA H100 80GB HBM3",
        "146.0 us of device time · 2 steps, 73.0 us each · 12 kernels, copies and sets",
        "backward 56.2 % · forward 28.8 % · other 11.0 % · optimizer 4.1 %",
    ]


def test_what_is_not_shown_is_summed_up_where_it_is_missing() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("a.py(1): f"):
        for number in range(30):
            with b.op(f"op{number}"):
                b.launch(f"kernel{number}", duration=100 if number == 0 else 5)
    tree = views.top_down(build_tree(b.build()))
    rows = tree_rows(tree, min_share=0.05)
    last = rows[-1]
    assert (last.hidden, last.value, last.nodes) == (29, 29 * 5000, ())
    shown = [row for row in rows if row.depth == 1]
    assert sum(row.value for row in shown) == tree.total("device")


@pytest.mark.parametrize("case", ["checkpoint", "double_backward", "compile"])
@pytest.mark.parametrize("view", ["top-down", "bottom-up", "modules", "frames"])
def test_lines_fit_a_hundred_columns(case: str, view: str) -> None:
    tree = views.top_down(case_tree(case), fold=view != "frames")
    tree = views.bottom_up(tree) if view == "bottom-up" else views.modules(tree) if view == "modules" else tree
    for limit in (5, 60, 500):
        rows = tree_rows(tree, limit=limit, min_share=0.0)
        assert len([row for row in rows if row.nodes]) <= limit
        text = tree_text(tree, rows, width=100).plain
        assert max(map(len, text.splitlines())) <= 100


def test_rows_of_siblings_never_exceed_the_row_above() -> None:
    tree = views.top_down(corpus_tree("03_mnist_train_stack"))
    rows = tree_rows(tree, min_share=0.002, limit=400)
    above: list[int] = []
    sums: dict[int, int] = {}
    for index, row in enumerate(rows):
        del above[row.depth :]
        if above:
            sums[above[-1]] = sums.get(above[-1], 0) + row.value
        above.append(index)
    assert all(total <= rows[index].value for index, total in sums.items())
    assert rows[0].value == tree.total("device")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_do_nothing(name: str) -> None:
    tree = views.top_down(named(name))
    outputs = [header(tree.with_info(source=name)).plain, tree_text(tree, tree_rows(tree), width=100).plain]
    for text in outputs:
        assert not any(character in text for character in "\x1b\x07\u202e\ud800\t\r")
        assert len(text) < 3000
    assert "[bold red]" not in name or "[bold red]" in outputs[1]


@pytest.mark.parametrize("by", BY)
def test_flat_tables_have_every_column_in_every_row(by: str) -> None:
    tree = views.placed(corpus_tree("03_mnist_train_stack"), "forward")
    block = flat_block(tree, flat(tree, by), by, limit=10)
    assert all(column.key in row for row in block.rows for column in block.columns)
    assert len(block.rows) + block.omitted == flat(tree, by).height
    table_renderable(block)


@pytest.mark.parametrize("metric", ["host", "wait", "delay", "idle", "bytes", "count", "launches", "calls", "htod"])
@pytest.mark.parametrize("by", BY)
def test_flat_tables_are_about_the_metric(by: str, metric: str) -> None:
    tree = views.placed(corpus_tree("03_mnist_train_stack"), "forward")
    table = flat(tree, by, metric=metric)
    totals = table[f"total_{metric}"]
    assert (np.diff(np.abs(totals)) <= 0).all()  # sorted by it
    assert int(totals.max()) > 0 or (by, metric) == ("kernel", "calls")  # kernels are not called
    block = flat_block(tree, table, by, metric, limit=10)
    first = block.columns[1]
    assert (first.key, first.label) == (f"total_{metric}", metric)
    assert block.rows[0][first.key] == totals[0]
    assert all(column.key in row for row in block.rows for column in block.columns)
    assert len({column.key for column in block.columns}) == len(block.columns)


def test_flat_tables_of_a_run_on_the_cpu_have_no_columns_of_a_device() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(3): main"), b.op("aten::mm"):
        b.wait(50)
    tree = views.placed(build_tree(b.build()), "forward")
    block = flat_block(tree, flat(tree, "function", metric="host"), "function", "host")
    assert [column.key for column in block.columns] == ["name", "total_host", "share", "host", "calls"]
    assert block.rows[0]["share"] == pytest.approx(1, abs=0.1)


def test_deep_trees_leave_room_for_names() -> None:
    b = TraceBuilder()
    with b.step():
        deep = [b.frame(f"deep{line}.py({line}): f{line}") for line in range(60)]
        for frame in deep:
            frame.__enter__()
            with b.op("aten::mm"):
                b.launch("gemm")
        for frame in reversed(deep):
            frame.__exit__(None, None, None)
    tree = views.top_down(build_tree(b.build()))
    text = tree_text(tree, tree_rows(tree, min_share=0, limit=500), width=100).plain
    assert max(map(len, text.splitlines())) <= 100
    assert "f59" in text


# -- source ----------------------------------------------------------------------------------------------------------


def test_source_is_shown_only_from_where_the_user_said(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "net.py").write_text("\n" * 19 + "def forward(self, x):\n\treturn self.fc(x)\n")
    (tmp_path / "secret.py").write_text("password = 1\n" * 30)
    tree = views.top_down(small_tree())
    rows = tree_rows(tree)
    plain = tree_text(tree, rows, width=100).plain
    assert "def forward" not in plain
    shown = tree_text(tree, rows, width=100, roots=[tmp_path / "code"]).plain
    assert "   20 def forward(self, x):" in shown
    assert "   21     return self.fc(x)" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_no_path_of_a_trace_leads_outside(tmp_path: Path) -> None:
    inside = tmp_path / "code"
    inside.mkdir()
    (inside / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.py").write_text("secret\n")
    (inside / "link.py").symlink_to(tmp_path / "secret.py")
    (inside / "data.txt").write_text("text\n")
    found = find_source("some/where/a.py", 2, [inside])
    assert found is not None
    assert found.lines == ("two", "three")
    assert find_source("a.py", 3, [inside], before=1, after=0) == (inside / "a.py", 2, ("two", "three"))
    for file in ("../secret.py", "code/../../secret.py", "link.py", str(tmp_path / "secret.py"), "data.txt", "", "/",
                 "a.py\x00", "x" * 5000 + ".py"):  # fmt: skip
        assert find_source(file, 1, [inside]) is None, file
    assert find_source("a.py", 99, [inside]) is None
    assert find_source("a.py", 0, [inside]) is None
