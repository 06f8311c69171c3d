"""Draws the README's picture: what `lanewise explain` prints for a bundled trace, as an SVG. Needs no network."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from lanewise.bundled import bundled_path
from lanewise.diagnose.explain import explain
from lanewise.show.terminal import print_report
from lanewise.trace.reader import read

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "explain.svg"


def main() -> int:
    name, lines = (sys.argv[1] if len(sys.argv) > 1 else "mnist"), 46
    console = Console(
        record=True, width=112, file=io.StringIO(), force_terminal=True, color_system="truecolor", markup=False
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copy(bundled_path(name), "trace.json.gz")
        report = explain(read("trace.json.gz", cache=False))
    capture = Console(
        record=True, width=112, file=io.StringIO(), force_terminal=True, color_system="truecolor", markup=False
    )
    print_report(report, capture)
    from rich.text import Text

    for line in Text.from_ansi(capture.export_text(styles=True)).split("\n")[:lines]:
        console.print(line)
    svg = console.export_svg(title="lanewise explain trace.json.gz", theme=MONOKAI)
    # The stylesheet of rich's template loads a font from a server; any monospace font will do.
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
