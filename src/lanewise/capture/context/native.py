"""The native collector as one object: begin, on and off at step boundaries, a tree at any time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from lanewise.capture import machine
from lanewise.capture.accelerator import current_device
from lanewise.capture.context import native_build
from lanewise.capture.context.checks.frame_checks import first_difference
from lanewise.capture.context.checks.selfcheck import check_device, check_operators, cost_of_callback
from lanewise.capture.context.loops import loops
from lanewise.capture.context.module_paths import ModuleNames
from lanewise.capture.context.saver import NativeEndings
from lanewise.capture.context.sites import frame_name, line_of
from lanewise.capture.lazy_torch import torch_part
from lanewise.errors import LanewiseError
from lanewise.tree.watching.watched import Watched

if TYPE_CHECKING:
    from lanewise.tree.watching.collected import Collected

__all__ = ["MAX_NODES", "Native"]

MAX_NODES = 200_000


class Native:
    """Collects operators, backward functions, user scopes, modules and Python frames of every thread.

    Args:
        log: is told what takes time.
        frames: collect Python frames and modules.
        device: collect kernels, copies and sets through CUPTI, from when the program first uses the device.
        or_nothing: raise where only torch's profiler can collect from the device, instead of doing without it.
        max_nodes: contexts in all; what comes after is counted under `<truncated>`.

    Raises:
        BuildError: it cannot be compiled or loaded here.
        LanewiseError: the self-check failed, or see `or_nothing`.

    Attributes:
        checks: what was verified, by name; "" where all is well.
        frames: how Python frames are read: "raw", "public" or "none".
        callback_ns: what folding one operator costs, ns.
    """

    way = "native"
    windowed = False

    def __init__(
        self,
        log: Callable[[str], None] = lambda _: None,
        *,
        frames: bool = True,
        device: bool = True,
        or_nothing: bool = False,
        max_nodes: int = MAX_NODES,
    ) -> None:
        global _found_out
        self.device = _why_no_device() if device else "not collected: device=False"
        if or_nothing and _ROCM in self.device:
            raise LanewiseError(_ROCM)
        self._module: Any = native_build.load(log=log)
        if _found_out is None:
            _found_out = _FoundOut(self._module)
        found = _found_out
        self.checks = dict(found.checks)
        self.frames = found.walk if frames else "none"
        self.callback_ns = found.callback_ns
        found.configure(self.frames, max_nodes)
        wrong = check_operators(self._in_session, frames=self.frames != "none")
        if wrong:
            raise LanewiseError(f"the collector failed its self-check: {wrong}")
        if not self.callback_ns:
            self.callback_ns = found.callback_ns = cost_of_callback(self._module.on, self._module.off)
        self._log = log
        self._closed = self._lent = False
        self._early = _Early({}, {})
        if not self.device:
            self.device = "not collected: no device was used"
            self._when_device_is_used(or_nothing)
        self._module.begin()
        self._begun: tuple[int, int] = self._module.clock()

    def _when_device_is_used(self, or_nothing: bool) -> None:
        """At once where the program has initialised CUDA, else when it does: a device is nothing to touch unasked."""
        cuda: Any = torch_part("torch.cuda")
        if cuda.is_initialized() or not hasattr(cuda, "_lazy_call"):
            self._device_on(or_nothing)
            return

        def initialised() -> None:
            # An error here would be the program's.
            with contextlib.suppress(Exception):
                self._device_on(False)

        cuda._lazy_call(initialised)

    def _device_on(self, or_nothing: bool) -> None:
        if self._closed:
            return
        wrong, held = self._module.device_on(native_build.cupti_library())
        if held and or_nothing:
            raise LanewiseError(wrong)
        # What is asked for while CUDA is being initialised must not use it.
        if not wrong and torch_part("torch.cuda").is_initialized() and not self._module.is_on():
            wrong = self.checks["device"] = check_device(self._in_session)
            if wrong:
                self._module.device_off()
        self.device = f"not collected: {wrong}" if wrong else "collected"

    def _in_session(self, work: Callable[[], Any]) -> dict[str, Any]:
        self._module.begin()
        self._module.on()
        try:
            work()
        finally:
            self._module.off()
        self._module.device_flush()
        return self._module.snapshot()

    def endings(self) -> NativeEndings:
        """Takes the signals that end the program."""
        return NativeEndings(self._module)

    def started_up(self) -> None:
        """See `Collector`."""
        raw = self._module.snapshot()
        self._early = _Early(
            {one["index"]: (_numbers(one["calls"]), _numbers(one["ticks"])) for one in raw["threads"]},
            {tuple(leaf[:4]): leaf for leaf in raw["leaves"]},
        )

    def ready(self) -> None:
        """Nothing to warm up."""

    def on(self) -> None:
        """Operators are folded from here on."""
        if self._lent:
            self._lent = False
            self._take_back()
        self._module.on()

    def off(self) -> None:
        """Operators cost what they cost without us."""
        self._module.off()

    @contextlib.contextmanager
    def uncounted(self) -> Generator[None]:
        """See `Collector`."""
        begun, _ = self._module.clock()
        try:
            yield
        finally:
            self._module.leave_out(begun)

    def make_way(self) -> None:
        """See `Collector`. CUPTI has room for one subscriber, and libkineto, where it finds another one when it is first
        used, records no device in this process ever."""
        self._module.off()
        if self.device == "collected":
            self._lent = True
            current_device().synchronize()
            self._module.device_off()

    def _take_back(self) -> None:
        """libkineto keeps its subscription (torch before 2.14), though it needs none once it has begun: CUPTI is taken out
        of the process and enters it anew."""
        current_device().synchronize()
        library = native_build.cupti_library()
        wrong, held = self._module.device_on(library)
        if held and not (wrong := self._module.device_detach()):
            wrong, _ = self._module.device_on(library)
        if wrong:
            self.device = f"not collected after a profiler of torch's: {wrong}"
            self._log(f"from here on nothing is collected from the device: {wrong}")

    def close(self) -> None:
        """Nothing more will come. Waits for the device, whose last records are still on their way."""
        self._closed = True
        self._module.off()
        if self.device == "collected":
            current_device().synchronize()
            self._module.device_off()

    def capture_begins(self) -> str:
        """What is captured into a CUDA graph is noted with its contexts, until `capture_ends`; why it cannot be, or ""."""
        wrong, _ = self._module.device_on(native_build.cupti_library(), False)
        if not wrong:
            self._module.on()
        return wrong

    def capture_ends(self) -> list[tuple[int, int, int]]:
        """The graph's nodes in their order: reference of the context, kind (0 kernel, 1 copy, 2 set) and row of the name of
        the kernel. Nothing is asked of the device, which is still capturing."""
        self._module.off()
        return self._module.device_captured()

    def capture_is_over(self) -> None:
        """Nothing of ours is called any more."""
        self._module.device_off()

    def leave_device(self) -> None:
        """CUPTI goes out of the process, beside which short launches take longer; unless somebody else has subscribed."""
        wrong, _ = self._module.device_on(native_build.cupti_library(), False)
        if not wrong:
            self._module.device_off()
            self._module.device_detach()

    def tree(self, watched: Watched, *, source: str, lines: bool) -> Any:
        """The tree as it is now, while threads go on."""
        from lanewise.tree.watching.collected import CollectedLeaf, tree_of

        self._module.device_flush()
        collected = self.collected(lines=lines)
        leaves = [CollectedLeaf(*part) for leaf in collected[1] for part in self._early.parted(leaf)]
        return tree_of(replace(collected[0], leaves=leaves), watched, source=source, lines=lines)

    def collected(self, *, lines: bool) -> tuple[Collected, list[tuple[Any, ...]]]:
        """Contexts as they are now, and device work beside them."""
        import numpy as np

        from lanewise.tree.watching.collected import Collected, CollectedThread

        raw = self._module.snapshot()
        per_tick = self._ns_per_tick()
        threads = [
            CollectedThread(
                index=one["index"],
                parent=np.frombuffer(one["parent"], dtype=np.uint32),
                kind=np.frombuffer(one["kind"], dtype=np.uint8),
                flags=np.frombuffer(one["flags"], dtype=np.uint8),
                name=np.frombuffer(one["name"], dtype=np.uint32),
                forward=np.frombuffer(one["forward"], dtype=np.uint64).astype(np.int64),
                calls=_numbers(one["calls"]),
                host=np.round(_numbers(one["ticks"]) * per_tick).astype(np.int64),
                early=self._early.of_thread(one["index"], _numbers(one["calls"]), _numbers(one["ticks"]), per_tick),
            )
            for one in raw["threads"]
        ]
        collected = Collected(
            threads=threads,
            names=raw["names"],
            sites=[frame_name(code) for code, _ in raw["sites"]],
            lines=[line_of(code, offset) for code, offset in raw["sites"]] if lines else [],
            backward=sum(one["numbered_backward"] for one in raw["threads"]),
            linked=sum(one["linked_backward"] for one in raw["threads"]),
            accumulated=sum(one["accumulated"] for one in raw["threads"]),
            devices=machine.devices_in_use() if self.device == "collected" else (),
        )
        return collected, raw["leaves"]

    @property
    def followed(self) -> Native:
        """See `Collector`."""
        return self

    def sums(self) -> Sums:
        """See `Source`."""
        device = self.device == "collected"
        if device:
            self._module.device_flush()
        threads, leaves = self._module.sums(device)
        return Sums(threads, leaves, self._ns_per_tick())

    def contexts(self) -> dict[str, Any]:
        """See `Source`."""
        return self._module.snapshot()

    def _ns_per_tick(self) -> float:
        tick, ns = self._module.clock()
        return (ns - self._begun[1]) / max(tick - self._begun[0], 1)

    def counts(self) -> tuple[int, dict[str, int]]:
        """Operators folded so far, and losses that are not zero."""
        raw = self._module.snapshot()
        device = raw["device"]
        found = dict(raw["losses"]) | {
            "records_unmatched": device["unmatched"],
            "records_dropped": device["dropped"],
            "records_unfinished": device["unfinished"],
            "graphs_before": device["graphs_before"],
            # Before the end some are still running.
            "kernels_missing": max(0, device["kernels"] - device["kernel_records"]) if self._closed else 0,
        }
        losses = {name: number for name, number in found.items() if number}
        return sum(one["callbacks"] for one in raw["threads"]), losses


class Sums(NamedTuple):
    """As of `lanewise.tree.slowing.looks.since_last`."""

    threads: list[tuple[int, bytes, bytes, bytes]]
    leaves: list[tuple[Any, ...]]
    ns_per_tick: float


class _Early(NamedTuple):
    """What there was when the first step had ended.

    Attributes:
        threads: calls and ticks of each context, by number of the thread. leaves: by their first four values.
    """

    threads: dict[int, tuple[Any, Any]]
    leaves: dict[tuple[Any, ...], tuple[Any, ...]]

    def of_thread(self, index: int, calls: Any, ticks: Any, per_tick: float) -> Any:
        """Calls and ns of the contexts that there are now; None if there were none, or of another thread."""
        import numpy as np

        known = self.threads.get(index)
        if known is None or len(known[0]) > len(calls):
            return None
        early = [np.concatenate((part, np.zeros(len(calls) - len(part), np.int64))) for part in known]
        if (early[0] > calls).any() or (early[1] > ticks).any():
            return None
        return early[0], np.round(early[1] * per_tick).astype(np.int64)

    def parted(self, leaf: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Device work as what came early and what came later; the extremes are those of both."""
        early = self.leaves.get(tuple(leaf[:4]))
        if early is None or early[4] > leaf[4]:
            return [leaf]
        extremes = (7, 8)
        late = [
            now if at < 4 or at in extremes else now - then
            for at, (now, then) in enumerate(zip(leaf, early, strict=True))
        ]
        return [(*early, True), *([tuple(late)] if late[4] else [])]


