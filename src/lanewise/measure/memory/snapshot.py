"""torch's memory snapshot: who holds which block, and how much of the reserved memory nobody can use.

`torch.cuda.memory._dump_snapshot` writes a pickle. A pickle can run any code when it is loaded, so it is not: only the
built-in containers, numbers and text that a snapshot consists of are rebuilt, and anything else is refused by name.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lanewise.errors import InputError, NotATraceError, TooLargeError

__all__ = ["Holder", "Snapshot", "read_snapshot"]

# A snapshot of a large job with stacks is some hundred MB; beyond this it is not one.
_MOST_BYTES = 4 << 30

# Memory that rebuilding a snapshot may take: its objects are some 20 times larger than their pickled form.
_SPARE_BYTES = 1 << 30
_GROWTH = 40


@dataclass(frozen=True)
class Holder:
    """Live blocks from one place: `frames` from the allocation outwards as `file:line function`, bytes and blocks."""

    frames: tuple[str, ...]
    bytes: int
    blocks: int


@dataclass(frozen=True)
class Snapshot:
    """State of the caching allocator at one moment.

    Attributes: reserved: bytes taken from the driver. allocated: bytes in blocks that are in use. waiting: bytes
        freed by the program but still in use by a stream. free: bytes reserved and unused. largest_free: the largest
        single free block: no larger request can be served without the driver. split_free: free bytes in segments that
        also hold used blocks: they cannot be given back. segments: number of segments. holders: owners of live
        blocks, the largest first. events: recorded allocator events, by action.
    """

    reserved: int
    allocated: int
    waiting: int
    free: int
    largest_free: int
    split_free: int
    segments: int
    holders: tuple[Holder, ...]
    events: dict[str, int]

    @property
    def fragmentation(self) -> float:
        """Share of the free memory that a single request cannot have."""
        return 1 - self.largest_free / self.free if self.free else 0.0


class _Plain(pickle.Unpickler):
    """Rebuilds containers, numbers and text; never looks up a class or a function."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise NotATraceError(f"not a memory snapshot: it asks for {module_name}.{global_name}, which is not loaded")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotATraceError("not a memory snapshot: it refers to objects outside of the file")


def read_snapshot(source: str | Path) -> Snapshot:
    """Read the pickle that `torch.cuda.memory._dump_snapshot` wrote, without executing it.

    Raises:
        InputError: it cannot be read. NotATraceError: it is something else. TooLargeError: it would take too much memory.
    """
    path = Path(source)
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise TooLargeError(f"{size:,} bytes are too many for a memory snapshot")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if not data:
        raise InputError("the file is empty")
    try:
        with _bounded_memory(_SPARE_BYTES + _GROWTH * size):
            content = _Plain(io.BytesIO(data)).load()
    except NotATraceError:
        raise
    except MemoryError:
        raise TooLargeError("rebuilding this pickle would take far more memory than a snapshot of its size") from None
    except Exception as error:  # a pickle can be wrong in many ways; none of them may reach the user as a traceback
        raise NotATraceError(f"not a memory snapshot: {type(error).__name__} while reading the pickle") from None
    segments = content.get("segments") if isinstance(content, Mapping) else None
    if not isinstance(segments, list):
        raise NotATraceError("not a memory snapshot: it lists no segments")
    traces = content.get("device_traces")
    return _summary([s for s in segments if isinstance(s, Mapping)], traces if isinstance(traces, list) else [])


@contextlib.contextmanager
def _bounded_memory(extra: int) -> Generator[None]:
    """Let this process grow by `extra` bytes at most, where the system can enforce it: twenty bytes of a hostile pickle
    can ask for 60 GB."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + extra
    except (ImportError, OSError, ValueError):
        yield
        return
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _summary(segments: list[Mapping[str, Any]], traces: list[Any]) -> Snapshot:
    reserved = allocated = waiting = free = largest = split = 0
    held: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for segment in segments:
        reserved += _whole(segment.get("total_size"))
        listed = segment.get("blocks")
        blocks = [b for b in listed if isinstance(b, Mapping)] if isinstance(listed, list) else []
        unused = [_whole(b.get("size")) for b in blocks if b.get("state") == "inactive"]
        free += sum(unused)
        largest = max(largest, *unused, 0)
        if any(b.get("state") != "inactive" for b in blocks):
            split += sum(unused)
        for block in blocks:
            size = _whole(block.get("size"))
            if block.get("state") == "active_allocated":
                allocated += size
                entry = held[_frames(block)]
                entry[0] += size
                entry[1] += 1
            elif block.get("state") != "inactive":
                waiting += size
    events: dict[str, int] = defaultdict(int)
    for device in traces:
        for event in device if isinstance(device, list) else []:
            if isinstance(event, Mapping):
                events[str(event.get("action"))[:40]] += 1
    holders = sorted((Holder(frames, size, count) for frames, (size, count) in held.items()), key=lambda h: -h.bytes)
    return Snapshot(reserved, allocated, waiting, free, largest, split, len(segments), tuple(holders), dict(events))


def _frames(block: Mapping[str, Any]) -> tuple[str, ...]:
    """Stack of the allocation; old snapshots keep it in the block's history."""
    frames = block.get("frames")
    history = block.get("history")
    if not isinstance(frames, list) and isinstance(history, list) and history and isinstance(history[0], Mapping):
        frames = history[0].get("frames")
    if not isinstance(frames, list):
        return ()
    named = [frame for frame in frames if isinstance(frame, Mapping)]
    return tuple(f"{str(f.get('filename'))[:300]}:{_whole(f.get('line'))} {str(f.get('name'))[:200]}" for f in named)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else 0
