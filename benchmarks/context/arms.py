"""What is attached to a program while it is measured: nothing, `watch`, torch's profiler, or Triton's Proton."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch

import lanewise

__all__ = ["ALL", "KINETO", "PROTON", "WATCH", "attached"]

WATCH: dict[str, dict[str, bool]] = {
    "watch": {},
    "watch_operators": {"frames": False},
    "watch_host": {"device": False},
    "watch_off": {},
    "watch_detach": {},
}
"""Options of `watch`: everything, without Python frames, without the device; begun and switched off, as between the steps
of a duty cycle; and with CUPTI taken out at the end."""

KINETO: dict[str, dict[str, bool]] = {
    "profiler": {},
    "profiler_stack": {"with_stack": True},
    "profiler_all": {"with_stack": True, "record_shapes": True, "profile_memory": True, "with_modules": True},
}
"""Options of torch's profiler."""

PROTON = {"proton_shadow": "shadow", "proton_python": "python"}
"""Triton's profiler with its own scopes as the context, and with Python frames. It collects kernels only."""

ALL = ("null", "empty", *WATCH, *KINETO, *PROTON)


@contextlib.contextmanager
def attached(arm: str, result: dict[str, Any], export: Callable[[], bool] = lambda: True) -> Generator[None]:
    """The arm around what is inside; how long its beginning and its end took, and what it left, go to `result`.

    Args:
        export: whether a trace is written, asked at the end.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin = time.perf_counter_ns()
        stop = _start(arm, folder)
        result["start_ms"] = (time.perf_counter_ns() - begin) / 1e6
        yield
        begin = time.perf_counter_ns()
        result |= stop(export())
        result["stop_ms"] = (time.perf_counter_ns() - begin) / 1e6
        files = [path for path in folder.rglob("*") if path.is_file()]
        if files:
            result["bytes"] = sum(path.stat().st_size for path in files)


def _start(arm: str, folder: Path) -> Any:
    if arm in WATCH:
        return _start_watch(WATCH[arm], folder, detach=arm == "watch_detach", off=arm == "watch_off")
    if arm in KINETO:
        return _start_kineto(KINETO[arm], folder)
    if arm in PROTON:
        return _start_proton(PROTON[arm], folder)
    return lambda _: {}


def _start_watch(options: dict[str, bool], folder: Path, *, detach: bool, off: bool) -> Any:
    watcher = lanewise.watch(folder / "run.lw", measure=False, way="native", **options)
    watcher.start()
    collector: Any = watcher._collector
    if off:
        collector.off()

    def stop(_: bool) -> dict[str, Any]:
        watcher.stop()
        tree = watcher.tree
        watched = tree.info.watched
        assert watched is not None
        counts = collector._module.snapshot()["device"]
        detached = collector._module.device_detach() if detach else "no"
        return {
            "detached": detached,
            "contexts": len(tree),
            "callbacks": watched.callbacks,
            "callback_ns": watched.callback_ns,
            "losses": watched.losses,
            "device": watched.device,
            "frames": watched.frames,
            "linked": [tree.info.linked, tree.info.backward],
            "counts": counts,
        }

    return stop


def _start_kineto(options: dict[str, bool], folder: Path) -> Any:
    profiler = torch.profiler.profile(**options)
    profiler.start()

    def stop(export: bool) -> dict[str, Any]:
        profiler.stop()
        if export:
            profiler.export_chrome_trace(str(folder / "trace.json"))
        return {}

    return stop


def _start_proton(context: str, folder: Path) -> Any:
    import triton.profiler as proton

    proton.start(str(folder / "run"), context=context, data="tree")

    def stop(_: bool) -> dict[str, Any]:
        proton.finalize()
        return {}

    return stop
