"""Measures in a terminal: what each says, then its tables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from lanewise.diagnose.sections.section import Section
from lanewise.report.model import TableBlock
from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.safe_text import clean

__all__ = ["print_sections"]


def print_sections(screen: Console, sections: Mapping[str, Section], blocks: Mapping[str, TableBlock]) -> None:
    """Print tables, each measure's statements before its first one; measures without a table come first."""
    section_of = {key: name for name, section in sections.items() for key in section.tables}
    silent = [name for name in sections if not any(section_of.get(key) == name for key in blocks)]
    said: set[str] = set()

    def say(name: str) -> None:
        for statement in sections[name].statements:
            screen.print(Text(clean(str(statement), 600)))
        said.add(name)

    for name in silent:
        say(name)
    for key, block in blocks.items():
        name = section_of.get(key, "")
        if name and name not in said:
            say(name)
        screen.print(table_renderable(block), end="\n\n")
