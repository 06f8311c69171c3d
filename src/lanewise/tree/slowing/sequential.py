"""A sequential test for many series at once: has one of them gone up, and since when?

Each series is compared with its own reference, the first `REFERENCE` blocks. Its threshold is what a block of the
reference exceeds in one case of ten, at least `LEAST` above its median. From then on each block is a bet at fixed odds
against "exceeded with a probability of at most `CHANCE`, whatever came before". Bets are placed anew at every block, and
what they have won together is the evidence (a Shiryaev-Roberts e-detector: Shin, Ramdas, Rinaldo, 2022). While the
assumption holds, the expected evidence after n blocks is at most n, so by Ville's inequality it reaches `CERTAIN` within n
blocks with a probability of at most n / `CERTAIN`, for any distribution of times and any dependence between series. With
200 series and 25,000 blocks (100,000 steps of four) that is 0.5 %.
"""

from __future__ import annotations

import numpy as np

__all__ = ["CERTAIN", "CHANCE", "LEAST", "REFERENCE", "Evidence", "threshold_of"]

REFERENCE = 80
"""Blocks from which medians and thresholds are taken."""
CHANCE = 0.2
"""Probability with which a block may exceed its threshold though nothing has changed: twice what the reference shows."""
CERTAIN = 1e9
LEAST = 0.05
"""Above the median: half of the smallest change that is to be found."""

_EXCEED = REFERENCE // 10
_WINDOW = 8
_WANDERS = 2.0
_BET = 0.8 / CHANCE
_WON, _LOST = 1 + _BET * (1 - CHANCE), 1 - _BET * CHANCE


def threshold_of(reference: np.ndarray) -> np.ndarray:
    """From which ratio to its median on a block counts as exceeding, of each series.

    Args:
        reference: ratios to the median, shape (`REFERENCE`, series).
    """
    spread = np.sort(reference, axis=0)[-1 - _EXCEED]
    # A series that wanders slowly exceeds many times in a row: what the medians of several blocks do tells.
    windows = reference[: len(reference) // _WINDOW * _WINDOW].reshape(-1, _WINDOW, reference.shape[1])
    wander = np.sort(np.abs(np.median(windows, axis=1) - 1), axis=0)[-2]
    return np.maximum(np.maximum(1 + LEAST, spread), 1 + _WANDERS * wander)


class Evidence:
    """What has been won against each series.

    Args:
        threshold: of each series, as `threshold_of` gives it.

    Attributes:
        since: block after which the present stretch of evidence begins, of each series. blocks: how many there were.
    """

    def __init__(self, threshold: np.ndarray) -> None:
        self._threshold = threshold
        self._won = np.zeros(len(threshold))
        self._streak = np.ones(len(threshold))
        self.since = np.zeros(len(threshold), dtype=np.int64)
        self.blocks = 0

    def block(self, ratios: np.ndarray) -> np.ndarray:
        """One more block, as ratios to the medians; which series have certainly gone up. Shape (series,)."""
        factor = np.where(ratios > self._threshold, _WON, _LOST)
        self._won = np.minimum((self._won + 1) * factor, 10 * CERTAIN)
        self._streak = np.minimum(self._streak * factor, 10 * CERTAIN)
        self.blocks += 1
        over = self._streak < 1
        self._streak[over] = 1
        self.since[over] = self.blocks
        return self._won >= CERTAIN

    def suspected(self) -> np.ndarray:
        """Which series have more evidence against them than chance brings about often."""
        return self._won >= CERTAIN**0.25

    def forget(self, series: np.ndarray) -> None:
        """Begin anew with some series (bool, shape (series,))."""
        self._won[series] = 0
        self._streak[series] = 1
        self.since[series] = self.blocks
