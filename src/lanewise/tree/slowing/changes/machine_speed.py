"""How fast the machine is in a block, and how much of that each place feels.

When others use its caches, its memory or the other half of a core, no two places of a program become slower by the
same: where a loop in Python takes twice as long, a matrix product may take 1.4 times. The speed of a block is what the
middle one of all places takes longer, as a logarithm; each place has an exponent, 1 for one that follows the middle.

Exponents are learned from the reference. One that it says little of is drawn to 1, by as much as places really differ
(an empirical Bayes estimate: Efron and Morris, 1975). Speed is measured twice, by either half of the places, and a
place is held against the half that it is not in: noise that is in both would look like a place that follows nothing
(instrumental variables).
"""

from __future__ import annotations

import numpy as np

from lanewise.tree.slowing.changes.sequential import SIGMA

__all__ = ["FEW", "MachineSpeed"]

FEW = 8
"""Places: what fewer do says nothing of the machine."""

_AGREES = 0.3
"""Of the speed's variance that both halves of the places must see: where it is less, the machine has not changed."""
_LEAST_NOISE = 0.01
_DISTINCT = 0.05
"""Squared: an exponent that is known better counts no more, in the estimate of how much places differ."""
_FURTHEST = 0.8
"""From 1, of an exponent."""


class MachineSpeed:
    """Of a program whose places take `level` at the usual speed.

    Args:
        level: of each place by itself, ns. weight: how much each says. reference: blocks, shape (blocks, places), ns.

    Attributes:
        exponent: of each place. first: what `of` says of the blocks of the reference.
    """

    def __init__(self, level: np.ndarray, weight: np.ndarray, reference: np.ndarray) -> None:
        self._level = level
        # Neighbours are alike: every other place is in the same half. All are one part where they are few.
        half = np.arange(len(level)) % 2
        parts = 2 if len(level) >= 2 * FEW else 1
        self._weight = (
            np.stack([np.where(half == part, weight, 0.0) for part in range(2)]) if parts > 1 else weight[None]
        )
        self.exponent = np.ones(len(level))
        speeds = np.array([self._measured(block) for block in reference])
        self.first = speeds.mean(axis=1)
        if parts > 1:
            self._learn(np.log(np.maximum(reference / level, 0.1)), speeds)

    def of(self, block: np.ndarray) -> float:
        """The logarithm of what the middle of a block's places takes longer."""
        return float(self._measured(block).mean())

    def _measured(self, block: np.ndarray) -> np.ndarray:
        """By each part: the weighted medians."""
        if not len(block):
            return np.zeros(len(self._weight))
        ratio = block / self._level
        order = np.argsort(ratio, kind="stable")
        reached = np.cumsum(self._weight[:, order], axis=1)
        middle = [order[np.searchsorted(part, part[-1] / 2)] for part in reached]
        return np.log(np.maximum(ratio[middle], 1e-9))

    def _learn(self, places: np.ndarray, speeds: np.ndarray) -> None:
        """Exponents from logarithms of what places took longer, shape (blocks, places), and of both speeds (blocks, 2)."""
        half = np.arange(places.shape[1]) % 2
        away = places - speeds[:, half]
        away -= np.median(away, axis=0)
        speeds = speeds - speeds.mean(axis=0)
        both = float(speeds[:, 0] @ speeds[:, 1])
        if both <= _AGREES * float((speeds**2).sum(axis=0).max()):
            return
        noise = np.maximum(SIGMA * np.median(np.abs(away), axis=0), _LEAST_NOISE) ** 2
        plain, error = (speeds[:, 1 - half] * away).sum(axis=0) / both, noise / both
        weight = 1 / (error + _DISTINCT) ** 2
        differ = max(0.0, float(((plain**2 - error) * weight).sum() / weight.sum()))
        self.exponent = 1 + np.clip(plain * differ / (differ + error), -_FURTHEST, _FURTHEST)
