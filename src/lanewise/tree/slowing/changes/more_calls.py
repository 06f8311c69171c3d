"""Has a place begun to do more, by what it calls? Calls are counted, and no machine changes how many there are.

So whether there are more needs no statistics, only the patience to see that it stays: a batch that is longer, or a step
that also evaluates, is no change. That a place takes longer since then is said at once where it would be doubtful from
its times alone, as they move by as much on a busy machine.
"""

from __future__ import annotations

import numpy as np

__all__ = ["MoreCalls"]

_MORE = 1.04
"""Times as many calls as ever."""
_STAYS = 8
"""Blocks in a row that must have more calls than any of the reference."""


class MoreCalls:
    """Follows how often what is inside of some places is called.

    Args:
        reference: calls per step inside of each place, shape (blocks, places).

    Attributes:
        streak: blocks in a row, up to the last one, in which each place called more.
    """

    def __init__(self, reference: np.ndarray) -> None:
        self._most = reference.max(axis=0)
        self._last = reference[-1]
        self.streak = np.zeros(len(self._most), dtype=np.int64)

    def block(self, calls: np.ndarray) -> np.ndarray:
        """One more block, calls per step; which places do more for good. Shape (places,)."""
        self._last = calls
        # A place without calls of its own may have something new inside, which is followed where its time goes to.
        more = (self._most > 0) & (calls > self._most * _MORE)
        self.streak = np.where(more, self.streak + 1, 0)
        return self.streak >= _STAYS

    def forget(self, places: np.ndarray) -> None:
        """What some places (bool) call by now is what they usually call."""
        self._most = np.where(places, np.maximum(self._most, self._last), self._most)
        self.streak[places] = 0
