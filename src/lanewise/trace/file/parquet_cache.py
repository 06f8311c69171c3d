"""Keeps what was read as Parquet, keyed by content, so that a large trace is parsed once.

One folder per trace, named after its size and digest, with one file per table that any tool for Parquet can open. An
entry appears by renaming a finished folder, so two processes may race and a full disk leaves nothing half-written. The
entries used longest ago go when the store outgrows its cap. A store that cannot be used is never an error: reading goes
on without it.

`LANEWISE_CACHE_DIR` moves the store, `LANEWISE_CACHE_BYTES` sets the cap (0 turns it off).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lanewise.cache_folder import cache_folder
from lanewise.trace.file.source import Source
from lanewise.trace.file.unwrap import BLOCK_BYTES
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import TABLES

if TYPE_CHECKING:
    import polars as pl

    from lanewise.trace.model import Trace

__all__ = ["Store", "content_digest", "store_cap"]

_REVISION = 1
"""To be raised when the reader gives other values for the same file; a change of the schema shows by itself."""

_DEFAULT_CAP = 2 << 30
_WORTH_EVENTS = 100_000
"""Below this, parsing again takes about as long as opening the copy."""

_STALE_S = 86_400.0
_FACTS = "trace.json"
_writers: list[threading.Thread] = []


class _Facts(msgspec.Struct):
    """What is no table."""

    base_ns: int
    metadata: dict[str, Any]
    reading: Reading


class Store:
    """The kept traces of one folder."""

    def __init__(self, folder: Path | None = None, cap_bytes: int | None = None) -> None:
        self._folder = (folder or cache_folder()) / f"traces-{_layout()}"
        self._cap = store_cap() if cap_bytes is None else cap_bytes

    def find(self, source: Source) -> Trace | None:
        """The kept trace of a file with this content, or None. Hashes the file only if one of its size is kept."""
        begun = time.perf_counter()
        try:
            candidates = self._candidates(source)
            if not candidates:
                return None
            # Hashing and loading take the same time, and mostly only one file of this size is kept.
            with ThreadPoolExecutor(1) as pool:
                hashing = pool.submit(self._entry_of, source)
                trace = _load_sound(candidates[0])
                entry = hashing.result()
            if entry != candidates[0]:
                trace = _load_sound(entry)
            if trace is None:
                return None
            os.utime(entry)
        except OSError:
            return None
        trace.reading.source = source.name
        trace.reading.from_cache = True
        trace.reading.seconds = time.perf_counter() - begun
        return trace

    def attached(self, source: Source, name: str) -> bytes | None:
        """What was attached under a name to the kept trace of a file with this content, or None."""
        try:
            if not any((entry / name).is_file() for entry in self._candidates(source)):
                return None
            entry = self._entry_of(source)
            data = (entry / name).read_bytes()
            os.utime(entry)
        except OSError:
            return None
        return data

    def attach(self, trace: Trace, name: str, data: bytes, *, replaces: Callable[[str], bool]) -> None:
        """Put data beside a trace that is kept or being kept, in the background; it goes when the trace goes. Of a trace
        that is too small to be kept the data is all that there is.

        Args:
            trace: a trace that was read from a file.
            name: name of the data, a file name.
            data: the data.
            replaces: tells by its name what else is beside the trace and of no use any more.
        """
        if self._cap <= 0 or not trace.reading.digest:
            return
        entry = self._entry(trace.reading.bytes_read, trace.reading.digest)
        earlier, small = list(_writers), len(trace) < _WORTH_EVENTS

        def write() -> None:
            for writer in earlier:
                writer.join()
            with suppress(OSError):
                if small:
                    self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                    entry.mkdir(exist_ok=True)
                if not entry.is_dir():
                    return
                unfinished = entry / f"unfinished-{os.getpid()}"
                unfinished.write_bytes(data)
                unfinished.rename(entry / name)
                for other in entry.iterdir():
                    if replaces(other.name):
                        other.unlink()
                if small:
                    self._evict(entry)

        writer = threading.Thread(target=write, name="lanewise store")
        _writers.append(writer)
        writer.start()

    def _candidates(self, source: Source) -> list[Path]:
        """Entries of files of the same size, the only ones that can be this one's."""
        if source.path is None or source.size is None or self._cap <= 0 or not self._folder.is_dir():
            return []
        return [entry for entry in self._folder.iterdir() if entry.name.startswith(f"{source.size}-")]

    def _entry_of(self, source: Source) -> Path:
        """Where the copy of a file with this content is, if it is kept."""
        assert source.path is not None
        assert source.size is not None
        return self._entry(source.size, content_digest(source.path))

    def keep(self, trace: Trace, size: int) -> None:
        """Keep a trace whose file has `size` bytes, in the background; the interpreter's exit waits for it.

        What prevents it is noted in `trace.reading.cache`.
        """
        if self._cap <= 0 or len(trace) < _WORTH_EVENTS or not trace.reading.digest:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self._folder))
        except OSError as error:
            trace.reading.cache = f"not kept: {error.strerror or error}"
            return
        writer = threading.Thread(target=self._write, args=(trace, size, unfinished), name="lanewise store")
        _writers.append(writer)
        writer.start()

    def _write(self, trace: Trace, size: int, unfinished: Path) -> None:
        entry = self._entry(size, trace.reading.digest)
        try:
            _save(trace, unfinished)
            os.rename(unfinished, entry)
        except Exception as error:  # a full disk shows as whatever the Parquet writer makes of it
            if not entry.is_dir():  # else another process was faster
                trace.reading.cache = f"not kept: {error}"[:200]
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._evict(entry)

    def _entry(self, size: int, digest: str) -> Path:
        return self._folder / f"{size}-{digest[:32]}"

    def _evict(self, newest: Path) -> None:
        """Remove the entries used longest ago until the rest fits, and what a killed process left unfinished."""
        try:
            entries = [(path.stat().st_mtime, path) for path in self._folder.iterdir()]
            for changed, path in entries:
                if path.name.startswith("unfinished-") and time.time() - changed > _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
            kept = sorted((changed, path) for changed, path in entries if path.name[0].isdigit() and path != newest)
            sizes = {path: _size(path) for path in [*(path for _, path in kept), newest]}
            total = sum(sizes.values())
            for _, path in kept:
                if total <= self._cap:
                    break
                shutil.rmtree(path, ignore_errors=True)
                total -= sizes[path]
            if total > self._cap:
                shutil.rmtree(newest, ignore_errors=True)
        except OSError:
            pass  # another process is tidying up as well


