"""The page: one HTML file that works from disk, with no other file and no network.

Everything from a trace is data: the Report as JSON in a block that no browser executes, the rest packed. The policy in
the head allows exactly one script and one style sheet, by their hashes, and no way to turn text into markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from lanewise.errors import MissingDependencyError
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.show.page.before_after import before_after_block
from lanewise.show.page.payload import overview_block, tables_block, timeline_block, tree_block
from lanewise.show.page.timeline import MAX_SLICES
from lanewise.show.report.json import to_plain
from lanewise.show.report.short_markdown import short_markdown
from lanewise.show.safe_text import clean
from lanewise.tree.inside_kernels import Inside

__all__ = ["Bundle", "bundle", "document", "json_for_html", "page", "report_blocks", "report_html"]


class Bundle(NamedTuple):
    """The built page: one script, one style sheet."""

    script: str
    style: str


def bundle() -> Bundle:
    """The page's script and style, as the build put them into the package.

    Raises:
        MissingDependencyError: this installation has none, because it was made where the page could not be built.
    """
    folder = files("lanewise.show.page") / "built"
    try:
        return Bundle((folder / "page.js").read_text("utf-8"), (folder / "page.css").read_text("utf-8"))
    except FileNotFoundError:
        raise MissingDependencyError(
            "this installation was made without the page (no Node.js was at hand); install a wheel of lanewise, or "
            "install again with Node.js 20 or newer and npm on the PATH"
        ) from None


def report_html(
    facts: Facts,
    report: Report,
    *,
    max_slices: int = MAX_SLICES,
    sources: Path | None = None,
    insides: Mapping[str, Inside] | None = None,
) -> str:
    """One self-contained page about a trace.

    Args:
        facts: the measures.
        report: the report on them.
        max_slices: above this number the timeline leaves out the shortest slices, and says so.
        sources: folder of the program's sources, to show lines of them beside the calls; None: the page holds none.
        insides: what was sampled inside of kernels, by their names.
    """
    blocks = report_blocks(facts, report, max_slices=max_slices, sources=sources, insides=insides)
    return page(report, overview_block(facts, report), blocks)


def report_blocks(
    facts: Facts,
    report: Report,
    *,
    max_slices: int = MAX_SLICES,
    sources: Path | None = None,
    insides: Mapping[str, Inside] | None = None,
) -> dict[str, bytes]:
    """The packed blocks of one trace, in the order in which the page unpacks them."""
    return {
        "timeline": timeline_block(facts, report, max_slices=max_slices),
        "tables": tables_block(facts),
        "tree": tree_block(facts, sources=sources, insides=insides),
        "predicted": before_after_block(facts, report),
    }


def page(
    report: Report, overview: dict[str, Any], blocks: dict[str, bytes], *, server: str = "", compared: bool = False
) -> str:
    """Put a page together.

    Args:
        report: the report.
        overview: small facts beside it.
        blocks: packed blocks by name.
        server: path prefix of a local server that has what is not in the page; "" for none.
        compared: whether the blocks hold a comparison with another run.
    """
    plain = to_plain(report)
    # A page is sent to others: the folders of this machine stay here.
    plain["source"]["path"] = re.split(r"[/\\]", report.source.path)[-1]
    named = structs.replace(report, source=structs.replace(report.source, path=plain["source"]["path"]))
    data = {
        "report": plain,
        "overview": overview,
        "server": server,
        "compared": compared,
        "summary": short_markdown(named),
    }
    name = plain["source"]["path"]
    title = f"{clean(name, 60)}: {clean(report.verdict, 100)}" if name else report.verdict
    return document(title or "a trace", report.verdict, data, blocks, connects=bool(server))


def document(
    title: str, verdict: str, data: dict[str, Any], blocks: dict[str, bytes], *, connects: bool = False
) -> str:
    """The document around what a page shows.

    Args:
        title, verdict: what is said without a script.
        data: what the script shows at once. blocks: packed blocks by name.
        connects: whether the page may ask the server that it came from.
    """
    built = bundle()
    script, style = _no_end_tag(built.script, "script"), _no_end_tag(built.style, "style")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data: blob:",
            f"connect-src {chr(39)}self{chr(39)}" if connects else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    said, name = html.escape(clean(verdict, 700)), html.escape(clean(title, 120))
    parts = [
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>",
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        '<meta name=color-scheme content="light dark">\n<meta name=referrer content=no-referrer>',
        f"<title>{name} · lanewise</title>",
        f"<style>{style}</style>\n</head>\n<body>",
        f"<div id=app><noscript><p>{said}</p><p>The page needs JavaScript.</p></noscript></div>",
        f'<script type="application/json" id="data">{json_for_html(data)}</script>',
        f"<script>{script}</script>",
        *(
            f'<script type="application/octet-stream" id="block-{name}">{base64.b64encode(body).decode()}</script>'
            for name, body in blocks.items()
        ),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def json_for_html(value: Any) -> str:
    """JSON that cannot end the element it stands in, nor a line of a script: `<`, `>`, `&`, U+2028, U+2029 escaped."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _no_end_tag(text: str, tag: str) -> str:
    return re.sub(rf"</({tag})", r"<\\/\1", text, flags=re.IGNORECASE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
