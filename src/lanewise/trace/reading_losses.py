"""What reading a file cost: every repair, guess and loss, counted. Shown before any number."""

from __future__ import annotations

import msgspec

__all__ = ["METADATA", "Reading", "Tally"]

METADATA = "metadata"
"""How reasons for the loss of anything but rows begin: no total rests on it."""


class Tally(msgspec.Struct):
    """How often one thing happened, with one sample of it (bounded, untrusted text)."""

    count: int = 0
    sample: str = ""

    def add(self, sample: str = "", count: int = 1) -> None:
        """Count `count` more; the first sample is kept."""
        self.count += count
        if not self.sample:
            self.sample = sample[:200]


class Reading(msgspec.Struct):
    """Facts about one read of one input.

    `repaired`: rows kept after mending, by reason. `lost`: rows or parts not kept, by reason.
    `generation`: "2021", "2022", "2024" (trace-format: detected by spelling, never by version) or "" if no row told.
    `digest`: SHA-256 of the bytes as stored. `cache`: why no copy could be kept, "" if nothing went wrong.
    """

    source: str = ""
    bytes_read: int = 0
    compressed: bool = False
    digest: str = ""
    rows: int = 0
    rows_by_phase: dict[str, int] = msgspec.field(default_factory=dict)
    rows_by_category: dict[str, int] = msgspec.field(default_factory=dict)
    unknown_categories: dict[str, int] = msgspec.field(default_factory=dict)
    generation: str = ""
    truncated: bool = False
    repaired: dict[str, Tally] = msgspec.field(default_factory=dict)
    lost: dict[str, Tally] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    from_cache: bool = False
    cache: str = ""

    def repair(self, reason: str, sample: str = "", count: int = 1) -> None:
        """Count rows that were kept after mending."""
        self.repaired.setdefault(reason, Tally()).add(sample, count)

    def lose(self, reason: str, sample: str = "", count: int = 1) -> None:
        """Count rows or parts that were not kept."""
        self.lost.setdefault(reason, Tally()).add(sample, count)

    @property
    def rows_lost(self) -> int:
        """Rows that could not be kept, over all reasons; parts of the metadata are no rows."""
        return sum(tally.count for reason, tally in self.lost.items() if not reason.startswith(METADATA))
