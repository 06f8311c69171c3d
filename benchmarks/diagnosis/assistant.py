"""How far an assistant gets in three calls of `lanewise mcp` that knows nothing of a recording but its path.

    python -m benchmarks.diagnosis.assistant --out benchmarks/results/assistant.json

It asks for the report, then for the evidence of the first two things to do, over the MCP library's own client. The
cause is reached where the evidence of a right code was read. Which codes are right was said before any tool looked
(`labels.py`), or follows from the program that was recorded (tests/data/h200/truth.json).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.diagnosis.labels import LABELS

from lanewise import __version__
from lanewise.assistant.pages import PAGE_BYTES

__all__ = ["DATA", "Call", "Reached", "reached", "recordings", "talk"]

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
_CALLS = 3
Call = Callable[..., Awaitable[tuple[str, bool]]]


class Reached(NamedTuple):
    """What three calls gave.

    Attributes:
        recording: its file. codes: that are right for it, in a text. read: whose evidence was read, in order.
        calls: how many. seconds: the longest of them, from the store. bytes: the longest answer.
        cpu_seconds: the most that the server's processors worked for one, which others on the machine hardly change; Linux.
    """

    recording: str
    codes: str
    read: tuple[str, ...]
    calls: int
    seconds: float
    cpu_seconds: float
    bytes: int

    @property
    def right(self) -> bool:
        """Whether the evidence of the cause was read."""
        return bool(set(self.read) & set(self.codes.split()))


def talk(root: Path, conversation: Callable[[Any, Call], Awaitable[None]]) -> None:
    """Start a server for a project, and talk with it."""
    import anyio
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "lanewise", "mcp", "--root", str(root)], env=dict(os.environ)
    )

    async def run() -> None:
        async with Client(stdio_client(server)) as client:

            async def call(name: str, /, **arguments: Any) -> tuple[str, bool]:
                result = await client.call_tool(name, arguments)
                (content,) = result.content
                return content.text, bool(result.is_error)

            await conversation(client, call)

    anyio.run(run)


def recordings() -> list[tuple[str, str]]:
    """Recordings with a known fault, and the codes that are right for it."""
    twins = [(f"twins/{label.name}.json.gz", label.first) for label in LABELS if label.first]
    pairs = json.loads((DATA / "h200" / "truth.json").read_text())["pairs"]
    planted = [(f"h200/{pair['name']}-slow.json.gz", " ".join(pair["codes"])) for pair in pairs if not pair["nothing"]]
    return twins + [one for one in planted if one[1]]


def reached(chosen: Sequence[tuple[str, str]], say: Callable[[Reached], None] = lambda _: None) -> list[Reached]:
    """What each of the recordings' three calls gave; the recordings are put into the store first."""
    found: list[Reached] = []

    async def into_the_store(_: Any, call: Call) -> None:
        for name, _codes in chosen:
            await call("explain", trace=name)

    async def conversation(_: Any, call: Call) -> None:
        for name, codes in chosen:
            found.append(await _asked(call, name, codes))
            say(found[-1])

    talk(DATA, into_the_store)
    talk(DATA, conversation)
    return found


async def _asked(call: Call, trace: str, codes: str) -> Reached:
    calls: list[tuple[float, float, int]] = []

    async def timed(name: str, **arguments: str) -> str:
        begun, worked = time.perf_counter(), _worked()
        text, failed = await call(name, **arguments)
        calls.append((time.perf_counter() - begun, _worked() - worked, len(text.encode())))
        if failed:
            raise RuntimeError(f"{trace}: {name}: {text}")
        return text

    text = await timed("explain", trace=trace)
    first = re.findall(r"^\d\. \*\*.*\(([A-Z]{3}\d{3})\)$", text, re.M)[: _CALLS - 1]
    read = [code for code in first if "Fix: " in await timed("evidence", trace=trace, finding=code)]
    seconds, worked, size = (max(column) for column in zip(*calls, strict=True))
    return Reached(trace, codes, tuple(read), len(calls), round(seconds, 4), round(worked, 2), size)


def _worked() -> float:
    """CPU seconds of the processes that this one started and that run."""
    ticks = 0
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _spread(ascending: Sequence[float]) -> dict[str, float]:
    count = len(ascending)
    return {"median": ascending[count // 2], "p90": ascending[count * 9 // 10], "most": ascending[-1]}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = reached(recordings(), lambda one: print("ok" if one.right else "NO", *one, flush=True))
    right = sum(one.right for one in found)
    times, worked = (sorted(column) for column in zip(*((one.seconds, one.cpu_seconds) for one in found), strict=True))
    total = {
        "recordings": len(found),
        "reached": right,
        "share": round(right / len(found), 4),
        "longest_answer_bytes": max(one.bytes for one in found),
        "most_bytes_allowed": PAGE_BYTES,
        "longest_call_s": _spread(times),
        "longest_call_cpu_s": _spread(worked),
    }
    rows = [one._asdict() | {"reached": one.right} for one in found]
    result = {
        "what": "causes reached by three calls of `lanewise mcp` on labelled recordings (tests/data/twins and h200)",
        "command": "python -m benchmarks.diagnosis.assistant --out benchmarks/results/assistant.json",
        "version": __version__,
        "machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)},
        "total": total,
        "recordings": rows,
    }
    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
