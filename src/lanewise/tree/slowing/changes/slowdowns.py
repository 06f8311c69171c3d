"""Blocks of steps -> the places that have become slower since some step.

Costs of contexts come as a usual step of each block. The first blocks are the reference, and once the program has settled
later ones are; what follows is held against them (`followed_places`), until the machine or the program is another one.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from lanewise.tree.slowing.changes.followed_places import Block, FollowedPlaces, Grown
from lanewise.tree.slowing.changes.sequential import REFERENCE
from lanewise.tree.slowing.looks.growing_forest import GrowingForest

__all__ = ["METRICS", "Block", "Grown", "Slowdowns"]

METRICS = {"host": "host time", "device": "device time"}
"""Costs that are followed, ns, with what a reader calls them."""

_REFERENCES = 2
"""A program that has just begun is not yet what it will be: later blocks in which nothing has changed take the place of the
first ones, once."""
_LOOK_AGAIN = 4
"""Blocks after which something certain that did not stand out is looked at again."""
_MOST = 20


class Slowdowns:
    """What becomes slower in a program whose contexts are in a forest.

    Args:
        forest: grows while blocks come in.

    Attributes:
        found: how many were. blocks: how many came in.
    """

    def __init__(self, forest: GrowingForest) -> None:
        self.found = 0
        self._forest = forest
        self.blocks = 0
        self._begin()

    def _begin(self) -> None:
        """A reference is taken from here on."""
        self._gathered: deque[tuple[Block, np.ndarray]] = deque(maxlen=REFERENCE)
        self._references = 0
        self._series: list[FollowedPlaces] = []
        self._busy = self._certain = self._uneven = 0

    def block(self, sums: Block, calls: np.ndarray) -> list[Grown]:
        """One more block: ns per step of each node by itself, in some metrics, and how often it was entered per step.

        Returns:
            What is certain now and was not before; a place that is reported is followed from its new level on.
        """
        self.blocks += 1
        if self.found >= _MOST:
            return []
        if not self._references:
            self._gather(sums, calls)
            return []
        found: list[Grown] = []
        busy = certain = unexplained = new = False
        for series in self._series:
            if series.block(sums, calls, self.blocks):
                certain = True
                if self._certain % _LOOK_AGAIN == 0:
                    found += series.grown()
                unexplained |= series.unexplained
            busy |= series.busy
            new |= series.new
        self._busy = self._busy + 1 if busy else 0
        self._certain = self._certain + 1 if certain and not found else 0
        self._uneven = self._uneven + 1 if unexplained and not found else 0
        if max(self._busy, self._uneven) > REFERENCE:
            # Another machine, or another program, than the one that the reference is of.
            self._begin()
        elif new or unexplained:
            self._gathered.clear()
        elif not busy and self._references < _REFERENCES:
            self._gather(sums, calls)
        self.found += len(found)
        return found

    def _gather(self, sums: Block, calls: np.ndarray) -> None:
        """A block for the next reference; what is followed is followed from that on, once it is complete."""
        self._gathered.append((sums, calls))
        if len(self._gathered) == REFERENCE and not any(series.suspected for series in self._series):
            each = (FollowedPlaces(self._forest, metric, list(self._gathered), self.blocks) for metric in sums)
            self._series = [one for one in each if one.count]
            self._gathered.clear()
            self._references += 1
