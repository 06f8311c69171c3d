"""Tables in the terminal: what fits, and what gives way where it does not."""

from __future__ import annotations

import io
from functools import cache

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from lanewise.cli.main import cli
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import format_quantity
from lanewise.show.report.chain_table import chain_table
from lanewise.show.report.tables import MEASURES, PROFILER_TABLES, cut_tables, measure_section, profiler_tables
from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.tree.tree_terminal import flat_block
from lanewise.tree.build import build_tree
from lanewise.tree.flat import flat
from tests.support.corpus import DATA, facts_of, trace_path

CORPUS = sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz") if path.stem != "truth.json")


def rendered(block: TableBlock, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table_renderable(block))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_long_names_lose_their_middle_and_are_not_broken_in_two() -> None:
    name = "sm90_xmma_fprop_implicit_gemm_" + "f16f16_" * 6 + "nhwckrsc_nhwc_stage3"
    block = TableBlock(
        "Kernels",
        [TableColumn("kernel", "text", "kernel"), *[TableColumn(f"n{i}", "time", f"column {i}") for i in range(4)]],
        [{"kernel": f"  → {name}"[:64], **{f"n{i}": 123_456 for i in range(4)}}],
    )
    lines = rendered(block, width=100)
    (row,) = [line for line in lines if "→" in line]
    assert "→ sm90_xmma" in row
    assert "…" in row
    assert row.count("123.5 us") == 4


@cache
def blocks_of(name: str) -> list[TableBlock]:
    """Every table that a verb prints of a trace."""
    facts = facts_of(name)
    tree = build_tree(facts.trace)
    blocks = [*profiler_tables(facts, PROFILER_TABLES, limit=20).values()]
    for measure in MEASURES:
        blocks += cut_tables(measure_section(facts, measure).tables, limit=20).values()
    return [
        *blocks,
        chain_table(facts, facts.chain(None), 50),
        *[flat_block(tree, flat(tree, by), by, limit=20) for by in ("operator", "module", "function")],
    ]


@pytest.mark.parametrize("width", [40, 80, 160, *(pytest.param(width, marks=pytest.mark.slow) for width in (60, 100))])
@pytest.mark.parametrize("name", CORPUS)
def test_numbers_stay_names_give_way_and_what_is_left_out_is_marked(name: str, width: int) -> None:
    for block in blocks_of(name):
        numbers = [column for column in block.columns if column.type != "text"]
        cells = {c.key: [format_quantity(c.type, row[c.key]) for row in block.rows] for c in numbers}
        lines = rendered(block, width)
        assert max(map(cell_len, lines)) <= width
        text = " ".join(" ".join(lines).split())
        dropped = text.partition("columns that did not fit: ")[2].split(", ")
        assert "…" in text or dropped == [""]
        for column in numbers:
            if column.label not in dropped:
                assert all(one in text for one in cells[column.key]), (block.title, column.label)
        # Numbers are left out only where they do not fit beside a short name.
        need = [max([len(one) for one in cells[c.key]] + [len(w) for w in c.label.split()]) for c in numbers]
        if block.columns[0].type == "text" and 16 + sum(need) + 3 * len(need) + 4 <= width:
            assert not {c.label for c in numbers} & set(dropped), block.title


@pytest.mark.parametrize(
    "columns", ["60", "100", "", *(pytest.param(width, marks=pytest.mark.slow) for width in ("80", "160"))]
)
@pytest.mark.parametrize(
    "words",
    [["explain", "-v"], ["table"], ["table", "all"], ["chain"], ["tree"], ["tree", "--by", "operator"], ["diff"]],
    ids=" ".join,
)
def test_every_verb_keeps_to_the_width_that_it_is_given(
    words: list[str], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    traces = [str(trace_path(name)) for name in ("03_mnist_train_stack", "07_bad_item_loop")]
    given = traces if words == ["diff"] else traces[:1]
    more = ["--anyway"] if words == ["diff"] else []
    done = CliRunner().invoke(cli, [words[0], *given, *words[1:], *more], catch_exceptions=False)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(cell_len, lines)) <= int(columns or 100)
    if not columns:
        assert max(map(cell_len, lines)) > 90  # a pipe is no narrow terminal
