"""How far a device's clock is from the host's, where the rows prove that it is.

Two things cannot be, whatever the program does: work that is still running when a wait for it has returned (the device's
clock is late), and work that begins before its launch (it is early). Each bounds the offset; the usual times from launch to
start and from end to return tell where within the bounds it lies.
"""

from __future__ import annotations

import numpy as np

__all__ = ["late_by"]

# The clocks agree to about this much, ns; nothing less is corrected.
_AGREE = 5_000
# A launch onto an idle device begins about this long after its call does; a wait returns this long after its work.
_LATENCY, _RETURN = 6_000, 5_000
# A wait of this length waited for something.
_WAITED = 20_000
# So many of the waits, or launches, must say the same: one wrong row is no clock.
_AGREEING, _AT_LEAST = 0.6, 3
_EARLY_FROM = 0.01


def late_by(
    start: np.ndarray,
    end: np.ndarray,
    launch: np.ndarray,
    launched: np.ndarray,
    wait_start: np.ndarray,
    wait_end: np.ndarray,
) -> int:
    """How much later the device's clock is than the host's, ns; negative if it is early, 0 where nothing proves either.

    Args:
        start, end: of device operations. launch, launched: when the call of each began and returned.
        wait_start, wait_end: of calls that return once everything launched before them is done.
    """
    if len(start) == 0:
        return 0
    delay = start - launch
    proven, waited = _still_running(end, launched, wait_start, wait_end)
    if len(proven) >= _AT_LEAST and np.mean(proven > _AGREE) >= _AGREEING:
        low, high = int(np.quantile(proven, 0.9, method="higher")), int(np.quantile(delay, 0.01, method="lower"))
        if high < low:
            return 0
        tight = proven[waited]
        guess = int(tight.max()) + _RETURN if len(tight) else high - _LATENCY
        return int(np.clip(guess, low, high))
    early = delay < -_AGREE
    if np.count_nonzero(early) >= _AT_LEAST and np.mean(early) >= _EARLY_FROM:
        offset = int(np.quantile(-delay, 0.99, method="higher")) + _LATENCY
        if len(proven) and int(proven.max()) + offset > _AGREE:
            return 0
        return -offset
    return 0


def _still_running(
    end: np.ndarray, launched: np.ndarray, wait_start: np.ndarray, wait_end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How long after the return of each wait work launched before it ended (negative: before), and whether the wait was
    long; only of waits with new work to wait for."""
    order = np.argsort(launched, kind="stable")
    latest = np.maximum.accumulate(end[order])
    count = np.searchsorted(launched[order], wait_start, side="right")
    by_time = np.argsort(wait_start, kind="stable")
    new = np.zeros(len(count), dtype=bool)
    new[by_time] = np.diff(count[by_time], prepend=0) > 0
    after = latest[np.maximum(count, 1) - 1] - wait_end
    return after[new], (wait_end - wait_start)[new] >= _WAITED
