"""Every link between documents leads to a file that is there, and to a heading in it; no page needs another machine."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY

DOCUMENTS = [*REPOSITORY.glob("*.md"), *sorted((REPOSITORY / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading)).strip().lower() for heading in headings)
    return frozenset(word.replace(" ", "-") for word in words)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(CODE.sub("", document.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), f"{document.name} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{document.name} links to {target}; {sorted(anchors(path))}"


def test_every_page_can_be_reached() -> None:
    """From the README, by links alone."""
    seen, waiting = set[Path](), [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = (target.partition("#")[0] for target in LINK.findall(page.read_text(encoding="utf-8")))
        paths = [(page.parent / target).resolve() for target in targets if target and "://" not in target]
        waiting += [path for path in paths if path.suffix == ".md" and path.exists()]
        waiting += [path / "index.md" for path in paths if (path / "index.md").exists()]
    pages = set((REPOSITORY / "docs").rglob("*.md"))
    assert {str(path.relative_to(REPOSITORY)) for path in pages - seen} == set()
