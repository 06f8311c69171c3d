"""`--over`, and how a value reaches the program."""

from __future__ import annotations

import pytest

from lanewise.capture.script import Program
from lanewise.errors import UsageError
from lanewise.sweep.over import parse_over


def words(over: str, *arguments: str, value: str = "4") -> tuple[str, ...]:
    program, environment = parse_over(over).program_at(Program(script="train.py", arguments=arguments), value)
    assert environment == {}
    return program.arguments


def test_a_value_follows_its_name_at_the_end() -> None:
    assert words("batch=1,4", "--lr", "1") == ("--lr", "1", "--batch", "4")


def test_it_takes_the_place_of_one_that_is_there() -> None:
    assert words("batch=1,4", "--batch", "9", "--lr", "1") == ("--lr", "1", "--batch", "4")
    assert words("batch=1,4", "--batch=9") == ("--batch", "4")


def test_a_placeholder_stands_for_it() -> None:
    assert words("batch=1,4", "data.batch={batch}", "x{batch}") == ("data.batch=4", "x4")


def test_a_variable_of_the_environment() -> None:
    over = parse_over("env:BATCH=1,4")
    assert over.program_at(Program(script="a.py", arguments=("b",)), "4") == (
        Program(script="a.py", arguments=("b",)),
        {"BATCH": "4"},
    )
    assert over.sizes == [1, 4]


def test_numbers_ascend_and_words_stay() -> None:
    assert parse_over("batch=8,1,2,2").values == ("1", "2", "8")
    assert parse_over("dtype=fp32,bf16").values == ("fp32", "bf16")
    assert parse_over("dtype=fp32,bf16").numbers is None


@pytest.mark.parametrize(
    ("text", "sizes"), [("batch_size=1,2", [1, 2]), ("bs=1,2", [1, 2]), ("length=1,2", None), ("batch=0.5,1", None)]
)
def test_only_a_batch_is_predicted(text: str, sizes: list[int] | None) -> None:
    assert parse_over(text).sizes == sizes


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=1", "=1,2", "a b=1,2"])
def test_what_cannot_be_meant_is_said_in_a_line(text: str) -> None:
    with pytest.raises(UsageError, match="say a name and at least two values"):
        parse_over(text)
