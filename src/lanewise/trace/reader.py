"""A trace file -> columns, in bounded memory.

    source.py     where the bytes are
    unwrap.py     the bytes, unpacked
    envelope.py   the head, up to the first event
    chunks.py     cut at row boundaries
    decode/       chunk -> batch of columns, in this process and, for large files, in a second one
    repair.py     for the chunks that do not decode
    envelope.py   the tail, after the last event
    assemble.py   batches -> tables

Chunks may be decoded out of order; they are taken up in file order.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lanewise.errors import InputError, NotATraceError
from lanewise.trace.decode.assemble import Assembled, Assembler
from lanewise.trace.decode.batch import Batch
from lanewise.trace.decode.chunk import ChunkDecoder
from lanewise.trace.decode.worker import Worker, start_worker, worth_a_worker
from lanewise.trace.file.chunks import CHUNK_BYTES, chunks
from lanewise.trace.file.envelope import Head, Metadata, read_head, read_tail
from lanewise.trace.file.json_repairs import mended
from lanewise.trace.file.parquet_cache import Store
from lanewise.trace.file.salvage import salvage
from lanewise.trace.file.source import Source, resolve
from lanewise.trace.file.unwrap import DEFAULT_MAX_BYTES, unwrap
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["opened", "read", "read_recorded"]

Progress = Callable[[int, int | None], None]
"""Called with the stored bytes read so far and their total, None if unknown."""

_LARGEST_LEFTOVER = 4 << 20
"""A row that goes on this long over chunks that cannot be decoded is no row: each retry reads all of it again."""

_MOST_BARREN = 16 << 20
_WORTH_RETURNING = 24 << 20

_OF_A_PROGRAM = (
    Kind.ANNOTATION,
    Kind.OPERATOR,
    Kind.PYTHON,
    Kind.RUNTIME,
    Kind.DRIVER,
    Kind.SYNC,
    Kind.KERNEL,
    Kind.MEMCPY,
    Kind.MEMSET,
    Kind.GPU_ANNOTATION,
)
"""What a program did; the rest is the profiler's own time, counters, and rows that other tools wrote."""

_USUAL_RATIO = 12
"""How many times larger a compressed trace is when unpacked; decides only whether a second process is worth it."""


def opened(trace: Trace | str | os.PathLike[str]) -> Trace:
    """The trace that is given, or read from the path that is given.

    Raises:
        InputError: it cannot be read. TypeError: it is neither.
    """
    if isinstance(trace, str | os.PathLike):
        return read(trace)
    from lanewise.trace.model import Trace  # here, because it imports all that explains a trace

    if not isinstance(trace, Trace):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise TypeError(f"a trace, or the path of one, is needed and this is a {type(trace).__name__}: {trace!r:.60}")
    return trace


