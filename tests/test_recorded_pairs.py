"""The small recordings of pairs: what the reader makes of them is what was counted when they were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lanewise

FOLDER = Path(__file__).parent / "data" / "h200"
RECORDINGS: list[dict[str, Any]] = [
    row for pair in json.loads((FOLDER / "truth.json").read_text())["pairs"] for row in pair["recordings"]
]


@pytest.mark.parametrize("row", RECORDINGS, ids=lambda row: row["name"])
def test_steps_and_device_work_are_those_that_were_counted(row: dict[str, Any]):
    trace = lanewise.read(FOLDER / row["file"])
    steps = len(trace.steps)
    assert steps == row["active"]
    work = trace.device_work
    assert len(work) / steps == pytest.approx(row["recorded"]["device_operations"], abs=0.01)
    busy_us = (trace.end[work] - trace.start[work]).sum() / 1e3 / steps
    assert busy_us == pytest.approx(row["recorded"]["device_busy_us"], rel=1e-3)


def test_every_recording_is_listed():
    assert {row["file"] for row in RECORDINGS} == {path.name for path in FOLDER.glob("*.json.gz")}
