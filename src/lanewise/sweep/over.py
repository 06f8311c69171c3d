"""`--over batch=1,2,4`: the values of a sweep, and how each reaches the program."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from lanewise.capture.script import Program
from lanewise.errors import UsageError

__all__ = ["Over", "parse_over"]

_ENVIRONMENT = "env:"
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Over:
    """What is swept.

    Attributes:
        name: of the value: an argument `--name`, or an environment variable.
        values: as they are given to the program, in their order; ascending where all are numbers.
        environment: whether the program reads it from its environment.
    """

    name: str
    values: tuple[str, ...]
    environment: bool

    @property
    def numbers(self) -> list[float] | None:
        """The values as numbers; None where one is none."""
        try:
            return [float(value) for value in self.values]
        except ValueError:
            return None

    @property
    def sizes(self) -> list[int] | None:
        """The values as sizes of a batch; None where they are not all whole numbers above 0, or the name speaks of
        something else."""
        is_batch = re.search(r"batch|(^|[_-])bs$", self.name, re.IGNORECASE)
        if not is_batch or not all(value.isdigit() and int(value) > 0 for value in self.values):
            return None
        return [int(value) for value in self.values]

    def program_at(self, program: Program, value: str) -> tuple[Program, dict[str, str]]:
        """The program that gets a value, and what is added to its environment.

        `{name}` in its arguments stands for the value; without it, the value follows `--name` at their end, in place of
        one that is there.
        """
        if self.environment:
            return program, {self.name: value}
        place = f"{{{self.name}}}"
        if any(place in word for word in program.arguments):
            return replace(program, arguments=tuple(word.replace(place, value) for word in program.arguments)), {}
        flag = f"--{self.name}"
        kept: list[str] = []
        words = iter(program.arguments)
        for word in words:
            if word == flag:
                next(words, None)
            elif not word.startswith(f"{flag}="):
                kept.append(word)
        return replace(program, arguments=(*kept, flag, value)), {}

    def shown(self, value: str) -> str:
        """How a value was given, for messages."""
        return f"{self.name}={value} in its environment" if self.environment else f"--{self.name} {value}"


def parse_over(text: str) -> Over:
    """What `--over` says.

    Raises:
        UsageError: not NAME=VALUE,VALUE,...
    """
    environment = text.startswith(_ENVIRONMENT)
    name, equals, rest = text.removeprefix(_ENVIRONMENT).partition("=")
    name = name.strip().removeprefix("--")
    values = list(dict.fromkeys(value.strip() for value in rest.split(",") if value.strip()))
    if not equals or not _NAME.fullmatch(name) or len(values) < 2:
        raise UsageError(f"--over {text}: say a name and at least two values, such as --over batch=1,2,4,8,16,32,64")
    over = Over(name, tuple(values), environment)
    numbers = over.numbers
    if numbers is not None:
        over = replace(over, values=tuple(value for _, value in sorted(zip(numbers, values, strict=True))))
    return over