def read(
    source: str | os.PathLike[str] | Source,
    *,
    cache: bool = True,
    progress: Progress | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Trace:
    """Read one trace.

    Args:
        source: a path, a directory (its newest trace), `-`, a URL, or a `Source`.
        cache: reopen the copy of an earlier read, and keep one.
        progress: called now and then while reading.
        max_bytes: bound on the unpacked text.

    Raises:
        InputError: it cannot be read at all.
        NotATraceError: it is something else; the message says what.
        TooLargeError: it exceeds `max_bytes` or grows like a compression bomb.
    """
    from lanewise.trace.model import Trace  # here, because it imports all that explains a trace

    begun = time.perf_counter()
    (origin, *_) = resolve(source)
    store = Store() if cache and origin.path is not None else None
    if store is not None and (kept := store.find(origin)) is not None:
        return kept
    before = _version(origin.path)
    reading = Reading(source=origin.name)
    metadata = Metadata(reading)
    try:
        with _collector_paused():
            assembled = _Reader(origin, reading, metadata, progress, max_bytes).run()
    except InputError as error:
        raise type(error)(_printable(f"{origin.name}: {error}")) from None
    if reading.bytes_read >= _WORTH_RETURNING:
        _return_memory()
    reading.seconds = time.perf_counter() - begun
    trace = Trace(
        tables=assembled.tables,
        names=assembled.names,
        texts=assembled.texts,
        metadata=metadata.values,
        base_ns=assembled.base_ns,
        reading=reading,
    )
    if store is not None and before == _version(origin.path) and reading.bytes_read == origin.size:
        store.keep(trace, reading.bytes_read)
    return trace


def read_recorded(source: str | os.PathLike[str], *, cache: bool = True, progress: Progress | None = None) -> Trace:
    """Read one trace, for a command that answers from it; arguments as of `read`.

    A profiler that was never switched on, or was stopped before the first step, writes a valid file: a CI job that reads
    it must not pass.

    Raises:
        InputError: as `read` raises it, or the trace holds nothing that a program did.
    """
    trace = read(source, cache=cache, progress=progress)
    if len(trace.of(*_OF_A_PROGRAM)) or len(trace["memory"]["time"]):
        return trace
    rows = f" in {len(trace):,} rows of other kinds" if len(trace) else ""
    cut = ", and is cut off" if trace.reading.truncated else ""
    raise InputError(
        f"{trace.reading.source}: it holds no step, no operator and no device work{rows}{cut}: record while the program "
        "runs its steps, as `lanewise run PROGRAM` does"
    )


def _return_memory() -> None:
    """Give the system what decoding took and freed: glibc would keep it, half as much again as the columns need."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def _printable(text: str) -> str:
    """One line that does nothing to a terminal: messages quote names and keys of the file."""
    return "".join(character if character.isprintable() else " " for character in text)


def _version(path: Path | None) -> tuple[int, int] | None:
    """Size and time of change: a file that is being written while it is read is not worth keeping."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if status is not None else None


@contextmanager
def _collector_paused() -> Generator[None]:
    """Rows are created by the thousand and freed by reference count: looking for cycles among them finds none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reader:
    """One read: decodes chunks here or in the worker, and takes them up in file order."""

    def __init__(
        self, source: Source, reading: Reading, metadata: Metadata, progress: Progress | None, max_bytes: int
    ) -> None:
        self._source = source
        self._reading = reading
        self._metadata = metadata
        self._progress = progress
        self._max_bytes = max_bytes
        self._assembler = Assembler()
        self._here = ChunkDecoder()
        # A decoder's batches must be taken up in the order in which it made them. Those of `_here` may wait for the
        # worker's; what is decoded while taking up needs a decoder of its own.
        self._late = ChunkDecoder()
        self._decoded: dict[int, tuple[bytes, Batch | None, object]] = {}
        self._next = 0
        self._leftover = b""
        self._barren = 0
        """Bytes read since the last row that could be read."""
        self._tail: list[bytes] | None = None
        """What follows the list of events, once its end has been seen."""

    def run(self) -> Assembled:
        """Read everything."""
        with self._source.open() as stream:
            digest = hashlib.sha256()
            more = unwrap(stream, self._source.name, self._reading, self._max_bytes, digest.update)
            head = read_head(more, self._metadata, self._reading)
            if not head.no_events:
                last = self._read_chunks(head, more)
                if last is not None:
                    self._read_last(last, head.in_object)
            self._reading.digest = digest.hexdigest()
        if not self._reading.rows and self._reading.lost and not self._metadata.values:
            raise NotATraceError("it starts like a trace, but holds no row that can be read")
        offset = self._metadata.values.get("baseTimeNanoseconds")
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 < offset < 1 << 62:
            offset = 0
        return self._assembler.finish(offset, self._reading)

    def _read_chunks(self, head: Head, more: Callable[[], bytes]) -> bytes | None:
        """Read all chunks but the last; returns the text of that, None if reading on is pointless."""
        last = None
        with ExitStack() as stack:
            worker = start_worker() if self._worth_a_worker() else None
            if worker is not None:
                stack.enter_context(worker)
            for chunk in chunks(head.rest, more, CHUNK_BYTES):
                if chunk.last:
                    last = chunk.text
                elif worker is not None and worker.takes(len(chunk.text)):
                    worker.send(chunk.number, chunk.text)
                    self._decoded[chunk.number] = (chunk.text, None, worker)
                else:
                    self._decoded[chunk.number] = (chunk.text, self._here.decode(chunk.text), self._here)
                self._take_up(worker, wait=chunk.last)
                if self._progress is not None:
                    self._progress(self._reading.bytes_read, self._source.size)
                if self._barren > _MOST_BARREN:
                    self._reading.truncated = True
                    self._reading.lose("the rest of the file, after much text without a row")
                    return None
        return last

    def _worth_a_worker(self) -> bool:
        size = self._source.size
        if size is not None and self._reading.compressed:
            size *= _USUAL_RATIO
        return worth_a_worker(size)

    def _take_up(self, worker: Worker | None, *, wait: bool) -> None:
        """Hand the chunks that are decoded to the assembler, as far as none before them is missing."""
        if worker is not None:
            for number, batch in worker.answers(wait=wait):
                self._decoded[number] = (self._decoded[number][0], batch, worker)
        missing = worker.waiting if worker is not None else ()
        while self._next in self._decoded and self._next not in missing:
            text, batch, decoder = self._decoded.pop(self._next)
            self._next += 1
            if self._tail is not None:
                self._tail.append(text)
            elif batch is not None:
                if self._leftover:
                    self._reading.lose("row that cannot be read", self._leftover[:200].decode("utf-8", "replace"))
                    self._leftover = b""
                self._add(batch, decoder)
            else:
                self._retry(text, at_end=False)

    def _retry(self, text: bytes, *, at_end: bool) -> None:
        """Decode a chunk that the fast way, or the worker, did not."""
        text = b",".join(filter(None, (self._leftover, text)))
        self._leftover = b""
        for candidate in mended(text) if not at_end else ():
            batch = self._late.decode(candidate.text)
            if batch is not None:
                candidate.count_in(self._reading)
                self._add(batch, self._late)
                return
        found = Reading()
        saved = salvage(text, found, at_end=at_end)
        self._add(self._late.batch(saved.rows, saved.args, found), self._late)
        self._leftover = saved.leftover
        self._barren = 0 if saved.rows else self._barren + len(text)
        if len(self._leftover) > _LARGEST_LEFTOVER:
            self._reading.lose("row that cannot be read", self._leftover[:200].decode("utf-8", "replace"))
            self._leftover = b""
        self._tail = None if saved.after is None else [saved.after]

    def _read_last(self, text: bytes, in_object: bool) -> None:
        """Read the last chunk and what follows the list of events."""
        if self._tail is None and not self._leftover:
            for candidate in mended(text):
                if self._decode_to_end(candidate.text, in_object):
                    candidate.count_in(self._reading)
                    return
        if self._tail is None:
            self._retry(text, at_end=True)
        else:
            self._tail.append(text)
        while self._tail is not None:
            again = read_tail(b",".join(self._tail), self._metadata, self._reading, in_object=in_object)
            if again is None:
                return
            self._tail = None
            self._retry(again, at_end=True)
        if in_object or self._reading.truncated:
            self._reading.truncated = True
        else:
            self._reading.repair("list without its closing bracket")

    def _decode_to_end(self, text: bytes, in_object: bool) -> bool:
        """Decode the last chunk the fast way: with the right opening it is a JSON document of its own."""
        events = b"[" + text
        others: dict[str, msgspec.Raw] = {}
        if in_object:
            if _EVENTS in text:
                return False
            try:
                others = _decode_object(b"{" + _EVENTS + b":[" + text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return False
            events = bytes(others.pop("traceEvents"))
        batch = self._late.decode_list(events)
        if batch is None:
            return False
        self._add(batch, self._late)
        for key, value in others.items():
            self._metadata.add(key, bytes(value))
        return True

    def _add(self, batch: Batch, decoder: object) -> None:
        self._assembler.add(batch, decoder)
        reading, found = self._reading, batch.reading
        for phase, count in batch.phases.items():
            reading.rows_by_phase[phase] = reading.rows_by_phase.get(phase, 0) + count
            reading.rows += count
        for reason, tally in found.repaired.items():
            reading.repair(reason, tally.sample, tally.count)
        for reason, tally in found.lost.items():
            reading.lose(reason, tally.sample, tally.count)
        reading.truncated |= found.truncated


_EVENTS = b'"traceEvents"'

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
