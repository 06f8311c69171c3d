"""What `lanewise tour` says besides its lessons: the list, errors, answers in all spellings, progress."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from lanewise.cache_folder import state_folder
from lanewise.cli.main import VERBS, cli
from lanewise.errors import LanewiseError, UsageError
from lanewise.tour.lesson import Lesson, lessons
from lanewise.tour.mark import Truth, is_right, shown_truth
from lanewise.tour.practice import start
from lanewise.tour.truths import TRUTHS


@pytest.fixture(autouse=True)
def _a_new_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("LANEWISE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> str:
    ran = CliRunner().invoke(cli, ["tour", *words])
    if isinstance(ran.exception, LanewiseError):
        return str(ran.exception)
    return ran.output


def test_there_are_twelve_lessons_and_each_is_whole() -> None:
    assert len(lessons()) == 12
    assert len({lesson.name for lesson in lessons()}) == 12
    assert {lesson.truth for lesson in lessons()} == set(TRUTHS)
    for lesson in lessons():
        assert lesson.question.strip().endswith("?")
        assert lesson.commands
        assert all(shlex.split(command)[:1] == ["lanewise"] for command in lesson.commands)
        assert all(shlex.split(command)[1] in VERBS for command in lesson.commands)


def test_a_new_reader_is_told_to_begin() -> None:
    assert "begin:  lanewise tour --start" in run()
    assert "lanewise tour --start puts them into a folder" in run("1", "--answer", "2")


def test_starting_puts_files_there_and_never_over_others(tmp_path: Path) -> None:
    assert "optimizer_loop.py" in run("--start")
    program = tmp_path / "lanewise-tour" / "optimizer_loop.py"
    program.write_text("mine")
    assert "nothing was changed" in run("--start")
    assert program.read_text() == "mine"
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        start(tmp_path / "file")


def test_what_was_not_recorded_yet_is_named() -> None:
    run("--start")
    assert "run the commands of the lesson there first" in run("1", "--answer", "2 ms")


def test_progress_is_kept_wherever_one_stands_and_can_be_forgotten() -> None:
    run("--start")
    assert run("6", "--answer", "syn101").startswith("Right: SYN101.")
    assert "(SYN101)" in run()
    run("--reset")
    assert "(SYN101)" not in run()
    (state_folder() / "tour.json").write_text("no json")
    assert "begin:  lanewise tour --start" in run()


def test_an_answer_can_be_told() -> None:
    run("--start")
    told = run("6", "--reveal")
    assert told.startswith("It is SYN101.")
    assert "✓" not in run()


def test_there_is_no_other_lesson() -> None:
    assert run("13") == "there is no lesson 13; the last one is 12"
    assert "which lesson?" in run("--reveal")


def lesson_of(unit: str, within: float = 0.05, least: float = 0.0) -> Lesson:
    return Lesson("", "", "", "", [], unit, "", "", "", within, least)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "value", "answer", "right"),
    [
        ("ms", 2.14, "2.14", True),
        ("ms", 2.14, "2140 us", True),
        ("ms", 2.14, "2,140us", True),
        ("ms", 2.14, "2140", False),
        ("us", 2140.0, "2.1 ms", True),
        ("ms", 1420.0, "1.42 s", True),
        ("us", 1.42e6, "1.42 seconds", True),
        ("us", 2140.0, "2,140", True),
        ("us", 2.14, "2,14 µs", True),
        ("x", 1.83, "1.8x", True),
        ("x", 1.83, "1.8 times", True),
        ("x", 1.83, "2.0", False),
        ("%", 60.7, "61 %", True),
        ("calls", 40.0, "40", True),
    ],
)
def test_numbers(unit: str, value: float, answer: str, right: bool) -> None:
    assert is_right(answer, Truth(value), lesson_of(unit)) is right


def test_how_far_off_a_number_may_be() -> None:
    assert is_right("0.4", Truth(0.0), lesson_of("us", within=0.0, least=0.5))
    assert not is_right("0.6", Truth(0.0), lesson_of("us", within=0.0, least=0.5))
    assert is_right("105", Truth(100.0), lesson_of("us"))
    assert not is_right("106", Truth(100.0), lesson_of("us"))
    assert is_right("3", Truth(2.0, low=1.8, high=3.0), lesson_of("x"))


@pytest.mark.parametrize("answer", ["", "fast", "3 apples", "1.2.3", "2 ms"])
def test_what_is_no_answer_is_said(answer: str) -> None:
    with pytest.raises(UsageError):
        is_right(answer, Truth(3.0), lesson_of("x"))


def test_words() -> None:
    truth = Truth(words=("matmul-small", "small"))
    assert is_right(" Small ", truth, lesson_of("word"))
    assert is_right("matmul-small.json.gz", truth, lesson_of("word"))
    assert not is_right("large", truth, lesson_of("word"))
    assert shown_truth(truth, lesson_of("word")) == "matmul-small"


def test_numbers_are_told_with_their_unit() -> None:
    assert shown_truth(Truth(-0.0), lesson_of("us")) == "0.0 us"
    assert shown_truth(Truth(1.834), lesson_of("x")) == "1.83x"
    assert shown_truth(Truth(40.0), lesson_of("calls")) == "40 calls"
