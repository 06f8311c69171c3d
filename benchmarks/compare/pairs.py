"""How much of the device time of real pairs is matched or explained, and how many synthetic edits are found."""

from __future__ import annotations

import sys
from typing import Any

from tests.compare.test_corpus import PAIRS, compare
from tests.compare.test_edits import CHECKS, EDITS, compare_seeds, reported, timed


def corpus() -> dict[str, Any]:
    """Every pair of the corpus test."""
    each = []
    for pair in PAIRS:
        coverage = compare(pair.a, pair.b).coverage
        each.append(
            {"a": pair.a, "b": pair.b, "matched": coverage.matched_share, "explained": coverage.explained_share}
        )
    lowest = min(row["matched"] + row["explained"] for row in each)
    return {"pairs": len(each), "lowest_share_accounted_for": lowest, "each": each}


def edits(seeds: int = 5) -> dict[str, Any]:
    """Every edit of the test, with several noises."""
    each: dict[str, int] = {}
    for edit in EDITS:
        for seed in range(seeds):
            difference = compare_seeds(edit, 10 * seed + 1, 10 * seed + 2)
            try:
                if edit.name in CHECKS:
                    CHECKS[edit.name](difference)
                else:
                    assert reported(difference) == edit.expected
                    assert timed(difference) == {}
            except AssertionError:
                print(f"not exact: {edit.name}, seed {seed}", file=sys.stderr)
                continue
            each[edit.name] = each.get(edit.name, 0) + 1
    return {"edits": len(EDITS), "seeds": seeds, "exact": sum(each.values()), "of": len(EDITS) * seeds, "each": each}
