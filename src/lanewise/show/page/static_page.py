"""A page without a script, in the style of the report page: headings, sentences, tables, a diff. All text is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence

from lanewise.report.model import TableBlock
from lanewise.report.quantity import format_quantity
from lanewise.show.page.html import bundle
from lanewise.show.safe_text import clean

__all__ = ["diff_html", "lines_html", "static_page", "table_html"]

_LONGEST_CELL, _LONGEST_LINE, _MOST_DIFF_LINES = 2000, 2000, 2000

_OWN_STYLE = """
body{height:auto}.wide{overflow-x:auto}td.text{white-space:normal;max-width:60ch}th{position:static}
td.kept{color:var(--good);font-weight:600}td.wrong,td.failed{color:var(--bad)}
ul{margin-top:8px}pre{font:12.5px/1.5 var(--mono);background:var(--raised);border:1px solid var(--line);border-radius:5px;
padding:8px 12px;overflow-x:auto}ins{color:var(--good);text-decoration:none}del{color:var(--bad);text-decoration:none}
"""


def static_page(title: str, eyebrow: str, sections: Sequence[tuple[str, Iterable[str]]]) -> str:
    """Put a page together.

    Args:
        title: what it says in one sentence. eyebrow: what it is about, above the title.
        sections: heading ("" for none) and parts that are markup already.

    Raises:
        MissingDependencyError: this installation was made without the page, whose style it needs.
    """
    style = _with_dark(bundle().style) + _OWN_STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    parts = [
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>",
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'\">",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        '<meta name=color-scheme content="light dark">\n<meta name=referrer content=no-referrer>',
        f"<title>{html.escape(clean(title, 120))} · lanewise</title>",
        f"<style>{style}</style>\n</head>\n<body>\n<main class=overview>",
        f"<section><p class=eyebrow>{html.escape(clean(eyebrow, 200))}</p><h1>{html.escape(clean(title, 600))}</h1>"
        "</section>",
    ]
    for heading, markup in sections:
        head, body = f"<h2>{html.escape(clean(heading, 200))}</h2>" if heading else "", "".join(markup)
        # Below the title no level is left out: whoever walks from heading to heading would look for it.
        body = body if heading else body.replace("<h3>", "<h2>").replace("</h3>", "</h2>")
        parts.append(f"<section>{head}{body}</section>")
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


def table_html(block: TableBlock, *, mark: str = "") -> str:
    """A table block; cells of the column `mark` get their text as a class."""
    heads = "".join(f"<th class={_side(c.type)}>{html.escape(clean(c.label))}</th>" for c in block.columns)
    rows: list[str] = []
    for row in block.rows:
        cells: list[str] = []
        for column in block.columns:
            value = row[column.key]
            text = str(value) if column.type == "text" else format_quantity(column.type, value)
            kind = _side(column.type)
            if column.key == mark:
                kind += " " + re.sub(r"[^a-z]+", "-", str(value).lower())
            cells.append(f'<td class="{kind}">{html.escape(clean(text, _LONGEST_CELL))}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    more = f"<p class=dim>{block.omitted:,} more row{'s' * (block.omitted > 1)}</p>" if block.omitted else ""
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    title = html.escape(clean(block.title))
    return f'<h3>{title}</h3><div class=wide tabindex=0 role=region aria-label="{title}">{body}</div>{more}'


def lines_html(lines: Iterable[str]) -> str:
    """Sentences as a list; nothing if there are none."""
    items = "".join(f"<li>{html.escape(clean(line, _LONGEST_LINE))}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def diff_html(diff: str) -> str:
    """A unified diff with what was added and removed marked; what is beyond 2,000 lines is counted."""
    lines = diff.splitlines()
    marked: list[str] = []
    for line in lines[:_MOST_DIFF_LINES]:
        text = html.escape(_printable(line))
        tag = "ins" if line.startswith("+") else "del" if line.startswith("-") else ""
        marked.append(f"<{tag}>{text}</{tag}>" if tag else text)
    more = len(lines) - len(marked)
    return "<pre>" + "\n".join(marked) + "</pre>" + (f"<p class=dim>{more:,} more lines</p>" if more else "")


def _printable(line: str) -> str:
    """The line with its spaces; characters that steer the reading direction, or a terminal, made visible."""
    return "".join(c if c.isprintable() or c == "\t" else f"\\u{ord(c):04x}" for c in line[:_LONGEST_LINE])


def _side(type_: str) -> str:
    return "text" if type_ == "text" else "number"


def _with_dark(style: str) -> str:
    """The style with its dark colours for whoever prefers them: without a script nothing else chooses them."""
    style = re.sub(r"</(style)", r"<\\/\1", style, flags=re.IGNORECASE)
    dark = re.search(r""":root\[data-theme=["']?dark["']?\]\s*\{([^}]*)\}""", style)
    return style + (f"@media (prefers-color-scheme:dark){{:root{{{dark[1]}}}}}" if dark else "")
