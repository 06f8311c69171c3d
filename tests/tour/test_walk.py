"""The tour, walked as its reader does: each answer is read from what the lesson's commands print, and is right.

On recordings that ship with the tests; the slow test records, proves and edits by itself.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.tour.lesson import lessons
from tests.support.corpus import REPOSITORY

DATA = REPOSITORY / "tests" / "data" / "tour"
RECORDS = ("lanewise run", "lanewise fix --apply")
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def us(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * _US[unit]


def times(pattern: str, text: str) -> list[float]:
    found = re.search(pattern.replace("TIME", r"([\d.,]+) (us|ms|s)"), text)
    assert found, (pattern, text)
    return [us(number, unit) for number, unit in zip(found.groups()[::2], found.groups()[1::2], strict=True)]


def first_recording(said: str) -> str:
    return f"{times('TIME per step without the profiler', said)[0]} us"


def cost_of_recording(said: str) -> str:
    return re.search(r"([\d.]+)x (?:to [\d.]+x )?as long", said)[1]  # type: ignore[index]


def who_waits(said: str) -> str:
    return next(part.split(".json.gz")[0] for part in said.split("$ lanewise explain ") if "\nHost-bound" in part)


def faster_gpu(said: str) -> str:
    return re.search(r"device=2x +([\d.]+ \w+) ", said)[1]  # type: ignore[index]


def from_python_to_kernel(said: str) -> str:
    operator = times(r"aten::matmul +\S+ \S+ +\S+ \S+ +TIME", said)[0]
    kernel = times(r"→ \S+ +\S+ \S+ +\S+ \S+ +TIME", said)[0]
    return str(round(operator / kernel, 1))


def first_thing_to_do(said: str) -> str:
    return re.search(r"\[([A-Z]{3}\d{3})\]", said)[1]  # type: ignore[index]


def predicted_step(said: str) -> str:
    return f"{times('predicted +TIME', said)[0]} us"


def how_often(said: str) -> str:
    count, steps = (
        int(re.search(rf"{re.escape(name)} +([\d,]+) ", said)[1].replace(",", ""))  # type: ignore[index]
        for name in ("aten::sqrt", "ProfilerStep#*")
    )
    return str(count // steps)


def where_the_step_goes(said: str) -> str:
    return re.search(r"([\d.]+ ?%) .*Optimizer\.step", said)[1]  # type: ignore[index]


def ceiling(said: str) -> str:
    return re.search(r"([\d.]+) times as fast", said)[1]  # type: ignore[index]


def fix_it(said: str) -> str:
    (line,) = re.findall(r"^\+ .*", said.split("$ lanewise fix --apply")[0], re.M)
    return re.search(r"\"(\w+)\": True", line)[1]  # type: ignore[index]


def measure_again(said: str) -> str:
    said = said.split("$ lanewise diff")[1]
    before, after = (us(number, unit) for number, unit in re.findall(r"([\d.]+) (us|ms)\s+per\s+step", said)[:2])
    return f"{before / after:.2f}"


READ: Mapping[str, Callable[[str], str]] = {
    "first-recording": first_recording,
    "cost-of-recording": cost_of_recording,
    "who-waits": who_waits,
    "faster-gpu": faster_gpu,
    "from-python-to-kernel": from_python_to_kernel,
    "first-thing-to-do": first_thing_to_do,
    "before-you-change-it": predicted_step,
    "how-often": how_often,
    "where-the-step-goes": where_the_step_goes,
    "ceiling": ceiling,
    "fix-it": fix_it,
    "measure-again": measure_again,
}
"""How a reader finds each answer in what the commands of the lesson printed."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANEWISE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["tour", "--start"]).exit_code == 0
    monkeypatch.chdir(tmp_path / "lanewise-tour")
    return tmp_path / "lanewise-tour"


def typed(command: str) -> str:
    """What a command prints, in this process."""
    words = shlex.split(command)
    assert words[0] == "lanewise"
    ran = CliRunner().invoke(cli, words[1:])
    assert ran.exit_code == 0, (command, ran.output, ran.exception)
    return f"$ {command}\n{ran.output}\n"


def tour(*words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(cli, ["tour", *words])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        return getattr(ran.exception, "exit_code", 1), str(ran.exception)
    return ran.exit_code, ran.output


def wrong(answer: str) -> str:
    return "nothing" if not re.match(r"\d", answer) else f"{3 * float(re.split('[^0-9.]', answer)[0]) + 7:.0f}"


@pytest.mark.parametrize("number", range(1, len(lessons()) + 1), ids=lambda n: lessons()[n - 1].name)
def test_a_lesson(number: int, folder: Path) -> None:
    lesson = lessons()[number - 1]
    shutil.copytree(DATA, folder / "lanewise-out")
    commands = [command for command in lesson.commands if not command.startswith(RECORDS)]
    if lesson.name == "fix-it":
        pytest.importorskip("libcst")
        assert "is as it was" in tour(str(number), "--answer", "fused")[1]  # a suggestion is not a fix
        commands.append("lanewise fix --apply --no-proof optimizer_loop.py")
    said = "".join(typed(command) for command in commands or ["lanewise explain lanewise-out/optimizer_loop.json.gz"])
    answer = READ[lesson.name](said)
    shown = tour(str(number))[1]
    assert shown.startswith(f"Lesson {number} of {len(lessons())}: {lesson.title}\n")
    assert all(f"    {command}\n" in shown for command in lesson.commands)
    code, told = tour(str(number), "--answer", wrong(answer))
    assert (code, "Not quite." in told) == (1, True), told
    code, told = tour(str(number), "--answer", answer)
    assert (code, told.startswith("Right: ")) == (0, True), (answer, told)
    assert f"✓ {number:2}  {lesson.title}" in tour()[1]


@pytest.mark.slow
def test_the_whole_tour_records_fixes_and_proves(folder: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("libcst")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY / "src")}
    for number, lesson in enumerate(lessons(), 1):
        said = ""
        for command in lesson.commands:
            words = [sys.executable, "-m", *shlex.split(command)]
            ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)
            assert ran.returncode == 0, (command, ran.stderr)
            said += f"$ {command}\n{ran.stdout}{ran.stderr}\n"
        answer = READ[lesson.name](said)
        code, told = tour(str(number), "--answer", answer)
        assert (code, told.startswith("Right: ")) == (0, True), (lesson.name, answer, told)
    assert "That was all of it" in tour()[1]
    assert "fused" in (folder / "optimizer_loop.py").read_text()
