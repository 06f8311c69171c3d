"""Lighthouse's accessibility score of every view of the page, on a phone and on a desk.

    npm install --prefix FOLDER lighthouse@13
    python -m benchmarks.web.lighthouse FOLDER [-o benchmarks/web/lighthouse.json]

Lighthouse is no dependency of the page: 85 packages, 176 MB. What it measures is axe's rules and a few more; axe itself
runs in tests/web/test_accessible.py. Needs Node.js and Chromium; a run takes 5 to 15 s for each view.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanewise.bundled import bundled_path
from lanewise.compare.diff import diff_explained
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.show.diff.diff_page import Base, diff_html
from lanewise.show.page.html import report_html
from lanewise.trace.reader import read

TABLES = ("kernels", "operators", "api", "copies", "overlap", "critical-path", "memory")
VIEWS = ("overview", "timeline", "calls", *(f"tables&table={name}" for name in TABLES), "predicted")
FLAGS = "--headless=new --no-sandbox --disable-gpu"
_LIMIT_S = 180


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Lighthouse is installed")
    parser.add_argument("-o", "--output", type=Path, default=None)
    parser.add_argument("--only", default="", help="a part of the name of the views to look at")
    options = parser.parse_args()
    command = options.folder / "node_modules" / ".bin" / "lighthouse"
    if not command.exists():
        parser.error(f"no Lighthouse in {options.folder}: npm install --prefix {options.folder} lighthouse@13")
    version = json.loads((options.folder / "node_modules" / "lighthouse" / "package.json").read_text())["version"]
    views: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as address:
        for name, page in _pages(Path(folder)).items():
            for form in ("mobile", "desktop"):
                key = f"{name}, {form}"
                if options.only in key:
                    views[key] = _score(command, f"{address}/{page}", form, Path(folder) / "out.json")
                    sys.stderr.write(f"{key}: {views[key]}\n")
    result = {
        "schema": "lanewise.benchmark.lighthouse/1",
        "versions": {"lighthouse": version},
        "lowest": min(view["score"] for view in views.values()),
        "views": views,
    }
    text = json.dumps(result, indent=2) + "\n"
    if options.output:
        options.output.write_text(text)
    sys.stdout.write(text)
    return 0


def _pages(folder: Path) -> dict[str, str]:
    """Writes a page about a trace and one about two; the address of each of their views, by name."""
    after, before = (facts_of(read(str(bundled_path(name)), cache=False)) for name in ("mnist", "item-loop"))
    report, old = report_of(after), report_of(before)
    (folder / "trace.html").write_text(report_html(after, report), encoding="utf-8")
    base = Base(before, old, diff_explained([("before", before, old), ("after", after, report)]))
    (folder / "two.html").write_text(diff_html(after, report, base), encoding="utf-8")
    return {**{view: f"trace.html#view={view}" for view in VIEWS}, "compare": "two.html#view=compare"}


def _score(command: Path, address: str, form: str, out: Path) -> dict[str, Any]:
    environment = os.environ | {"CHROME_PATH": shutil.which("chromium") or ""}
    asked = [
        str(command),
        address,
        "--only-categories=accessibility",
        "--output=json",
        f"--output-path={out}",
        "--quiet",
    ]
    preset = ["--preset=desktop"] if form == "desktop" else []
    subprocess.run([*asked, *preset, f"--chrome-flags={FLAGS}"], env=environment, check=True, timeout=_LIMIT_S)
    found = json.loads(out.read_text())
    broken = sorted(
        name for name, audit in found["audits"].items() if audit["score"] is not None and audit["score"] < 1
    )
    return {"score": round(found["categories"]["accessibility"]["score"] * 100), "broken": broken}


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Lighthouse opens no files: the folder on a local port."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
