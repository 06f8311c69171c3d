"""Which rules run, and with what thresholds: from `[tool.lanewise]` in pyproject.toml, a lanewise.toml, or a caller.

[tool.lanewise]
select = ["LAU", "SYN"]                  # codes, or beginnings of codes; all by default
ignore = ["SYN105"]
price = 2.5                              # dollars per hour of what runs the steps
[tool.lanewise.thresholds]
LAU101 = { launches_from = 50 }          # `lanewise rule LAU101` lists what a rule has
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from lanewise.diagnose.registry import installed_rules
from lanewise.diagnose.rule import Rule
from lanewise.errors import UsageError
from lanewise.project_file import find_file, key_name, read_section, shown

__all__ = ["Settings", "check_settings", "load_settings", "narrowed"]

_KEYS = ("select", "ignore", "thresholds", "price")
_OTHER_KEYS = ("budget",)


@dataclass(frozen=True)
class Settings:
    """Which rules run, and with what thresholds.

    Attributes:
        select: code prefixes to run; empty for all.
        ignore: code prefixes to leave out.
        thresholds: code -> {keyword: value}, overriding the rule's defaults.
        source: the file that they come from, as messages name it; "" without one.
        price: of an hour of what runs the steps, dollars; 0 for none.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    source: str = ""
    price: float = 0.0

    def wants(self, rule: Rule) -> bool:
        """Whether a rule runs. Regime rules always do: everything else is ranked by them."""
        return rule.kind == "regime" or self.names(rule.code)

    def names(self, code: str) -> bool:
        """Whether `select` and `ignore` leave a code in."""
        return (not self.select or code.startswith(self.select)) and not code.startswith(self.ignore)


def load_settings(path: str | Path | None = None, *, start: str | Path | None = None) -> Settings:
    """The settings of a project.

    Args:
        path: the file; by default the nearest pyproject.toml or lanewise.toml that holds settings.
        start: the folder to look in first, then in those above; the working directory by default.

    Returns:
        The settings, with nothing set where there is no such file.

    Raises:
        UsageError: a key, code or threshold that does not exist, or a wrong type; names the file and the key.
        InputError: the file cannot be read or is no TOML.
    """
    file = Path(path) if path is not None else find_file(Path(start or Path.cwd()), _holds_settings)
    if file is None:
        return Settings()
    name = shown(file)

    def where(*keys: str) -> str:
        return f"{name}: {key_name(file, *keys)}"

    section = read_section(file)
    for key in section:
        if key not in (*_KEYS, *_OTHER_KEYS):
            raise UsageError(f"{where(key)} does not exist; there are: {', '.join((*_KEYS, *_OTHER_KEYS))}")
    settings = Settings(
        select=_codes(section.get("select", []), where("select")),
        ignore=_codes(section.get("ignore", []), where("ignore")),
        thresholds=_thresholds(section.get("thresholds", {}), where),
        price=_price(section.get("price", 0.0), where("price")),
        source=name,
    )
    check_settings(settings, where)
    return settings


def narrowed(settings: Settings, select: Sequence[str], ignore: Sequence[str]) -> Settings:
    """Settings with what the command line asks for: `select` starts afresh, `ignore` leaves out more.

    Raises:
        UsageError: a code that no rule's code begins with.
    """
    given = Settings(tuple(code.upper() for code in select), tuple(code.upper() for code in ignore))
    check_settings(given, lambda *keys: f"--{keys[0]}")
    if given.select:
        return replace(settings, select=given.select, ignore=given.ignore)
    return replace(settings, ignore=(*settings.ignore, *given.ignore))


def check_settings(settings: Settings, where: Callable[..., str] = lambda *keys: ".".join(keys)) -> None:
    """Raises UsageError for codes and thresholds that no rule has, and for values of another type than the default.

    Args:
        settings: what to check.
        where: names a key in the message.
    """
    if not (settings.select or settings.ignore or settings.thresholds):
        return
    rules = {rule.code: rule for rule in installed_rules()}
    for key, codes in (("select", settings.select), ("ignore", settings.ignore)):
        for code in codes:
            if not any(known.startswith(code) for known in rules):
                raise UsageError(f"{where(key)}: no rule's code begins with {code!r}; `lanewise rule` lists them")
    for code, values in settings.thresholds.items():
        if code not in rules:
            raise UsageError(f"{where('thresholds', code)}: there is no such rule{_near(code, rules)}")
        defaults = rules[code].thresholds
        for name, value in values.items():
            if name not in defaults:
                has = f"it has: {', '.join(defaults)}" if defaults else "it has none"
                raise UsageError(f"{where('thresholds', code, name)}: {code} has no such threshold; {has}")
            wanted = _wanted(value, defaults[name])
            if wanted:
                raise UsageError(f"{where('thresholds', code, name)} = {value!r}: {wanted} is needed")


def _holds_settings(section: Mapping[str, Any]) -> bool:
    return any(key not in _OTHER_KEYS for key in section)


def _codes(value: Any, where: str) -> tuple[str, ...]:
    wanted = 'a list of codes or of their beginnings, such as ["LAU", "SYN101"]'
    return tuple(code.upper() for code in _as(list[_Code], value, where, wanted))


def _thresholds(value: Any, where: Callable[..., str]) -> dict[str, dict[str, Any]]:
    table = dict[str, Any]
    rules = _as(table, value, where("thresholds"), "a table, such as LAU101 = { launches_from = 50 }")
    return {
        code.upper(): _as(table, values, where("thresholds", code), "a table, such as { launches_from = 50 }")
        for code, values in rules.items()
    }


def _price(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UsageError(f"{where} is the price of an hour in dollars, such as 2.5")
    return float(value)


_T = TypeVar("_T")
_Code = Annotated[str, msgspec.Meta(min_length=1)]


def _as(kind: type[_T], value: Any, where: str, wanted: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise UsageError(f"{where} is {wanted}") from None


def _wanted(value: Any, default: Any) -> str:
    """What type is needed in place of a value, "" if it fits."""
    if isinstance(default, bool) or not isinstance(default, int | float):
        return "" if isinstance(value, type(default)) else f"a {type(default).__name__}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return "a number, 0 or more,"
    return "a whole number" if isinstance(default, int) and value != int(value) else ""


def _near(code: str, known: Iterable[str]) -> str:
    near = [other for other in known if other[:3] == code[:3]]
    return f"; near: {', '.join(near)}" if near else ""
