"""Takes the pictures of docs/page.md and the README: real screenshots of the page of a bundled or given trace.

python scripts/page_pictures.py [TRACE]      needs Chromium and playwright
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from lanewise.bundled import bundled_path
from lanewise.compare.diff import diff_explained
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.show.diff.diff_page import Base, diff_html
from lanewise.show.page.html import report_html
from lanewise.trace.reader import read

OUT = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> int:
    """Write the pictures."""
    trace = read(sys.argv[1] if len(sys.argv) > 1 else str(bundled_path("mnist")), cache=False)
    facts = facts_of(trace)
    report = report_of(facts)
    small, large = (facts_of(read(str(bundled_path(f"matmul-{size}")), cache=False)) for size in ("small", "large"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_path, diff_path = Path(folder) / "report.html", Path(folder) / "diff.html"
        page_path.write_text(report_html(facts, report), encoding="utf-8")
        before, after = report_of(small), report_of(large)
        comparison = diff_explained([("size 64", small, before), ("size 4096", large, after)])
        diff_path.write_text(diff_html(large, after, Base(small, before, comparison)), encoding="utf-8")
        program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])

        def picture(
            name: str, path: Path, hash_: str, *, scheme: str = "light", keys: str = "", click: str = ""
        ) -> None:
            page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
            page.goto(path.as_uri() + hash_)
            page.wait_for_timeout(900)
            if click:
                page.locator(click).first.click()
            for key in keys.split():
                page.keyboard.press(key)
                page.wait_for_timeout(120)
            page.wait_for_timeout(400)
            page.screenshot(path=OUT / f"{name}.png")
            page.close()

        picture("page-overview", page_path, "")
        picture("page-timeline", page_path, "#view=timeline&search=gemm", keys="")
        picture("page-timeline-dark", page_path, "#finding=LAU101", scheme="dark")
        picture("page-calls", page_path, "#view=calls")
        picture("page-compare", diff_path, "#view=compare")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
