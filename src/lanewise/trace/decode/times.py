"""Microseconds as a file has them -> int64 nanoseconds, exactly.

Kineto writes thousandths of a microsecond. A double holds those below 2**43 us only, and only if the whole and the
fractional part are scaled apart: `rint(ts * 1000)` is already off by one for some values between 2**42 and 2**43.
Absolute timestamps (1.7e15 us) with a fraction do not survive a double at all and are read from their digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

__all__ = ["DOUBLE_IS_EXACT_BELOW", "MISSING", "WIDE_FRACTION", "from_floats", "from_text"]

MISSING = np.iinfo(np.int64).min
"""Nanoseconds of a time that the file does not give, or that no clock can show."""

DOUBLE_IS_EXACT_BELOW = 2.0**43

WIDE_FRACTION = re.compile(rb'"ts"\s*:\s*-?\d{13,}\.\d*[1-9]')
"""A timestamp that a double may not hold: many digits before the point, something after it."""

_LIMIT_US = 9.0e15  # int64 nanoseconds end at 9.22e15 us


def from_floats(us: Sequence[float]) -> np.ndarray:
    """Nanoseconds, int64; NaN, infinite and absurd values become `MISSING`."""
    value = np.array(us, dtype=np.float64)
    odd = ~(np.abs(value) < _LIMIT_US)  # also true for NaN
    if odd.any():
        value[odd] = 0.0
    whole = np.floor(value)
    ns = whole.astype(np.int64) * 1000
    value -= whole
    value *= 1000.0
    ns += np.rint(value, out=value).astype(np.int64)
    if odd.any():
        ns[odd] = MISSING
    return ns


_DECIMAL = re.compile(rb"\s*\"?\s*(-?)(\d{1,18})(?:\.(\d*))?\s*\"?\s*")


def from_text(texts: Sequence[bytes]) -> np.ndarray:
    """The same from the digits themselves; slower, and exact for any plain decimal number."""
    return np.array([_exact(text) for text in texts], dtype=np.int64)


def _exact(text: bytes) -> int:
    found = _DECIMAL.fullmatch(text)
    if found is None:  # an exponent, or no number at all
        try:
            return int(from_floats([float(text.strip(b'" ') or b"nan")])[0])
        except ValueError:
            return int(MISSING)
    sign, whole, fraction = found.groups()
    digits = (fraction or b"")[:4].ljust(4, b"0")
    ns = int(whole) * 1000 + (int(digits) + 5) // 10
    if ns > _LIMIT_US * 1000:
        return int(MISSING)
    return -ns if sign else ns
