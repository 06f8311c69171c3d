"""torch warns of what it deprecates; none of these warnings is because of us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

PROGRAM = """
import warnings, torch
warnings.simplefilter("error")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""
WAYS: list[Any] = [
    pytest.param(["run", "--quick"], marks=pytest.mark.slow, id="run --quick"),
    ["run", "--quick", "--stacks", "--memory", "--sync-events", "--all-threads"],
    pytest.param(["run", "--whole", "--stacks"], marks=pytest.mark.slow, id="run --whole --stacks"),
    ["watch", "--way", "windows"],
    ["watch", "--every", "2"],
]


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_every_way_of_recording_under_warnings_as_errors(way: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    line = [sys.executable, "-W", "error", "-m", "lanewise", *way, "program.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert list(tmp_path.glob("lanewise-out/*.json.gz")) or list(tmp_path.glob("*.lw")), done.stderr
