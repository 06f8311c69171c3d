"""Every command that lanewise recommends exists: in rules, documents, messages and help texts, with its options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lanewise.cli.main import cli
from lanewise.cli.recording.run import RunCommand
from tests.support.corpus import REPOSITORY

SOURCES = sorted((REPOSITORY / "src" / "lanewise").rglob("*.py"))
PAGE = sorted((REPOSITORY / "web" / "src").rglob("*.ts*"))
DOCUMENTS = [*REPOSITORY.glob("*.md"), *sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "action.yml"]
EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.py"))

_COMMAND = re.compile(r"(?:\blanewise|python3? -m lanewise) ((?:-{1,2}[a-zA-Z]|[a-z]+\b)[^`\"'·;|\n<>]*)")
_QUOTED = re.compile(
    r"`(?:python3? -m )?lanewise ([^`\n]+)`|^\s*(?:\$ )?(?:python3? -m )?lanewise ([a-z][^\n]*)", re.MULTILINE
)


def strings_of(path: Path) -> Iterator[str]:
    """Texts in a source: constants, docstrings, and f-strings with `X` for what is put in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def commands_in(text: str, *, prose: bool = False) -> Iterator[str]:
    """What follows `lanewise` where it is a command: in code, at the start of a line, or where a verb follows.

    In `prose`, a line may begin with a sentence about lanewise.
    """
    for match in _QUOTED.finditer(text):
        if match[1] or not prose:
            yield match[1] or match[2]
    for match in _COMMAND.finditer(text):
        words = match[1].split()
        if words[0] in cli.list_commands(click.Context(cli)) or any(w.startswith("--") for w in words[1:2]):
            yield match[1]


def wrong_with(command: str) -> str:
    """Why a command does not exist; "" for one that does."""
    command = re.split(r"\s{2,}|[`·;|()\[\]]|\.\.\.|, | #|\. |:( |$)", command)[0]
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words or words[0].startswith("-"):
        return ""
    verb = cli.get_command(click.Context(cli), words[0])
    if verb is None:
        return f"no verb {words[0]}"
    while isinstance(verb, click.Group) and len(words) > 1 and not words[1].startswith("-"):
        inner = verb.get_command(click.Context(verb), words[1])
        if inner is None:
            return f"no {words[0]} {words[1]}"
        verb, words = inner, words[1:]
    rest = words[1:]
    if isinstance(verb, RunCommand):
        rest, _ = verb.split(rest)
    options = {name for p in verb.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}
    for word in rest:
        name = word.rstrip(".,:)").partition("=")[0]
        if re.fullmatch(r"--?[A-Za-z][\w-]*", name) and name not in {*options, "--help", "-h"}:
            return f"{words[0]} has no {name}"
    return ""


def places() -> Iterator[tuple[str, str]]:
    for path in (*SOURCES, *EXAMPLES):
        for text in strings_of(path):
            for command in commands_in(text, prose=True):
                yield path.relative_to(REPOSITORY).as_posix(), command
    for path in (*DOCUMENTS, *PAGE):
        for command in commands_in(path.read_text(encoding="utf-8")):
            yield path.relative_to(REPOSITORY).as_posix(), command


def test_every_recommended_command_exists() -> None:
    found = list(places())
    assert len(found) > 150
    wrong = {f"{place}: lanewise {command}: {why}" for place, command in found if (why := wrong_with(command))}
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("or `lanewise record`, which finds the steps", "no verb record"),
        ("type `lanewise run --stackz train.py`", "run has no --stackz"),
        ("$ lanewise explain trace.json --fromat md", "explain has no --fromat"),
        ("see lanewise table TRACE --sorted x", "table has no --sorted"),
        ("`lanewise baseline keep a.json`", "no baseline keep"),
        ("`lanewise run train.py --epochs 1`", ""),
        ("`lanewise run --stacks -m package --mine`", ""),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, why: str) -> None:
    assert {wrong_with(command) for command in commands_in(text)} == {why}
