"""How far shares of a sample of steps may be from those of all steps."""

from __future__ import annotations

import numpy as np

from lanewise.tree.slowing.looks.growing_forest import GrowingForest, padded

__all__ = ["Sampling"]

_LEAST = 10
"""Windows from which on their spread says something."""
_CONFIDENT = 1.96
_WORTH = 0.01
"""Of the step: the error of smaller shares is smaller still."""


class Sampling:
    """Sums over windows, from which the error of a ratio of two means follows (the estimator of survey sampling).

    Args:
        forest: contexts, which grow while windows come in.
    """

    def __init__(self, forest: GrowingForest) -> None:
        self._forest = forest
        self._windows = 0
        self._sum = self._squares = self._products = np.zeros(0)
        self._whole = self._whole_squares = 0.0

    def add(self, own: np.ndarray) -> None:
        """One window: what each context took by itself."""
        inside = self._forest.inclusive(own)
        whole = float(own.sum())
        nodes = len(inside)
        self._sum = padded(self._sum, nodes) + inside
        self._squares = padded(self._squares, nodes) + inside**2
        self._products = padded(self._products, nodes) + inside * whole
        self._windows += 1
        self._whole += whole
        self._whole_squares += whole**2

    def error(self) -> float:
        """Half of the widest 95 % interval of a share of host time, of contexts that matter; -1 with too few windows."""
        if self._windows < _LEAST or self._whole <= 0:
            return -1.0
        share = self._sum / self._whole
        spread = self._squares - 2 * share * self._products + share**2 * self._whole_squares
        n = self._windows
        error = np.sqrt(np.maximum(spread, 0.0) * n / (n - 1)) / self._whole
        return round(float(_CONFIDENT * error[share >= _WORTH].max(initial=0.0)), 5)
