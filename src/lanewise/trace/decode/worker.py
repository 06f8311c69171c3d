"""The same decoding in a second process, so that reading a large file uses two cores.

The child runs this module and nothing of the caller's program: it is an interpreter of its own, neither forked nor
started through `multiprocessing`, which would import the caller's `__main__` again. Texts and batches travel through
two memory files, in slots that are used in turn; only sizes go over the pipes. If anything about the child goes wrong,
the caller decodes the chunk itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
from collections import deque
from typing import BinaryIO

from lanewise.trace.cores import usable_cores
from lanewise.trace.decode.batch import Batch
from lanewise.trace.decode.chunk import ChunkDecoder

__all__ = ["Worker", "start_worker", "worth_a_worker"]

SLOTS = 3
TEXT_SLOT = 16 << 20
BATCH_SLOT = 64 << 20
_TASK = struct.Struct("<qq")
_REPLY = struct.Struct("<qqq")
_WORTH_BYTES = 24 << 20
_FAILED = -1


def worth_a_worker(size: int | None) -> bool:
    """Whether starting a second process pays for a text of this size (None: unknown) on this machine.

    `LANEWISE_ONE_PROCESS` in the environment says no.
    """
    if size is not None and size < _WORTH_BYTES:
        return False
    if os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        return False
    if "LANEWISE_ONE_PROCESS" in os.environ:
        return False
    return usable_cores() > 1


def start_worker() -> Worker | None:
    """A worker, or None where the system does not give one."""
    try:
        return Worker()
    except OSError:
        return None


class Worker:
    """A child that decodes chunks. Use as a context manager; `alive` turns false when it has failed."""

    def __init__(self) -> None:
        self.alive = True
        self._waiting: deque[int] = deque()
        self._sent = 0
        self._texts, self._batches = _memory_file(), _memory_file()
        descriptors = (self._texts.fileno(), self._batches.fileno())
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from lanewise.trace.decode.worker import serve; serve({descriptors[0]}, {descriptors[1]})"
        )
        self._child = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            bufsize=0,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.alive = False
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._child.kill()
        self._child.wait()
        self._texts.close()
        self._batches.close()

    @property
    def waiting(self) -> tuple[int, ...]:
        """Numbers of the chunks that it has and has not answered."""
        return tuple(self._waiting)

    def takes(self, size: int) -> bool:
        """Whether it has room for a text of this size."""
        return self.alive and len(self._waiting) < SLOTS and size <= TEXT_SLOT

    def send(self, number: int, text: bytes) -> None:
        """Give it a chunk."""
        assert self._child.stdin is not None
        slot = self._sent % SLOTS
        try:
            os.pwrite(self._texts.fileno(), text, slot * TEXT_SLOT)
            self._child.stdin.write(_TASK.pack(slot, len(text)))
        except OSError:
            self.alive = False
        self._waiting.append(number)
        self._sent += 1

    def answers(self, *, wait: bool) -> list[tuple[int, Batch | None]]:
        """Chunk numbers with their batches, None for one that it could not decode; all of those waiting if `wait`."""
        found: list[tuple[int, Batch | None]] = []
        while self._waiting and self.alive:
            assert self._child.stdout is not None
            if not wait and not select.select([self._child.stdout], [], [], 0)[0]:
                break
            found.append((self._waiting.popleft(), self._answer()))
        if not self.alive:
            found += [(number, None) for number in self._waiting]
            self._waiting.clear()
        return found

    def _answer(self) -> Batch | None:
        assert self._child.stdout is not None
        try:
            reply = self._child.stdout.read(_REPLY.size)
            slot, body, arrays = _REPLY.unpack(reply)
            if body == _FAILED:
                return None
            return _unpack(self._batches.fileno(), slot * BATCH_SLOT, body, arrays)
        except (OSError, struct.error, pickle.UnpicklingError, EOFError, ValueError):
            self.alive = False
            return None


def _memory_file() -> BinaryIO:
    """A file that needs no disk where the system has such a thing."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            return os.fdopen(os.memfd_create("lanewise"), "w+b", buffering=0)  # type: ignore[return-value]
    return tempfile.TemporaryFile(buffering=0)  # type: ignore[return-value]


# -- the child ---------------------------------------------------------------------------------------------------------


def serve(texts: int, batches: int) -> None:
    """Decode chunks until the parent closes the pipe."""
    gc.disable()
    decoder = ChunkDecoder()
    tasks, replies = sys.stdin.buffer, sys.stdout.buffer
    while len(task := tasks.read(_TASK.size)) == _TASK.size:
        slot, length = _TASK.unpack(task)
        batch = decoder.decode(os.pread(texts, length, slot * TEXT_SLOT))
        body, arrays = _pack(batch) if batch is not None else (b"", [])
        if len(body) + sum(array.nbytes + 8 for array in arrays) > BATCH_SLOT:
            # Its new names are lost to the parent with it, so no later batch of this process can be used either.
            return
        at = slot * BATCH_SLOT
        for part in (body, struct.pack(f"<{len(arrays)}q", *(array.nbytes for array in arrays)), *arrays):
            at += os.pwrite(batches, part, at)
        replies.write(_REPLY.pack(slot, len(body) if batch is not None else _FAILED, len(arrays)))
        replies.flush()


def _pack(batch: Batch) -> tuple[bytes, list[memoryview]]:
    """A batch as bytes: everything but its arrays, pickled, and the arrays as they are."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    return body, [buffer.raw() for buffer in buffers]


def _unpack(file: int, at: int, body_size: int, count: int) -> Batch:
    """Each array gets memory of its own, so that it can be freed as soon as it is joined to the others."""
    body = os.pread(file, body_size, at)
    at += body_size
    sizes = struct.unpack(f"<{count}q", os.pread(file, 8 * count, at))
    at += 8 * count
    arrays = [bytearray(size) for size in sizes]
    for array in arrays:
        if os.preadv(file, [array], at) != len(array):
            raise EOFError
        at += len(array)
    return pickle.loads(body, buffers=arrays)