def wait() -> None:
    """Return when everything that is being kept has been written."""
    while _writers:
        _writers.pop().join()


def store_cap() -> int:
    """How much may be kept: `LANEWISE_CACHE_BYTES`; 0 turns keeping off."""
    try:
        return int(os.environ.get("LANEWISE_CACHE_BYTES", _DEFAULT_CAP))
    except ValueError:
        return _DEFAULT_CAP


def _layout() -> str:
    """Changes with the schema and with the reader's revision, so that no copy outlives what it was made for."""
    columns = [(table, name, column.dtype) for table, spec in TABLES.items() for name, column in spec.items()]
    return f"{zlib.crc32(repr((_REVISION, columns)).encode()):08x}"


def content_digest(path: Path) -> str:
    """SHA-256 of a file, as `Reading.digest` has it."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=16)
def _digest(path: Path, size: int, changed_ns: int) -> str:
    """SHA-256 of a file. Size and time of change are there for the cache's sake: two questions, one hashing."""
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            found.update(block)
    return found.hexdigest()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _save(trace: Trace, folder: Path) -> None:
    import polars as pl

    for table in TABLES:
        columns = trace[table]
        if len(next(iter(columns.values()))):
            frame = pl.DataFrame([_series(name, column) for name, column in columns.items()])
            frame.write_parquet(folder / f"{table}.parquet", compression_level=1)
    for name, values in (("names", trace.names), ("texts", trace.texts)):
        pl.DataFrame({name: pl.Series(name, values, dtype=pl.String)}).write_parquet(folder / f"{name}.parquet")
    facts = _Facts(trace.base_ns, dict(trace.metadata), trace.reading)
    (folder / _FACTS).write_bytes(msgspec.json.encode(facts))


def _series(name: str, column: np.ndarray) -> pl.Series:
    import polars as pl

    if column.dtype.kind == "U":
        return pl.Series(name, column.tolist(), dtype=pl.Categorical if len(column) > 1000 else pl.String)
    return pl.Series(name, column)


def _load(folder: Path) -> Trace:
    import polars as pl

    from lanewise.trace.model import Trace

    facts = msgspec.json.decode((folder / _FACTS).read_bytes(), type=_Facts)
    tables: dict[str, dict[str, np.ndarray]] = {}
    for table, spec in TABLES.items():
        path = folder / f"{table}.parquet"
        if path.is_file():
            frame = pl.read_parquet(path)
            tables[table] = {name: _array(frame[name], column.dtype) for name, column in spec.items()}
    names, texts = (pl.read_parquet(folder / f"{name}.parquet")[name].to_list() for name in ("names", "texts"))
    return Trace(
        tables=tables,
        names=names,
        texts=texts,
        metadata=facts.metadata,
        base_ns=facts.base_ns,
        reading=facts.reading,
    )


def _load_sound(entry: Path) -> Trace | None:
    """The trace of an entry; None if there is none, or a damaged one, which is removed."""
    if not entry.is_dir() or not any(entry.glob("*.parquet")):
        return None  # or only what is attached to a small one
    try:
        return _load(entry)
    except Exception:  # whatever it is that the Parquet reader says about it
        shutil.rmtree(entry, ignore_errors=True)
        return None


def _array(column: pl.Series, dtype: str) -> np.ndarray:
    if dtype.startswith("U"):
        return np.array(column.to_list(), dtype=dtype)
    # A copy: Trace makes its arrays read-only, and those of polars are not ours to change.
    return np.array(column.to_numpy(), dtype=dtype)
