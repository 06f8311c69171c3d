"""The gate on real recordings of this machine's CPU: it fails on a planted regression of 10 % and passes without it.

The step waits for most of its time, as one that waits for its data does, so that the test tells the same on a busy
machine; `benchmarks/compare/gate.py` does the same with a step that computes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("torch") is None, reason="records a program")]

WAIT_S = 0.02
ROUNDS, STEPS = 6, 8


def record_step(folder: Path, name: str, seconds: float) -> None:
    """One recording of STEPS steps."""
    import torch

    from lanewise.capture.recorder import record

    weight, batch = torch.randn(16, 16), torch.randn(4, 16)
    with record(out=folder, name=name, whole=False, quick=True, active=STEPS) as recorder:
        for _ in range(STEPS + 8):
            torch.relu(batch @ weight)
            time.sleep(seconds)
            recorder.step()
    assert recorder.path is not None, recorder.problem


def lanewise(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lanewise", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms, recorded in turns: what every CI job should do with the merge base and the change."""
    folder = tmp_path_factory.mktemp("gate")
    for round_ in range(ROUNDS):
        for arm, factor in (("base", 1.0), ("same", 1.0), ("slower", 1.10)):
            record_step(folder / arm, f"{arm}{round_}", WAIT_S * factor)
    (folder / "lanewise.toml").write_text('[budget]\nstep_time = { max_increase = "4 %" }\n')
    assert lanewise("baseline", "save", folder / "base", "-o", "base.json", cwd=folder).returncode == 0
    return folder


def test_it_passes_without_a_regression(recordings: Path) -> None:
    result = lanewise("check", "same", "--baseline", "base.json", cwd=recordings)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Within budget in 6 runs" in result.stdout


def test_it_fails_on_ten_percent(recordings: Path) -> None:
    result = lanewise("check", "slower", "--baseline", "base.json", cwd=recordings)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Over budget in 6 runs: step_time" in result.stdout


def test_the_difference_names_the_step_and_nothing_that_runs(recordings: Path) -> None:
    result = lanewise("diff", "base", "slower", cwd=recordings)
    text = " ".join(result.stdout.split())
    assert "changed nothing among the operators" in text
    assert "Step time: slower" in text
