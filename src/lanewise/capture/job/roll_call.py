"""Ranks of a job that write into one folder: who began, who has ended, and which trace each has left.

Each rank keeps a hidden file beside the traces, as ranks on several machines share nothing else: it says which process it
is while it runs, and what it wrote once it has ended. The first rank waits for the others by these files, at most for a
time, and takes them away. Nothing here raises: a folder that cannot be written has no roll.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Lost", "RollCall", "roll_call"]

_OF_THE_JOB = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE", "SLURM_JOB_ID",
    "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_JOB_NAME",
)  # fmt: skip
"""What is the same on all ranks of a job, and seldom the same in another one."""

_POLL_S = 0.1
_SAY_AFTER_S = 3.0


@dataclass(frozen=True, slots=True)
class Lost:
    """A rank that left no trace, or did not come to its end; and why, as what follows "rank 3"."""

    rank: int
    why: str


def roll_call(folder: Path, environment: Mapping[str, str]) -> RollCall | None:
    """The roll of the job that this process belongs to; None if it is no rank of several."""
    rank, world = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not (rank.isdigit() and world.isdigit() and int(world) > 1 and int(rank) < int(world)):
        return None
    said = json.dumps([environment.get(name, "") for name in _OF_THE_JOB])
    return RollCall(folder, hashlib.sha256(said.encode()).hexdigest()[:12], int(rank), int(world))


class RollCall:
    """The roll of one job in one folder, as one rank sees it.

    Attributes:
        rank: of this process. world: ranks of the job.
    """

    def __init__(self, folder: Path, job: str, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._folder = folder
        self._job = job
        self._node = _node()

    def begin(self) -> None:
        """This rank is here."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write({"process": os.getpid(), "node": self._node})

    def wrote(self, trace: Path) -> None:
        """This rank has written its trace and goes on; it may yet be killed."""
        with contextlib.suppress(OSError):
            if (entry := self._read(self.rank)) is not None:
                self._write({**entry, "trace": str(trace)})

    def end(self, trace: Path | None) -> None:
        """This rank has written its trace, or will write none; nothing if the first rank has closed the roll."""
        with contextlib.suppress(OSError):
            if self._path(self.rank).exists():
                self._write({"ended": True, "trace": str(trace or "")})

    def wait(
        self, patience_s: float, say: Callable[[str], None], hurry: Callable[[], bool] = lambda: False
    ) -> tuple[list[Path], list[Lost]]:
        """Wait until every other rank has ended, at most so long; answers their traces, and who left none or died.

        Not waited for is a rank that never came to this folder, and one of this machine whose process is gone; and
        nobody once there is `hurry`.
        """
        begun = time.monotonic()
        told = False
        while running := [rank for rank in self._others() if self._is_running(rank)]:
            waited = time.monotonic() - begun
            if waited >= patience_s or hurry():
                break
            if waited >= _SAY_AFTER_S and not told:
                say(f"waiting for {_listed(running)} to end, {patience_s:.0f} s at most")
                told = True
            time.sleep(_POLL_S)
        traces: list[Path] = []
        lost: list[Lost] = []
        for rank in self._others():
            trace, why = self._found(rank, running)
            if trace is not None:
                traces.append(trace)
            if why:
                lost.append(Lost(rank, why))
        return traces, lost

    def _found(self, rank: int, running: list[int]) -> tuple[Path | None, str]:
        """The trace of a rank, and what is wrong with it or the rank."""
        entry = self._read(rank)
        if entry is None:
            return None, "writes to another folder, or never began"
        name = str(entry.get("trace", ""))
        trace = Path(name) if name and os.path.isfile(name) else None
        if entry.get("ended"):
            return trace, "" if trace is not None else "recorded nothing"
        if rank in running:
            return trace, "is still running" if trace is None else ""
        return trace, "died before it wrote a trace" if trace is None else "died after it had written its trace"

    def close(self) -> None:
        """Take the roll away, and the folder if there is nothing else in it."""
        for rank in range(self.world):
            with contextlib.suppress(OSError):
                self._path(rank).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _others(self) -> list[int]:
        return [rank for rank in range(self.world) if rank != self.rank]

    def _is_running(self, rank: int) -> bool:
        entry = self._read(rank)
        if entry is None or entry.get("ended"):
            return False
        process = entry.get("process")
        if entry.get("node") != self._node or not isinstance(process, int):
            return True
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return not _is_zombie(process)

    def _path(self, rank: int) -> Path:
        return self._folder / f".rank{rank}-of-{self._job}"

    def _read(self, rank: int) -> dict[str, object] | None:
        try:
            entry = json.loads(self._path(rank).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return entry if isinstance(entry, dict) else None

    def _write(self, entry: dict[str, object]) -> None:
        path = self._path(self.rank)
        unfinished = path.with_name(f"{path.name}.part")
        unfinished.write_text(json.dumps(entry), encoding="utf-8")
        os.replace(unfinished, path)


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:5])) + (f" and {len(ranks) - 5} more" if len(ranks) > 5 else "")
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}"


def _is_zombie(process: int) -> bool:
    """Whether it has ended, and its parent has not asked for its exit code yet."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def _node() -> str:
    """The machine, or the container, whose process numbers are those of this process."""
    names = [platform.node()]
    for path in ("/proc/sys/kernel/random/boot_id",):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            names.append(file.read())
    with contextlib.suppress(OSError):
        names.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256(repr(names).encode()).hexdigest()[:12]
