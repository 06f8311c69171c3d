"""How much memory a recording may count on: what the machine has, or the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.capture import recording as module
from lanewise.capture.file.free_memory import free_memory
from lanewise.capture.recording import Options, Recording

MACHINE = {"proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable:    8000 kB\n"}


@pytest.mark.parametrize(
    ("files", "bytes_"),
    [
        ({}, None),
        (MACHINE, 8_192_000),
        ({**MACHINE, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3000\n",
          "sys/fs/cgroup/memory.current": "1000\n"}, 2000),
        ({**MACHINE, "proc/self/cgroup": "0::/job/mine\n", "sys/fs/cgroup/job/memory.max": "5000\n",
          "sys/fs/cgroup/job/memory.current": "1000\n", "sys/fs/cgroup/job/mine/memory.max": "max\n",
          "sys/fs/cgroup/job/mine/memory.current": "1000\n"}, 4000),
        ({**MACHINE, "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/abc\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "900\n",
          "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n"}, 0),
        ({**MACHINE, "proc/self/cgroup": "4:memory:/\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
          "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n"}, 8_192_000),
    ],
    ids=["unknown", "machine", "container", "group above", "v1, used up", "v1, no limit"],
)  # fmt: skip
def test_the_least_of_what_is_told(files: dict[str, str], bytes_: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path) == bytes_


def test_a_recording_takes_no_more_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, most in ((None, 200_000_000), (10**12, 200_000_000), (400_000_000, 50_000_000)):
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        assert Recording(Options(out=tmp_path)).window.plan.trace_bytes == most