def _numbers(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, dtype=np.uint64).astype(np.int64)


class _FoundOut:
    """What is found out once per process: how frames can be read, what a callback costs, names of modules."""

    def __init__(self, module: Any) -> None:
        self.checks: dict[str, str] = {}
        self.callback_ns = 0.0
        self._module = module
        self._names = ModuleNames(module.modules_changed)
        # Kept: the native side holds on to it for as long as the process lives.
        self._describe = self._names.describe
        self.walk = self._choose_walk()

    def configure(self, walk: str, max_nodes: int) -> None:
        """How the next session collects."""
        module_class = torch_part("torch.nn").Module
        scope = torch_part("torch.autograd.profiler").record_function
        self._module.configure(
            frames=walk != "none",
            raw=walk == "raw",
            module_call=getattr(module_class.__call__, "__code__", None),
            scope_enter=getattr(scope.__enter__, "__code__", None),
            describe=self._describe,
            loops=loops,
            most_nodes=max_nodes,
            steady_counter=_counter_is_steady(),
        )

    def _choose_walk(self) -> str:
        wrong = "Python's internal headers are missing"
        if self._module.raw_frames:
            wrong = first_difference(lambda: self._module.frames(True))
        if not wrong:
            self.checks["frames"] = ""
            return "raw"
        worse = first_difference(lambda: self._module.frames(False))
        self.checks["frames"] = (
            f"{worse}: no frames are collected" if worse else f"{wrong}: frames are read with the GIL"
        )
        return "none" if worse else "public"


_found_out: _FoundOut | None = None


_ROCM = "this torch is for ROCm, whose kernels only torch's profiler sees"


def _why_no_device() -> str:
    """Why there is no device to collect from, or "" if there may be one."""
    version: Any = torch_part().version
    if getattr(version, "hip", None):
        return f"not collected: {_ROCM}"
    return "" if getattr(version, "cuda", None) else "not collected: this torch is a CPU build"


def _counter_is_steady() -> bool:
    """Whether the processor's own counter has one rate and never stops."""
    if sys.platform != "linux":
        return False
    try:
        with open("/sys/devices/system/clocksource/clocksource0/current_clocksource", encoding="ascii") as source:
            if source.read().strip() == "tsc":
                return True
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            flags = next((line for line in info if line.startswith("flags")), "").split()
    except OSError:
        return False
    return "constant_tsc" in flags and "nonstop_tsc" in flags
