"""What `lanewise fix` suggests for a script, and what recording it showed, as a page and as data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lanewise.report.model import TableBlock, TableColumn
from lanewise.show.diff.diff_tables import counts_table, device_table, findings_table, waterfall_table
from lanewise.show.page.static_page import diff_html, lines_html, static_page, table_html
from lanewise.show.report.json import to_plain

if TYPE_CHECKING:
    from lanewise.compare.model import Difference
    from lanewise.edit.edit import Suggestion
    from lanewise.edit.prove import Proof

__all__ = ["Fixed", "fix_html", "fix_json"]

_ROWS = 12


class Fixed(NamedTuple):
    """What is suggested for one script: with the suggestions as a unified diff, the proof if both were recorded, and
    whether the script was changed."""

    script: Path
    suggestions: Sequence[Suggestion]
    diff: str
    proof: Proof | None
    written: bool


def fix_json(files: Sequence[Fixed]) -> str:
    """All files as data: one object for one file, a list for several."""
    data = [
        {
            "schema": "lanewise.fix/1",
            "script": str(one.script),
            "suggestions": [each._asdict() for each in one.suggestions],
            "diff": one.diff,
            "comparison": None if one.proof is None else to_plain(one.proof.comparison),
            "same_output": None if one.proof is None else one.proof.same_output,
            "predicted": None if one.proof is None or one.proof.predicted is None else to_plain(one.proof.predicted),
            "written": one.written,
        }
        for one in files
    ]
    return msgspec.json.format(msgspec.json.encode(data[0] if len(data) == 1 else data), indent=2).decode()


def fix_html(files: Sequence[Fixed]) -> str:
    """One self-contained page of one script, without a script in it. Raises MissingDependencyError where the page was not
    built."""
    (one,) = files
    suggestions, proof, script = one.suggestions, one.proof, one.script.name
    sections: list[tuple[str, list[str]]] = []
    if suggestions:
        sections.append(("", [table_html(_table(suggestions)), "<h3>As a diff</h3>", diff_html(one.diff)]))
    if proof is not None:
        for difference in proof.comparison.differences:
            sections.append(("Recorded alternately, without and with them", _difference(difference)))
        said = "I" + proof.printed[1:]
        sections.append(("Output", [lines_html([said])]))
    return static_page(_sentence(script, suggestions, proof, one.written), f"lanewise fix {script}", sections)


def _sentence(script: str, suggestions: Sequence[Suggestion], proof: Proof | None, written: bool) -> str:
    if not suggestions:
        return f"Nothing to suggest for {script}."
    count = "One change" if len(suggestions) == 1 else f"{len(suggestions)} changes"
    shown = f" {proof.comparison.differences[0].verdict}" if proof is not None else " Nothing was recorded yet."
    return f"{count} of {script} {'made' if written else 'suggested'}.{shown}"


def _table(suggestions: Sequence[Suggestion]) -> TableBlock:
    columns = [
        TableColumn("name", "text", "edit"),
        TableColumn("line", "count", "line"),
        TableColumn("what", "text", "what is there"),
        TableColumn("safe", "text", "same results up to rounding"),
        TableColumn("answers", "text", "answers"),
    ]
    rows = [
        {
            "name": one.name,
            "line": one.line,
            "what": one.what,
            "safe": "yes" if one.safe else "read the diff first",
            "answers": ", ".join(one.answers),
        }
        for one in suggestions
    ]
    return TableBlock("What is suggested", columns, rows)


def _difference(difference: Difference) -> list[str]:
    blocks = [waterfall_table(difference), counts_table(difference)]
    if difference.device:
        blocks.append(device_table(difference, _ROWS))
    if difference.findings:
        blocks.append(findings_table(difference))
    return [lines_html(difference.warnings), *(table_html(block) for block in blocks)]
