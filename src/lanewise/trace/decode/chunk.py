"""The text of one chunk -> a batch, trying the fast way first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lanewise.trace.decode.batch import Batch, Decoder
from lanewise.trace.decode.rows import (
    Row,
    decode_common_rows,
    decode_known_rows,
    decode_rows,
    decode_wide_rows,
    lenient,
    loose_args,
)
from lanewise.trace.decode.times import DOUBLE_IS_EXACT_BELOW, WIDE_FRACTION
from lanewise.trace.reading_losses import Reading

__all__ = ["ChunkDecoder"]

_MOST_MISSES = 4
_RARE = frozenset(("collective_args", "triton_args"))


class ChunkDecoder:
    """Decodes chunks one after the other."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._misses = 0
        """Chunks in a row that had rare args in them."""
        self._rare = False
        """Whether the last one had collectives or Triton kernels in it: in a job of many ranks the next one has, too."""

    def decode(self, text: bytes) -> Batch | None:
        """A batch from whole rows separated by commas; None if the text is not that, in valid JSON."""
        return self.decode_list(b"".join((b"[", text, b"]")))

    def decode_list(self, text: bytes) -> Batch | None:
        """A batch from a JSON list of rows; None if the text is no valid JSON or no list."""
        reading = Reading()
        try:
            rows = self._typed(text)
        except msgspec.ValidationError:
            return self._lenient(text, reading)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        batch = self._decoder.batch(rows, reading, lambda numbers: loose_args(text, numbers))
        self._rare = not _RARE.isdisjoint(batch.tables)
        return batch

    def batch(self, rows: Sequence[Row], args: Sequence[dict[str, Any]], reading: Reading) -> Batch:
        """A batch from rows that were made one by one, with the args of each."""
        return self._decoder.batch(rows, reading, lambda numbers: [args[number] for number in numbers])

    def _lenient(self, text: bytes, reading: Reading) -> Batch | None:
        """The same from valid JSON whose rows do not have the types that they should."""
        try:
            values = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(values, list):
            return None
        pairs = [(row, value.get("args")) for value in values if (row := lenient(value, reading)) is not None]
        args = [args if isinstance(args, dict) else {} for _, args in pairs]
        return self.batch([row for row, _ in pairs], args, reading)

    def _typed(self, text: bytes) -> Sequence[Row]:
        rows = self._common(text)
        if rows is None:
            try:
                rows = decode_known_rows(text)
            except msgspec.ValidationError:
                rows = decode_rows(text)  # a phase or category that is new to us, or something worse
        # The first timestamp tells the clock of all: only absolute ones outgrow a double.
        if rows and not rows[0].ts < DOUBLE_IS_EXACT_BELOW and WIDE_FRACTION.search(text):
            return decode_wide_rows(text)
        return rows

    def _common(self, text: bytes) -> Sequence[Row] | None:
        """The rows if none has rare args. Not tried where the last chunk had some, and soon no more where most have."""
        if self._rare or self._misses == _MOST_MISSES:
            return None
        try:
            rows = decode_common_rows(text)
        except msgspec.ValidationError:
            self._misses += 1
            return None
        self._misses = 0
        return rows
