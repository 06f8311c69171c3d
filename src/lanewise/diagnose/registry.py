"""The rules: one for each file under `rules/`, and entry points for everyone else's."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import walk_packages

from lanewise.diagnose.rule import Rule
from lanewise.errors import UsageError

__all__ = ["ENTRY_POINT_GROUP", "builtin_rules", "find_rule", "installed_rules", "third_party_rules"]

ENTRY_POINT_GROUP = "lanewise.rules"

# The order of the catalogue; rules of a family are in the order of their codes.
_FAMILIES = ("validity", "regime", "launch", "compile", "sync", "memory", "kernel", "distributed", "training")


@cache
def builtin_rules() -> tuple[Rule, ...]:
    """All built-in rules in catalogue order: those that the files under `rules/<family>/` declare, however deep."""
    rules: list[Rule] = []
    for family in _FAMILIES:
        package = importlib.import_module(f"lanewise.diagnose.rules.{family}")
        found = walk_packages(package.__path__, f"{package.__name__}.")
        files = [importlib.import_module(file.name) for file in found if not file.ispkg]
        declared = [value for file in files for value in vars(file).values() if isinstance(value, Rule)]
        rules += sorted(declared, key=lambda rule: rule.code)
    return tuple(rules)


@cache
def _entries() -> tuple[EntryPoint, ...]:
    """What installed packages declare; looking through all of them takes 10 ms."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def third_party_rules() -> Iterable[Rule | tuple[str, Exception]]:
    """Rules of installed packages; a package that fails to load yields its name and the error instead."""
    for entry in _entries():
        try:
            loaded = entry.load()
        except Exception as error:  # a broken plug-in is one red row, not the end of the report
            yield entry.name, error
            continue
        for value in loaded if isinstance(loaded, list | tuple) else (loaded,):
            if isinstance(value, Rule):
                yield value


def installed_rules() -> list[Rule]:
    """The built-in rules, and those of other packages that can be loaded."""
    return [*builtin_rules(), *(rule for rule in third_party_rules() if isinstance(rule, Rule))]


def find_rule(code: str) -> Rule:
    """The built-in or installed rule with a code (any case). Raises UsageError naming near codes."""
    rules = installed_rules()
    for candidate in rules:
        if code.upper() == candidate.code or code.lower() == candidate.name:
            return candidate
    near = [r.code for r in rules if r.code.startswith(code.upper()[:3])]
    raise UsageError(f"no rule {code!r}; {'near: ' + ', '.join(near) if near else 'run `lanewise rule` for the list'}")
