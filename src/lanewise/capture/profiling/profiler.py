"""One session of torch's profiler with every call feature-detected: prepare, start, stop, export.

`torch.profiler.profile` is a schedule around `torch.autograd.profiler.profile`. The schedule is ours (`window`), and
its start imports `torch._inductor`: 2.5 s and a compiler inside a program that may never compile. The inner class is
used directly; its two halves of `__enter__` have been there since torch 1.9.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.capture.profiling import history
from lanewise.capture.profiling.own_profiler import OURS
from lanewise.capture.profiling.stderr import profiler_messages
from lanewise.errors import LanewiseError

__all__ = ["Flags", "Session", "has_rows", "profiler_is_running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What to record beside operators, API calls and device work. Each one costs host time while recording.

    Attributes:
        shapes: operator input shapes, types and strides.
        stacks: Python frames and module calls.
        memory: allocator events.
        sync_events: CUDA synchronisation and event records.
        all_threads: operators of every thread, not only of those that inherit the profiler's state.
    """

    shapes: bool = True
    stacks: bool = False
    memory: bool = False
    sync_events: bool = False
    all_threads: bool = False

    def as_dict(self) -> dict[str, bool]:
        """By name, for the metadata."""
        return asdict(self)


class Session:
    """One recording. Methods are called once each, in order, on one thread unless the session is `of_all_threads`.

    Attributes:
        of_all_threads: the session belongs to no thread, known once prepared.
        messages: lines that the profiler wrote to standard error meanwhile.
        costs_ms: `start` (attach and begin), `stop`, `export`.
        missing: names of requested flags that this torch does not offer.
    """

    def __init__(self, flags: Flags, device: str) -> None:
        self.flags = flags
        self.messages: list[str] = []
        self.costs_ms: dict[str, float] = {}
        self.missing: list[str] = []
        self.of_all_threads = False
        self._device = device
        self._profile: Any = None
        self._running = False

    def prepare(self) -> None:
        """Attach to the device; from here on rows are collected and thrown away."""
        with self._timed("start"), profiler_messages(self.messages):
            self._protect_cuda_graphs()
            self._profile = self._make()
            setattr(self._profile, OURS, True)
            history.note("lanewise's recorder")
            self._profile._prepare_trace()

    def start(self) -> None:
        """Keep rows from here on."""
        with self._timed("start"), profiler_messages(self.messages):
            self._profile._start_trace()
            self._running = True

    def stop(self) -> None:
        """Stop and detach. LanewiseError where this thread has no session to stop: torch would end the process."""
        self._running = False
        if not self.of_all_threads and not profiler_is_running():
            raise LanewiseError("torch's profiler was stopped by something else, or on another thread")
        with self._timed("stop"), profiler_messages(self.messages):
            self._profile.__exit__(None, None, None)

    def export(self, path: str) -> None:
        """Write the trace as JSON. Destructive: a second export of the same recording fails in torch.

        LanewiseError if there is nothing to export.
        """
        if not has_rows(self._profile):
            raise LanewiseError("torch's profiler kept no rows: another session took its place")
        with self._timed("export"), profiler_messages(self.messages):
            self._profile.export_chrome_trace(path)
        self._profile = None

    def abandon(self) -> None:
        """Stop if running and forget everything; never raises."""
        try:
            if self._running:
                self.stop()
        except Exception:
            pass
        self._profile = None

    def _make(self) -> Any:
        profiler = torch_part("torch.autograd.profiler")
        wanted: dict[str, Any] = {
            "use_kineto": True,
            "record_shapes": self.flags.shapes,
            "with_stack": self.flags.stacks,
            "profile_memory": self.flags.memory,
        }
        offered = inspect.signature(profiler.profile.__init__).parameters
        if self._device != "cpu":
            wanted.update({"use_device": self._device} if "use_device" in offered else {"use_cuda": True})
        config = self._experimental()
        if config is not None and "experimental_config" in offered:
            wanted["experimental_config"] = config
        return profiler.profile(**wanted)

    def _experimental(self) -> Any:
        try:
            config = torch_part("torch._C._profiler")._ExperimentalConfig
        except (ImportError, AttributeError):
            return None
        wanted = {
            # Python event objects are never read here; without them stopping takes half the time (torch >= 2.13).
            "trace_only": not self.flags.stacks,
            "enable_cuda_sync_events": self.flags.sync_events,
            "profile_all_threads": self.flags.all_threads,
        }
        signature = config.__init__.__doc__ or ""
        offered = {name: value for name, value in wanted.items() if name in signature and value}
        asked = {"enable_cuda_sync_events": "sync_events", "profile_all_threads": "all_threads"}
        self.missing = [flag for name, flag in asked.items() if wanted[name] and name not in offered]
        self.of_all_threads = "profile_all_threads" in offered
        return config(**offered)

    def _protect_cuda_graphs(self) -> None:
        """What `torch.profiler` does for programs with CUDA graphs on CUDA below 12.6, where teardown crashes."""
        version = str(getattr(torch_part().version, "cuda", None) or "")
        if self._device != "cuda" or "torch._inductor" not in sys.modules or not version:
            return
        if tuple(int(part) for part in version.split(".")[:2]) < (12, 6):
            os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
            os.environ["TEARDOWN_CUPTI"] = "0"

    def _timed(self, name: str) -> _Timed:
        return _Timed(self.costs_ms, name)


class _Timed:
    def __init__(self, into: dict[str, float], name: str) -> None:
        self._into, self._name, self._begin = into, name, 0

    def __enter__(self) -> None:
        self._begin = time.perf_counter_ns()

    def __exit__(self, *exception: object) -> None:
        spent = (time.perf_counter_ns() - self._begin) / 1e6
        self._into[self._name] = round(self._into.get(self._name, 0.0) + spent, 3)


def profiler_is_running() -> bool:
    """Whether any torch profiler is recording on this thread."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return False
    asked = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(asked and asked())


def has_rows(profile: Any) -> bool:
    """Whether a stopped profiler, torch's inner or outer one, has something to export; torch crashes where it has not.

    A session that another one took the place of, or that was never started, has none.
    """
    results = getattr(getattr(profile, "profiler", profile), "kineto_results", None)
    began = getattr(results, "trace_start_ns", None) or getattr(results, "trace_start_us", None)
    return results is not None and (began is None or bool(began()))
