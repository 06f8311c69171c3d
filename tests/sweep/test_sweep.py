"""`lanewise sweep`: a program at several batch sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lanewise.capture.script import Program
from lanewise.errors import InputError
from lanewise.measure.facts import Facts
from lanewise.report.swept import SWEEP_SCHEMA, Crossover, Sweep, SweepPoint
from lanewise.show.report.json import sweep_json
from lanewise.show.report.sweep_text import render_sweep
from lanewise.sweep import sweep as room
from lanewise.sweep.over import parse_over
from lanewise.sweep.predicted import Predicted, slower
from lanewise.sweep.recorded import Ended
from lanewise.sweep.recorded_step import first_step, same_shapes
from lanewise.sweep.sweep import sweep_of
from lanewise.trace.model import Trace
from tests.support.builder import TraceBuilder

PROGRAM = Program(script="train.py")


def recording(batch: int, step_us: float, yardstick_us: float = 0.0) -> Trace:
    said = {"schema": 1, "lanewise": "1", "unprofiled_step_us": step_us, "yardstick_us": yardstick_us}
    b = TraceBuilder(metadata={"lanewise": said})
    for _ in range(4):
        with b.step():
            with b.op("aten::mm", dims=[[batch, 64], [64, 64]], types=["float", "float"]):
                b.wait(50)
            with (
                b.op("torch::autograd::AccumulateGrad", dims=[[64, 64]], types=["float"]),
                b.op("aten::detach", dims=[[64, 64]], types=["float"]),
            ):
                b.wait(5)
            with b.op("Optimizer.step#SGD.step"), b.op("aten::add_", dims=[[64, 64]], types=["float"]):
                b.wait(10)
    return b.build()


def swept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    fails: str = "",
    constant: bool = False,
    slower: dict[str, float] | None = None,
) -> Sweep:
    """A sweep whose recordings are made here: 400 us and 10 for each item; predicted 5 % too long. `slower`: by value, by
    how much the host was, where it is known."""
    steps = {"1": 410.0, "16": 560.0, "64": 1040.0, "256": 2960.0}

    def record(program: Program, over: object, value: str, out: Path, options: object) -> Ended:
        return Ended(None, "CUDA out of memory") if value == fails else Ended(tmp_path / value)

    monkeypatch.setattr(room, "record", record)

    def read(path: Path) -> Trace:
        by = slower.get(path.name, 1.0) if slower else 1.0
        yardstick = 100 * by if slower else 0.0
        return recording(1 if constant else int(path.name), by * steps[path.name], yardstick)

    monkeypatch.setattr(room, "read", read)
    monkeypatch.setattr(
        room,
        "predicted_sizes",
        lambda facts, sizes: ([Predicted(1.05 * steps[str(size)], "", None) for size in sizes], 1.0),
    )
    return sweep_of(PROGRAM, parse_over("batch=1,16,64,256"), tmp_path)


def shown(sweep: Sweep) -> str:
    console = Console(width=100, record=True, file=StringIO())
    console.print(render_sweep(sweep))
    return console.export_text()


def test_both_crossovers_are_told_and_shown_on_one_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = swept(monkeypatch, tmp_path)
    assert found.measured is not None
    assert found.predicted is not None
    assert found.measured.at == pytest.approx(40, rel=0.05)
    assert [point.regime for point in found.points] == ["fixed costs", "fixed costs", "the work", "the work"]
    text = shown(found)
    assert "on the work of the step takes" in " ".join(text.split())
    assert "Predicted from the recording at batch=1 alone: batch=" in text
    assert len(text.splitlines()) <= 25
    data = json.loads(sweep_json(found))
    assert data["schema"] == SWEEP_SCHEMA
    assert data["points"][2]["step_us"] == 1040.0


def test_a_host_that_others_slow_down_for_some_values_changes_no_crossover(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = swept(monkeypatch, tmp_path, slower={"16": 1.4, "64": 1.7, "256": 0.8})
    assert found.measured is not None
    assert found.measured.at == pytest.approx(40, rel=0.05)
    assert [point.slower for point in found.points] == [1.0, 1.4, 1.7, 0.8]
    assert found.points[1].step_us == pytest.approx(1.4 * 560)
    assert "The host was 0.8 to 1.7 times as slow as for batch=1" in " ".join(shown(found).split())
    assert "times as slow" not in shown(swept(monkeypatch, tmp_path, slower={"16": 1.1}))


def test_growth_is_said_at_the_speed_of_the_recording() -> None:
    assert slower(Facts(recording(1, 400.0, 150.0)), 100.0) == pytest.approx(1.5)
    assert slower(Facts(recording(1, 400.0)), 100.0) == 1.0
    assert slower(Facts(recording(1, 400.0, 150.0)), 0.0) == 1.0


def test_a_value_that_fails_is_named_and_the_others_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = swept(monkeypatch, tmp_path, fails="256")
    assert found.points[-1].failed == "CUDA out of memory"
    assert found.points[-1].predicted_us == pytest.approx(1.05 * 2960)
    assert found.measured is not None
    assert found.measured.at == pytest.approx(40, rel=0.05)
    assert "batch=256: nothing was recorded: CUDA out of memory" in shown(found)


def test_a_first_value_that_fails_is_an_error_that_says_how_it_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"nothing was recorded with --batch 1: CUDA out of memory; \{batch\} in its"):
        swept(monkeypatch, tmp_path, fails="1")


def test_a_value_that_does_not_reach_the_program_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does the same with --batch 1 and --batch 256"):
        swept(monkeypatch, tmp_path, constant=True)


def test_of_a_step_what_is_done_for_parameters_is_not_timed() -> None:
    facts = Facts(recording(4, 400.0))
    step = first_step(facts)
    timed = [call.name for place, call in enumerate(step.calls) if place not in step.skip]
    assert timed == ["aten::mm"]
    assert step.parameters == [(64, 64)]
    assert same_shapes(facts, Facts(recording(4, 500.0)))
    assert not same_shapes(facts, Facts(recording(8, 400.0)))


@pytest.mark.parametrize(
    ("crossover", "says"),
    [
        (Crossover("none", 400.0), "hardly anything grows with batch: a larger one is free here"),
        (Crossover("below", 1.0), "With every value here the work takes most of the step"),
        (Crossover("beyond", 400.0, 900.0), "the change lies beyond them, probably at about batch=900"),
    ],
)
def test_outside_of_the_values_it_is_said_so(crossover: Crossover, says: str) -> None:
    points = [SweepPoint("1", 400.0, "fixed costs"), SweepPoint("2", 410.0, "fixed costs", 412.0, "fixed costs")]
    sweep = Sweep(SWEEP_SCHEMA, "1", "train.py", "batch", "cpu", points, crossover, crossover, 0.5)
    text = " ".join(shown(sweep).split())
    assert says in text
    assert "Only 50 % of the operators' time is known of how it grows" in text


SCRIPT = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
batch = parser.parse_args().batch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
optimizer, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(batch, 64)
for _ in range(120):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_real_program_is_swept_and_predicted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["sweep", "train.py", "--over", "batch=1,32,512", "--quick", "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "lanewise", *words], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    data = json.loads(ended.stdout)
    assert data["timed_share"] > 0.9
    assert (tmp_path / data["points"][0]["trace"]).exists()
    measured, predicted = data["measured"]["at"], data["predicted"]["at"]
    assert 1 < measured < 512
    # Three values on a machine that does other things, too: the benchmark says how well.
    assert predicted / 3 < measured < predicted * 3


def test_a_program_that_does_not_take_the_value_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    words = ["sweep", "train.py", "--over", "batch=1,2"]
    ended = subprocess.run(
        [sys.executable, "-m", "lanewise", *words], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert ended.returncode == 3
    assert ended.stderr.decode().count("\n") == 1
    assert "unrecognized arguments: --batch 1" in ended.stderr.decode()
