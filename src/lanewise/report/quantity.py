"""Typed numbers for findings, and how each type reads.

A rule returns numbers, never prose with numbers baked in. A number carries its type (`time`, `share`, `bytes` ...), so
that one renderer writes all of them: times in the unit that reads best, shares in percent, sizes in binary-free units.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "Quantity",
    "QuantityType",
    "bandwidth",
    "byte_size",
    "count",
    "flop_rate",
    "format_quantity",
    "ratio",
    "share",
    "text",
    "time",
]

QuantityType = Literal["time", "share", "count", "bytes", "bandwidth", "flops", "flop_rate", "ratio", "text"]


class Quantity(msgspec.Struct, frozen=True):
    """A number (or a text) with its type.

    Attributes:
        type: how to read `value`: `time` ns, `share` 0..1, `count`, `bytes`, `bandwidth` bytes/s, `flops`,
            `flop_rate` FLOP/s, `ratio`, `text`.
        value: the number, or the text.
    """

    type: QuantityType
    value: float | int | str

    def __str__(self) -> str:
        return format_quantity(self.type, self.value)


def time(ns: float) -> Quantity:
    """A time in ns."""
    return Quantity("time", float(ns))


def share(value: float) -> Quantity:
    """A share, 0 to 1: where parts overlap, or were rounded, their whole is at most all of it."""
    return Quantity("share", min(1.0, float(value)))


def count(value: float) -> Quantity:
    """A number of things."""
    return Quantity("count", int(value) if float(value).is_integer() else float(value))


def byte_size(value: float) -> Quantity:
    """A size in bytes."""
    return Quantity("bytes", float(value))


def bandwidth(value: float) -> Quantity:
    """Bytes per second."""
    return Quantity("bandwidth", float(value))


def flop_rate(value: float) -> Quantity:
    """Floating-point operations per second."""
    return Quantity("flop_rate", float(value))


def ratio(value: float) -> Quantity:
    """One number over another."""
    return Quantity("ratio", float(value))


def text(value: str) -> Quantity:
    """A name or a phrase; untrusted where it comes from a trace."""
    return Quantity("text", value)


def format_quantity(type_: str, value: Any) -> str:
    """The text of a value of a type; "–" for a missing one (None, NaN, a negative time or count)."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if type_ == "text":
        return str(value)
    number = float(value)
    if type_ == "time":
        return "–" if number < 0 else _scaled(number, ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")))
    if type_ == "share":
        return _percent(number)
    if type_ == "bytes":
        return "–" if number < 0 else _scaled(number, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))
    if type_ == "bandwidth":
        return "–" if number <= 0 else _scaled(number, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1, "B/s")))
    if type_ == "flops":
        return "–" if number < 0 else _scaled(number, (*_scales("FLOP"), (1, "FLOP")))
    if type_ == "flop_rate":
        return "–" if number <= 0 else _scaled(number, (*_scales("FLOP/s"), (1, "FLOP/s")))
    if type_ == "ratio":
        return f"{number:.1f}x" if number < 10 else f"{number:.0f}x"
    return f"{int(number):,}" if number.is_integer() else f"{number:,.1f}"


def _scales(unit: str) -> list[tuple[float, str]]:
    return [(1e12, f"T{unit}"), (1e9, f"G{unit}"), (1e6, f"M{unit}"), (1e3, f"k{unit}")]


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if value == 0:
        return f"0 {units[-1][1]}" if units[-1][1] != "ns" else "0 us"
    for size, unit in units:
        if abs(value) >= size:
            scaled = value / size
            digits = 0 if abs(scaled) >= 1000 or unit in {"ns", "B"} else 1 if abs(scaled) >= 10 else 2
            return f"{scaled:,.{digits}f} {unit}"
    return f"{value:.2g} {units[-1][1]}"


def _percent(value: float) -> str:
    percent = value * 100
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if abs(percent) < 10 or 99 < percent < 100 else f"{percent:.0f} %"
