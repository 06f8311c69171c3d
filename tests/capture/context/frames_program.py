"""Run by any Python with the module of frames_module.c: `frames_program.py FOLDER_OF_MODULE STANDS.py`. Prints "fine"."""

from __future__ import annotations

import importlib.util
import sys
import threading
from typing import Any

sys.path.insert(0, sys.argv[1])
import frames_module

spec = importlib.util.spec_from_file_location("stands", sys.argv[2])
assert spec is not None
assert spec.loader is not None
stands = importlib.util.module_from_spec(spec)
sys.modules["stands"] = stands
spec.loader.exec_module(stands)


def check_stands(raw: bool) -> None:
    """All stands, plainly, in a thread, and while a profile and a trace function are set."""

    def difference() -> str:
        return stands.first_difference(lambda: frames_module.walk(raw)[0])

    assert difference() == ""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(difference()))
    thread.start()
    thread.join()
    assert found == [""], found
    sys.setprofile(lambda *_: None)
    found.append(difference())
    sys.setprofile(None)
    sys.settrace(lambda *_: None)
    found.append(difference())
    sys.settrace(None)
    assert found == ["", "", ""], found


def deep(count: int, raw: bool) -> Any:
    """Walks below `count` frames of its own."""
    return frames_module.walk(raw) if count == 0 else deep(count - 1, raw)


def check_depth(raw: bool) -> None:
    """Of a deep stack both ends are kept, and how much is left out is told."""
    sys.setrecursionlimit(30000)
    here = len(frames_module.walk(raw)[0])
    for count in (10, 64, 127, 128, 129, 191, 500, 4096):
        kept, left_out, _ = deep(count, raw)
        assert len(kept) + left_out == here + count + 1, (count, len(kept), left_out)
        assert len(kept) <= 128
        assert [code.co_name for code, _, _ in kept[:5]] == ["deep"] * 5
        assert kept[-1][0].co_name == "<module>"
        offsets = {offset for code, offset, _ in kept[1:] if code is deep.__code__}
        # A frame that was specialized still tells the offset of its instruction.
        assert len(offsets) == 1, offsets
        assert offsets == {next(offset for code, offset, _ in kept if code is deep.__code__ and offset in offsets)}


class Module:
    """Stands for a network: its call has itself as the first local."""

    def __call__(self, raw: bool, inner: Any) -> Any:
        return inner(raw, None) if inner is not None else frames_module.walk(raw)


def check_modules(raw: bool) -> None:
    """The module of each call of one is seen, and takes part in the hash."""
    frames_module.module_call(Module.__call__.__code__)
    one, other = Module(), Module()
    kept, _, _ = one(raw, other)
    assert [self for code, _, self in kept if code is Module.__call__.__code__] == [other, one]
    assert all(self is None for code, _, self in kept if code is not Module.__call__.__code__)

    class Hashes(Module):
        """Another instance at the same lines."""

    hashes = []
    for module in (one, other, one):
        Module.__call__.__defaults__ = None
        hashes.append(module(raw, lambda raw, _: frames_module.hash(raw)))
    assert hashes[0] == hashes[2]
    assert hashes[0] != hashes[1]


def check_stop(raw: bool) -> None:
    """A walk ends before the activation that it is told to end at."""

    def inner() -> Any:
        return frames_module.walk_to(raw, 2)

    def outer() -> Any:
        return inner()

    kept, _, reached = outer()
    assert [code.co_name for code, _, _ in kept] == ["inner", "outer"]
    assert reached == 1


def check_calls_many_times(raw: bool) -> None:
    """Again after the interpreter has specialized everything."""
    for _ in range(200):
        assert stands.first_difference(lambda: frames_module.walk(raw)[0]) == ""


for way in (True, False):
    if way and not frames_module.raw:
        raise SystemExit("no raw walk")
    check_stands(way)
    check_depth(way)
    check_modules(way)
    check_stop(way)
    check_calls_many_times(way)
print("fine")
