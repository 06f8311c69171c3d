"""The site of docs/, without building it: pages and navigation agree, and the reference names all that is public."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.corpus import REPOSITORY

yaml = pytest.importorskip("yaml")
DOCS = REPOSITORY / "docs"


def pages(entry: Any) -> list[str]:
    """The pages of a navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    in_nav = pages(yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"])
    assert len(in_nav) == len(set(in_nav))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    rules = {page for page in there if re.fullmatch(r"diagnoses/[A-Z]{3}\d{3}\.md", page)}
    assert set(in_nav) == there - rules


def test_the_reference_has_every_public_name() -> None:
    stub = (REPOSITORY / "src" / "lanewise" / "__init__.pyi").read_text()
    public = {f"{module}.{name}" for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)}
    reference = (DOCS / "reference" / "python.md").read_text()
    documented = set(re.findall(r"^::: (\S+)$", reference, re.MULTILINE))
    assert documented == public - {"lanewise.notebook.load_ipython_extension"}  # notebooks call it


def test_the_site_needs_no_other_machine() -> None:
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    assert site["theme"]["font"] is False
    assert "extra_javascript" not in site
    assert "extra_css" not in site
