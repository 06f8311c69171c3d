"""Names as keys: what changes from run to run is taken out.

Two runs of one program must give the same contexts, so addresses and counters are not part of a name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

__all__ = ["normalise", "parse_module"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"#\d+")
_GENERATED = re.compile(r"<eval_with_key>\.\d+")
# Inductor writes its code below a temporary directory whose name differs by user and machine.
_INDUCTOR = re.compile(r"^\S*torchinductor[^/]*/(?:[^/()]+/)*")
_SERVING = re.compile(r"^(execute_context_|execute_model\b)|\bgeneration_\S*\(")
_DIGITS = re.compile(r"\d+")

_MODULE = re.compile(r"^nn\.Module: (?P<cls>.+?)(?:_(?P<index>\d+))?$", re.DOTALL)


def normalise(names: Sequence[str]) -> list[str]:
    """Names without addresses and counters, in the same order.

    Half characters, which no file can hold, become `?`; names above 4,000 characters are cut.
    """
    return [_normal(_whole(name)) if _needs_work(name) else _whole(name) for name in names]


_LONGEST = 4_000


def _whole(name: str) -> str:
    if not name.isascii():
        name = name.encode("utf-8", "replace").decode()
    if len(name) > _LONGEST:
        # A checksum keeps names apart that differ only at the end.
        name = f"{name[:_LONGEST]}…{zlib.crc32(name.encode()):08x}"
    return name


def _needs_work(name: str) -> bool:
    return (
        "0x" in name
        or "#" in name
        or "<eval" in name
        or "torchinductor" in name
        or name.startswith("execute_")
        or ("generation_" in name)
    )


def _normal(name: str) -> str:
    name = _ADDRESS.sub("", name)
    name = _NUMBER.sub("#*", name)
    name = _GENERATED.sub("<eval_with_key>", name)
    name = _INDUCTOR.sub("torchinductor/", name)
    return _DIGITS.sub("*", name) if _SERVING.search(name) else name


def parse_module(name: str) -> tuple[str, int] | None:
    """`nn.Module: Conv2d_3` -> (`Conv2d`, 3); None for a name of another form."""
    found = _MODULE.match(name)
    if found is None:
        return None
    return found["cls"], int((found["index"] or "0")[:18])
