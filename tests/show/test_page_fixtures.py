"""What the page's own tests read as Python's answers still are Python's answers."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from lanewise.report.quantity import format_quantity
from lanewise.show.page.packing import unpack

WEB = Path(__file__).resolve().parents[2] / "web" / "test"

pytestmark = pytest.mark.skipif(not WEB.exists(), reason="a source archive has no web/")


def test_quantities_read_as_the_page_is_tested_to_write_them() -> None:
    examples = json.loads((WEB / "quantities.json").read_text())
    assert len(examples) > 30
    for type_, value, text in examples:
        assert format_quantity(type_, value) == text


def test_the_packed_example_holds_the_columns_beside_it() -> None:
    example = json.loads((WEB / "packed.json").read_text())
    columns, extra = unpack(base64.b64decode(example["base64"]))
    assert {name: column.tolist() for name, column in columns.items()} == example["columns"]
    assert extra == example["extra"]
