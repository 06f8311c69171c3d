"""Tables in the terminal: what fits, and what is cut where."""

from __future__ import annotations

import io

from rich.console import Console

from lanewise.report.model import TableBlock, TableColumn
from lanewise.show.report.terminal import table_renderable


def rendered(block: TableBlock, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table_renderable(block, width=width))
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
