"""One measurement in a process of its own: `case.py WHAT TRACE` prints seconds, CPU seconds and peak MB as JSON.

Peak memory is this process's, plus that of the largest child where there is one: never less than what was used at once.
Seconds of the whole-program cases include the start of the interpreter; of the others, not even the imports.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COMMAND = "from lanewise.cli.main import main; main()"


def read(path: str) -> None:
    """Into columns."""
    from lanewise.trace.reader import read as read_trace

    assert len(read_trace(path, cache=False)) > 0


def read_in_one_process(path: str) -> None:
    """The same without the second process."""
    os.environ["LANEWISE_ONE_PROCESS"] = "1"
    read(path)


def orjson_off(path: str) -> None:
    """`orjson.loads`, the garbage collector off, reading the file included."""
    import orjson

    gc.disable()
    orjson.loads(Path(path).read_bytes())


def json_off(path: str) -> None:
    """The standard library, the garbage collector off."""
    gc.disable()
    json.loads(Path(path).read_bytes())


def msgspec_off(path: str) -> None:
    """msgspec without types, the garbage collector off."""
    import msgspec

    gc.disable()
    msgspec.json.decode(Path(path).read_bytes())


def program(*arguments: str) -> Callable[[str], None]:
    """The command line, in a process of its own."""

    def run(path: str) -> None:
        words = [word.format(path=path) for word in arguments]
        subprocess.run([sys.executable, "-c", COMMAND, *words], check=True, stdout=subprocess.DEVNULL)

    return run


CASES: dict[str, Callable[[str], None]] = {
    "read": read,
    "read in one process": read_in_one_process,
    "orjson.loads, gc off": orjson_off,
    "json.loads, gc off": json_off,
    "msgspec untyped, gc off": msgspec_off,
    "explain": program("explain", "--json", "--no-cache", "{path}"),
    "explain and keep": program("explain", "--json", "{path}"),
    "explain from the cache": program("explain", "--json", "{path}"),
    "explain anew from the cache": program("explain", "--json", "--ignore", "KER113", "{path}"),
    "help": program("--help"),
}


def main() -> None:
    """Run one case."""
    case, path = CASES[sys.argv[1]], sys.argv[2]
    for module in ("orjson", "msgspec", "lanewise.trace.reader", "lanewise.trace.model"):
        importlib.import_module(module)
    begun = time.perf_counter()
    case(path)
    seconds = time.perf_counter() - begun
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    whole_program = sys.argv[1] in (*(name for name in CASES if name.startswith("explain")), "help")
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_seconds": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
                "peak_mb": ((0 if whole_program else own.ru_maxrss) + children.ru_maxrss) / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
