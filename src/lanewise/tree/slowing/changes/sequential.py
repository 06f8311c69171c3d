"""A sequential test for many series at once: has one of them gone up, and since when?

Each series is the logarithm of what a block took over what it usually takes, 0 on average in the reference, the first
`REFERENCE` blocks. These tell by how much single blocks spread, and by how much the middle of several blocks in a row
wanders beyond that. A series may lie above its reference by `LEAST`, or by twice as much as it wanders, if that is
more. From then on each block is a bet against that: exp(b * s - b * b / 2) with s what it lies above what is allowed,
in spreads and at most `_LOUDEST` of them, and b each of `_BETS`. Bets are placed anew at every block, and what they
have won together is the evidence (a Shiryaev-Roberts e-detector: Shin, Ramdas, Rinaldo, 2022).

While a series lies above its reference by no more than is allowed and spreads no further than in it, whatever came
before, a bet wins nothing on average (the clipped score is sub-Gaussian). Expected evidence after n blocks is then at
most n, so by Ville's inequality it reaches `CERTAIN` within n blocks with a probability of at most n / `CERTAIN`, with
any dependence between series. With 35 series (a small transformer) and 25,000 blocks (100,000 steps of four) that is
9 %, and really far less: a program seldom lies as high as it may. A hundred times as much takes a fifth more blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["CERTAIN", "LEAST", "REFERENCE", "SIGMA", "Evidence", "Usual", "usual_of"]

REFERENCE = 80
"""Blocks from which medians, spreads and wandering are taken."""
CERTAIN = 1e7
LEAST = 0.03
"""A logarithm; of the smallest change that is to be found, 10 %, it leaves two thirds."""

_LOUDEST = 2.5
"""Spreads; so it takes eleven blocks at least."""
_BETS = np.array([[0.5], [1.0]])
_PAID = _BETS**2 / 2
_LONGEST = float(np.log(CERTAIN))
_WINDOW = 8
_WANDERS = 2.0
SIGMA = 1.4826
"""A standard deviation over the median distance from the median, of a bell curve."""
_TENTH = 1.2816
"""Standard deviations above which a tenth of a bell curve lies."""
_LEAST_SPREAD = 0.01


class Usual(NamedTuple):
    """What series do in the reference, logarithms: how far single blocks spread, and how far above 0 they may lie."""

    spread: np.ndarray
    allowed: np.ndarray


def usual_of(reference: np.ndarray) -> Usual:
    """What is usual, from logarithms of shape (`REFERENCE`, series)."""
    ordered = np.sort(reference, axis=0)
    middle, high = ordered[REFERENCE // 2], ordered[-1 - REFERENCE // 10]
    near = SIGMA * np.median(np.abs(reference - middle), axis=0)
    spread = np.maximum(np.maximum(near, (high - middle) / _TENTH), _LEAST_SPREAD)
    windows = reference[: len(reference) // _WINDOW * _WINDOW].reshape(-1, _WINDOW, reference.shape[1])
    # Medians of blocks that have nothing to do with each other have a variance of their own.
    by_chance = np.pi / 2 * spread**2 / _WINDOW
    wanders = np.sqrt(np.maximum(np.mean(np.median(windows, axis=1) ** 2, axis=0) - by_chance, 0.0))
    return Usual(spread, np.maximum(LEAST, _WANDERS * wanders))


class Evidence:
    """What has been won against each series.

    Args:
        usual: what they do in the reference.

    Attributes:
        since: block after which the present stretch of evidence begins, of each series. blocks: how many there were.
    """

    def __init__(self, usual: Usual) -> None:
        self._usual = usual
        count = len(usual.spread)
        self._won = np.zeros((len(_BETS), count))
        self._streak = np.zeros(count)
        self.since = np.zeros(count, dtype=np.int64)
        self.blocks = 0

    def block(self, values: np.ndarray) -> np.ndarray:
        """One more block, as logarithms; which series have certainly gone up. Shape (series,)."""
        score = (values - self._usual.allowed) / self._usual.spread
        gained = _BETS * np.maximum(np.minimum(score, _LOUDEST), -_LOUDEST) - _PAID
        self._won = np.minimum((self._won + 1) * np.exp(gained), 10 * CERTAIN)
        self._streak = np.maximum(np.minimum(self._streak + gained[0], _LONGEST), 0.0)
        self.blocks += 1
        self.since[self._streak == 0] = self.blocks
        return self._won.sum(axis=0) >= len(_BETS) * CERTAIN

    def suspected(self) -> np.ndarray:
        """Which series have more evidence against them than chance brings about often."""
        return self._won.mean(axis=0) >= CERTAIN**0.25

    def forget(self, series: np.ndarray) -> None:
        """Begin anew with some series (bool, shape (series,))."""
        self._won[:, series] = 0
        self._streak[series] = 0
        self.since[series] = self.blocks
