"""Runs every program plain, under `run` and under `watch`, and compares exit, output and files: see `programs`.

python -m benchmarks.matrix                 all of them, as a table; exit code 1 if one differs
python -m benchmarks.matrix --only fork     those with the word in their name
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.matrix.programs import PROGRAMS, WORK, Case

WAYS: dict[str, tuple[str, ...]] = {
    "run": ("-m", "lanewise", "run", "--no-explain", "-o", "{out}"),
    "watch": ("-m", "lanewise", "watch", "--force", "-o", "{out}.lw"),
    "windows": ("-m", "lanewise", "watch", "--way", "windows", "--every", "9", "--force", "-o", "{out}.lw"),
}
_SOURCE = Path(__file__).parents[2] / "src"
_OURS = re.compile(r"^lanewise: .*\n?", re.MULTILINE)
# Kineto's own lines, which also plain programs with a profiler write; and what differs from one process to the next.
_NOISE = re.compile(
    r"^(?:USDT:|\[W\d|STAGE:|INFO:|(?:WARNING|ERROR):\d{4}-\d\d-\d\d .*\.cpp:\d+\]|.*0x[0-9a-f]{6,}).*\n?",
    re.MULTILINE,
)
# torch calls a module that any hook sees through a function of its own, which a traceback shows.
_HOOKED = re.compile(
    r'(?:  File "[^"]*/torch/nn/modules/module\.py", line \d+, in (?:_call_impl|inner)\n(?:    .*\n)+)+'
)
_TIMES = re.compile(r"\bin \d+\.\d+s\b")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program did: exit code or signal, both outputs, and the files that it left with their contents."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]

    def differences(self, other: Outcome) -> list[str]:
        """What of `other` is not as here."""
        found: list[str] = []
        if self.code != other.code:
            found.append(f"exit {other.code} instead of {self.code}")
        found += [
            f"{name} {theirs!r} instead of {mine!r}"
            for name, mine, theirs in (("stdout", self.out, other.out), ("stderr", self.err, other.err))
            if mine != theirs
        ]
        if self.files != other.files:
            changed = sorted(n for n in {*self.files, *other.files} if self.files.get(n) != other.files.get(n))
            found.append(f"files {', '.join(changed)}")
        return found


def outcome(case: Case, way: str) -> Outcome:
    """Runs a program in a folder of its own, `plain` or in one of the `WAYS`."""
    with tempfile.TemporaryDirectory() as top:
        # Equal paths for all ways: they appear in tracebacks.
        folder, out = Path(top) / "here", Path(top) / "out"
        folder.mkdir()
        if case.body or case.words == ("program.py",):
            (folder / "program.py").write_text(WORK + case.body + "\n")
        for name, text in case.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        if case.make is not None:
            case.make(folder)
        before = {str(path) for path in folder.rglob("*")}
        words = [word.format(out=out) for word in WAYS.get(way, ())]
        done = _run(case, [sys.executable, *words, *case.words], folder)
        left = [p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
        files = {str(p.relative_to(folder)): p.read_bytes() for p in left if str(p) not in before}
        if "mine.json" in files:
            files["mine.json"] = b"a trace"
        return Outcome(done[0], _clean(done[1], top), _clean(done[2], top), files)


def _run(case: Case, words: list[str], folder: Path) -> tuple[int, str, str]:
    path = os.pathsep.join(filter(None, [case.environment.get("PYTHONPATH"), str(_SOURCE)]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **case.environment, "PYTHONPATH": path}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    opened: list[int] = []
    streams = {name: _stream(getattr(case, name), opened) for name in ("stdout", "stderr")}
    if "closed" in (case.stdout, case.stderr):
        descriptor = 2 if case.stderr == "closed" else 1
        words = ["sh", "-c", f'exec "$@" {descriptor}>&-', "sh", *words]
    process = subprocess.Popen(
        words, cwd=folder, env=environment, stdin=subprocess.PIPE, text=True, errors="replace", **streams
    )  # type: ignore[call-overload]
    try:
        first = ""
        if case.signal:
            first = process.stdout.readline()
            # It goes on to wait, where the signal is to find it.
            time.sleep(0.5)
            process.send_signal(case.signal)
        out, err = process.communicate(input=case.stdin, timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += "did not end"
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return process.returncode, first + (out or ""), err or ""


def _stream(where: str, opened: list[int]) -> int:
    if where in ("", "closed"):
        return subprocess.PIPE
    if where == "gone":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open(where, os.O_WRONLY)
    opened.append(writing)
    return writing


def _clean(text: str, top: str) -> str:
    text = _HOOKED.sub("  <a module's call>\n", _NOISE.sub("", _OURS.sub("", text)))
    return _TIMES.sub("in a while", text).replace(top, "<top>")


def compare(name: str, ways: list[str]) -> dict[str, list[str]]:
    """What differs, by way; the program must do the same twice when it is plain."""
    case = PROGRAMS[name]
    plain = outcome(case, "plain")
    return {way: plain.differences(outcome(case, way)) for way in ways}


def main() -> int:
    """The table; how many programs differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument("--ways", default="run,watch", help=f"of {', '.join(WAYS)}")
    given = parser.parse_args()
    ways = given.ways.split(",")
    # In the background of a shell it is ignored, by the programs, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = [name for name in PROGRAMS if given.only in name]
    wrong: dict[str, list[str]] = {}
    print(f"{'program':36}" + "".join(f"{way:>10}" for way in ways), flush=True)
    for name in names:
        found = compare(name, ways)
        print(f"{name:36}" + "".join(f"{'DIFFERS' if found[way] else 'same':>10}" for way in ways), flush=True)
        for way in ways:
            for line in found[way]:
                wrong.setdefault(name, []).append(line)
                print(f"    {way}: {line[:400]}", flush=True)
    print(f"{len(names)} programs, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
