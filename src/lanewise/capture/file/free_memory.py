"""Memory that this process can still have: the machine's, or its container's where that is less."""

from __future__ import annotations

from pathlib import Path

__all__ = ["free_memory"]

_UNLIMITED = 1 << 60


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes; None where the system does not tell (other than Linux)."""
    known = [bytes_ for bytes_ in (_of_machine(root), _of_container(root)) if bytes_ is not None]
    return max(0, min(known)) if known else None


def _of_machine(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_container(root: Path) -> int | None:
    """The smallest room under the limits of the control groups that this process is in (cgroup v2, else v1)."""
    rooms: list[int] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, names, place = line.split(":", 2)
        if number == "0":
            base, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in names.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = base / place.lstrip("/")
        # In a container its own group is often the root of what it sees.
        for each in {folder, *folder.parents, base}:
            if each.is_relative_to(base):
                most, now = _text(each / limit).strip(), _text(each / used).strip()
                if most.isdigit() and now.isdigit() and int(most) < _UNLIMITED:
                    rooms.append(int(most) - int(now))
    return min(rooms, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
