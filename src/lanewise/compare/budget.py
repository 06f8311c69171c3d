"""Budgets: what a program may cost, from `[tool.lanewise.budget]` in pyproject.toml or `[budget]` in lanewise.toml.

    [tool.lanewise.budget]
    step_time = { max_us = 1500, max_increase = "5 %" }     # increase against the baseline
    launches = 40                                           # a number alone is the most per step
    busy_share = { min = 0.8, level = "warn" }
    memory_peak = { max_mb = 2000, max_increase = "10 %" }
    forbid = ["SYN101", "CMP1"]                             # codes, or beginnings of codes
    kernels = "same"                                        # as in the baseline: nothing new, gone or replaced
    contexts = { max_increase = "10 %" }                    # of any place of a watched program, against trees

Every budget has a level: `error` (the default), `warn` or `off`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from lanewise.errors import UsageError
from lanewise.project_file import find_file, read_section

__all__ = ["QUANTITIES", "Budget", "BudgetFile", "Level", "find_budget_file", "parse_budgets", "read_budgets"]

Level = Literal["error", "warn", "off"]
_LEVELS: tuple[Level, ...] = ("error", "warn", "off")

# name -> (type, what it is called).
QUANTITIES: dict[str, tuple[str, str]] = {
    "step_time": ("time", "step time"),
    "device_time": ("time", "device time per step"),
    "busy_share": ("share", "share of the step in which the device is busy"),
    "launches": ("count", "launches per step"),
    "kernels_per_step": ("count", "kernels per step"),
    "copies": ("count", "copies and sets per step"),
    "waits": ("count", "waits for the device per step"),
    "operators": ("count", "operators per step"),
    "memory_peak": ("bytes", "memory peak"),
}
_UNITS = {
    "time": {"max_us": 1e3, "max_ms": 1e6, "max": 1e3},
    "share": {"min": 1.0, "max": 1.0},
    "count": {"max": 1.0, "min": 1.0},
    "bytes": {"max_mb": 1e6, "max_gb": 1e9},
}
# What a number alone means.
_SHORT = {"time": "max_us", "share": "min", "count": "max", "bytes": "max_mb"}
_CODE = re.compile(r"^[A-Z]{3}\d{0,3}$")
_PERCENT = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?)\s*%\s*$")


class Budget(msgspec.Struct, frozen=True):
    """One budget.

    Attributes:
        key: in the file: a quantity, `forbid`, `kernels` or `contexts`.
        level: what exceeding it is.
        most, least: limits on the quantity in ns, counts, share or bytes; None for none.
        increase: largest relative increase against the baseline, 0.05 for 5 %; None for none.
        codes: what `forbid` forbids.
        line: in the file, 0 if unknown.
    """

    key: str
    level: Level = "error"
    most: float | None = None
    least: float | None = None
    increase: float | None = None
    codes: tuple[str, ...] = ()
    line: int = 0

    @property
    def needs_baseline(self) -> bool:
        """Whether it can only be decided against a baseline."""
        return self.increase is not None or self.key in ("kernels", "contexts")


class BudgetFile(msgspec.Struct, frozen=True):
    """Budgets with the file that they stand in, and the baseline that it names ("" for none)."""

    path: str
    budgets: list[Budget]
    baseline: str = ""


def find_budget_file(start: Path) -> Path | None:
    """The nearest file that holds budgets, from a directory upwards; None if there is none."""
    return find_file(start, lambda section: _budget(section) is not None)


def read_budgets(path: Path) -> BudgetFile:
    """The budgets in a file.

    Raises:
        InputError: it cannot be read or is no TOML. UsageError: it holds no budgets, or one that does not exist.
    """
    table = _table(path)
    if table is None:
        raise UsageError(f"{path} has no [tool.lanewise.budget] (or [budget]): nothing to check")
    lines = _lines(path)
    budgets = parse_budgets(
        {key: value for key, value in table.items() if key != "baseline"}, source=path.name, lines=lines
    )
    baseline = table.get("baseline", "")
    if not isinstance(baseline, str):
        raise UsageError(f"{path.name}: baseline is the path of a file")
    return BudgetFile(str(path), budgets, str(path.parent / baseline) if baseline else "")


def parse_budgets(
    table: Mapping[str, Any], *, source: str = "budget", lines: Mapping[str, int] | None = None
) -> list[Budget]:
    """Budgets from plain values, as in the file.

    Raises:
        UsageError: an unknown key or a wrong value, with what is allowed.
    """
    budgets: list[Budget] = []
    default = table.get("level", "error")
    if default not in _LEVELS:
        raise UsageError(f"{source}: level is one of {', '.join(_LEVELS)}, not {default!r}")
    for key, value in table.items():
        if key == "level":
            continue
        line = (lines or {}).get(key, 0)
        if key == "forbid":
            budgets.append(_forbid(value, source, default, line))
        elif key == "kernels":
            budgets.append(_kernels(value, source, default, line))
        elif key == "contexts":
            budgets.append(_contexts(value, source, default, line))
        elif key in QUANTITIES:
            budgets.append(_quantity(key, value, source, default, line))
        else:
            known = ", ".join([*QUANTITIES, "kernels", "contexts", "forbid"])
            raise UsageError(f"{source}: no budget {key!r}; there are: {known}")
    return budgets


def _quantity(key: str, value: Any, source: str, default: Level, line: int) -> Budget:
    kind = QUANTITIES[key][0]
    if _is_number(value):
        value = {_SHORT[kind]: value}
    if not isinstance(value, Mapping):
        raise UsageError(f"{source}: {key} is a number or a table such as {{ {_SHORT[kind]} = 1 }}")
    limits: dict[str, float] = {}
    increase: float | None = None
    for name, given in value.items():
        if name == "level":
            continue
        if name == "max_increase":
            increase = _increase(given, f"{source}: {key}.max_increase")
        elif name in _UNITS[kind] and _is_number(given) and given >= 0:
            limits[name[:3]] = given * _UNITS[kind][name]
        else:
            allowed = ", ".join([*_UNITS[kind], "max_increase", "level"])
            raise UsageError(f"{source}: {key}.{name} = {given!r} is no limit; {key} has: {allowed}")
    if not limits and increase is None:
        raise UsageError(f"{source}: {key} has no limit")
    return Budget(key, _level(value, source, key, default), limits.get("max"), limits.get("min"), increase, (), line)


def _forbid(value: Any, source: str, default: Level, line: int) -> Budget:
    codes = value.get("codes") if isinstance(value, Mapping) else value
    if not isinstance(codes, list) or not all(isinstance(code, str) and _CODE.match(code.upper()) for code in codes):
        raise UsageError(f'{source}: forbid is a list of codes or of their beginnings, such as ["SYN101", "CMP1"]')
    level = _level(value, source, "forbid", default) if isinstance(value, Mapping) else default
    return Budget("forbid", level, codes=tuple(code.upper() for code in codes), line=line)


def _kernels(value: Any, source: str, default: Level, line: int) -> Budget:
    wanted = value.get("list") if isinstance(value, Mapping) else value
    if wanted != "same":
        raise UsageError(
            f'{source}: kernels = "same" (or {{ list = "same", level = "warn" }}): the list of the baseline'
        )
    return Budget(
        "kernels", _level(value, source, "kernels", default) if isinstance(value, Mapping) else default, line=line
    )


def _contexts(value: Any, source: str, default: Level, line: int) -> Budget:
    given = value.get("max_increase") if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and set(value) - {"max_increase", "level"}:
        raise UsageError(f'{source}: contexts = {{ max_increase = "10 %" }} is what any place may take longer')
    increase = _increase(given, f"{source}: contexts.max_increase")
    level = _level(value, source, "contexts", default) if isinstance(value, Mapping) else default
    return Budget("contexts", level, increase=increase, line=line)


def _level(value: Mapping[str, Any], source: str, key: str, default: Level) -> Level:
    level = value.get("level", default)
    if level not in _LEVELS:
        raise UsageError(f"{source}: {key}.level is one of {', '.join(_LEVELS)}, not {level!r}")
    return level


def _increase(value: Any, where: str) -> float:
    """0.05 and "5 %" are the same; a whole number above 1 would be a slip."""
    percent = _PERCENT.match(value) if isinstance(value, str) else None
    share = float(percent[1]) / 100 if percent else float(value) if _is_number(value) else -1.0
    if not 0 <= share <= 1:
        raise UsageError(f'{where} = {value!r}: say "5 %" or 0.05')
    return share


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(path: Path) -> Mapping[str, Any] | None:
    return _budget(read_section(path))


def _budget(section: Mapping[str, Any]) -> Mapping[str, Any] | None:
    table = section.get("budget")
    return table if isinstance(table, Mapping) else None


def _lines(path: Path) -> dict[str, int]:
    """Line of each budget in the file, for annotations."""
    lines: dict[str, int] = {}
    inside = False
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        header = re.match(r"^\s*\[([\w.\" -]+)\]", text)
        if header:
            name = header[1].replace('"', "").replace(" ", "")
            inside = name in {"budget", "tool.lanewise.budget"}
            found = re.match(r"^(?:tool\.lanewise\.)?budget\.(\w+)$", name)
            if found:
                lines[found[1]] = number
        elif inside and (found := re.match(r"^\s*\"?(\w+)\"?\s*=", text)):
            lines[found[1]] = number
    return lines
