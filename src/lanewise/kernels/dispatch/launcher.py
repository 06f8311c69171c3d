"""A launch path that skips what does not change between calls.

`kernel[grid](...)` binds the arguments, specialises each of them, computes a cache key and checks hooks and globals
on every call: tens of microseconds of Python on a slow host, where an aten operator takes under ten. A `Kernel`
remembers, per caller-supplied key, the compiled binary and everything but the pointers, and calls the C launcher
directly.

The key must determine all that the compiled binary was specialised on: shapes, strides, dtypes, flags and the device.
Whether each pointer is 16-byte aligned, which decides the width of loads and stores, is added to it here.

The direct call is used for the Triton releases whose launcher it was written and tested against; for any other the
compiled kernel's own runner is called, which is slower and correct. Launch hooks (profilers that live inside Triton)
switch it off for as long as they are installed.
"""

# Private parts of torch have no types, or change them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
import triton
from torch._library.triton import is_wrap_triton_enabled
from torch._subclasses.fake_tensor import FakeTensor
from torch.library import wrap_triton
from triton import knobs

__all__ = [
    "INTERPRETED",
    "Kernel",
    "Launch",
    "NoRoomError",
    "Remembered",
    "clusters",
    "current_device",
    "direct",
    "raw_stream",
    "resident",
    "sm_count",
]

INTERPRETED: bool = bool(knobs.runtime.interpret)
"""True when kernels run in Triton's interpreter (TRITON_INTERPRET=1), on CPU tensors."""

_DIRECT_RELEASES = ("3.6.",)
_MAX_REMEMBERED = 4096

raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)


def direct() -> bool:
    """Whether the direct call to the C launcher is used in this installation."""
    return not INTERPRETED and triton.__version__.startswith(_DIRECT_RELEASES)


@functools.cache
def clusters(device: torch.device) -> bool:
    """Whether programs can be launched in clusters that exchange data through shared memory."""
    return direct() and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch, without its tensors: what a key stands for.

    `scalars` follow the tensors in the kernel's signature, `meta` (the constexpr parameters) follows the scalars.
    `cluster` > 0 launches every entry of the grid as a cluster of that many programs, which run at the same time and
    have consecutive numbers; with `fit`, only as many clusters as the card holds at once, evenly loaded.
    `max_registers` bounds the registers of a thread, 0 leaves it to the compiler.
    """

    grid: tuple[int, ...]
    scalars: tuple[int | float, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    num_warps: int = 4
    num_stages: int = 3
    cluster: int = 0
    fit: bool = False
    max_registers: int = 0

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.max_registers:
            options["maxnreg"] = self.max_registers
        return options


class Remembered:
    """A compiled kernel with every argument bound except the pointers."""

    __slots__ = ("_device", "_run", "bound", "compiled", "grid", "head", "tail", "tensors")

    def __init__(self, compiled: Any, launch: Launch, device: int, tensors: int) -> None:
        self.compiled = compiled
        self.tensors = tensors
        """How many pointers the kernel takes."""
        self._device = device
        x, y, z = (*launch.grid, 1, 1)[:3]
        self.grid: tuple[int, int, int] = (x, y, z)
        """Programs, or clusters of programs, along each axis."""
        self.tail: tuple[Any, ...] = (*launch.scalars, *launch.meta.values())
        """What follows the pointers in the signature."""
        launcher = compiled.run
        self.bound: Any = launcher.launch if direct() and not launcher.global_scratch_size else None
        """Triton's launcher in C, or None where it is not called directly."""
        self._run = compiled[self.grid]
        self.head: tuple[Any, ...] = ()
        """What stands between the stream and the pointers."""
        if self.bound is not None:
            metadata = compiled.packed_metadata
            if launch.cluster:
                metadata = (metadata[0], launch.cluster, metadata[2])
            self.head = (
                compiled.function,
                launcher.launch_cooperative_grid,
                launcher.launch_pdl,
                None,  # global scratch
                None,  # profile scratch
                metadata,
                None,  # launch metadata
                None,  # enter hook
                None,  # exit hook
            )
        elif launch.cluster:
            raise NoRoomError("clusters need the direct launch")

    def __call__(self, pointers: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
        device = self._device
        if current_device() != device:
            with torch.cuda.device(device):
                self._go(pointers, tensors)
        else:
            self._go(pointers, tensors)

    def _go(self, pointers: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
        if self.bound is None:
            self._run(*tensors, *self.tail)
            return
        stream = raw_stream(self._device)
        head = self.head
        if _hooked():
            about = self.compiled.launch_metadata(self.grid, stream, *tensors, *self.tail)
            head = (*head[:-3], about, _RUNTIME.launch_enter_hook, _RUNTIME.launch_exit_hook)
        self.bound(*self.grid, stream, *head, *pointers, *self.tail)


def _hooked() -> bool:
    enter, leave = _RUNTIME.launch_enter_hook, _RUNTIME.launch_exit_hook
    return bool(getattr(enter, "calls", enter)) or bool(getattr(leave, "calls", leave))


_RUNTIME = knobs.runtime


class Kernel:
    """A Triton kernel and the launches it remembers."""

    instances: ClassVar[list[Kernel]] = []
    derived: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    """What holds launches of kernels in another form, to be cleared when they are forgotten."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        Kernel.instances.append(self)
        self._remembered: dict[Hashable, Remembered] = {}

    def __call__(
        self, key: Hashable, tensors: Sequence[torch.Tensor], launch: Callable[[], Launch]
    ) -> Remembered | None:
        """Launch on real tensors; `launch()` is asked only when `key` is new.

        Returns what was remembered if it holds for all aligned tensors of that key, so that a caller can keep it.
        """
        if INTERPRETED:
            what = launch()
            if 0 not in what.grid:
                self.fn[what.grid](*tensors, *what.scalars, **what.meta)
            return None
        pointers = [tensor.data_ptr() for tensor in tensors]
        low_bits = 0
        for pointer in pointers:
            low_bits |= pointer
        if low_bits & 15:
            key = (key, tuple([not pointer & 15 for pointer in pointers]))
        remembered = self._remembered.get(key)
        if remembered is not None:
            remembered(pointers, tensors)
            return None if low_bits & 15 else remembered
        what = launch()
        if 0 in what.grid:
            return None
        self._check(len(tensors), what)
        device = tensors[0].device.index
        with torch.cuda.device(device):
            if what.cluster:
                compiled = self.fn.warmup(*tensors, *what.scalars, grid=what.grid, **what.meta, **what.options)
                if what.fit:
                    what = _fit(what, compiled, tensors[0].device)
                remembered = Remembered(compiled, what, device, len(tensors))
                try:
                    remembered(pointers, tensors)
                except RuntimeError as error:  # the driver refuses a cluster that no multiprocessors can hold
                    raise NoRoomError(f"a cluster of {what.cluster} programs of {compiled.name}: {error}") from error
            else:
                compiled = self.fn[what.grid](*tensors, *what.scalars, **what.meta, **what.options)
                remembered = Remembered(compiled, what, device, len(tensors))
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = remembered
        return None if low_bits & 15 else remembered

    def _check(self, tensors: int, launch: Launch) -> None:
        """The direct call passes arguments by position, so the order of the signature is a contract."""
        after = list(self.fn.arg_names)[tensors + len(launch.scalars) :]
        if after != list(launch.meta):
            raise AssertionError(f"{self.fn.__name__} takes {after} after its scalars, got {list(launch.meta)}")

    def trace(self, tensors: Sequence[torch.Tensor], launch: Launch) -> None:
        """Launch in a way that torch.compile, export and fake tensors can see through."""
        if 0 in launch.grid:
            return
        if INTERPRETED:
            # The interpreter computes; on a fake tensor there is nothing to compute with.
            if not any(isinstance(tensor, FakeTensor) for tensor in tensors):
                self.fn[launch.grid](*tensors, *launch.scalars, **launch.meta)
        elif not is_wrap_triton_enabled():
            # The registered operator, called on real tensors: nobody is tracing.
            meta = tuple(launch.meta.items())
            key = (launch.grid, launch.scalars, meta, launch.num_warps, *[t.dtype for t in tensors], tensors[0].device)
            self(key, tensors, lambda: launch)
        else:
            wrap_triton(self.fn)[launch.grid](
                *tensors, *launch.scalars, **launch.meta, num_warps=launch.num_warps, num_stages=launch.num_stages
            )

    def compiled(self) -> list[Any]:
        """The binaries remembered so far: their registers, spills and shared memory are in `n_regs`, `n_spills`,
        `metadata.shared`."""
        return [remembered.compiled for remembered in self._remembered.values()]

    def forget(self) -> None:
        """Drop what is remembered (another configuration is to be used for a key that was seen)."""
        self._remembered.clear()
        for held in Kernel.derived:
            held.clear()


class NoRoomError(RuntimeError):
    """The card cannot hold one cluster of the programs; run the kernel in phases instead."""


def resident(compiled: Any) -> int:
    """Programs of a compiled kernel that one multiprocessor holds at once (Hopper's limits).

    64 K registers in four partitions, handed out per warp in units of 256; 2048 threads; 227 KB of shared memory, of
    which each program takes 1 KB besides its own.
    """
    compiled._init_handles()
    warps = compiled.metadata.num_warps
    per_warp = -(-compiled.n_regs * 32 // 256) * 256
    by_registers = 4 * (16384 // per_warp) // warps
    by_shared = 232448 // (compiled.metadata.shared + 1024)
    return max(min(by_registers, 64 // warps, by_shared, 32), 1)


def _fit(launch: Launch, compiled: Any, device: torch.device) -> Launch:
    """Clusters stay within a group of multiprocessors (16 or 18 on Hopper): what does not make a whole is left out."""
    room = sm_count(device) // 16 * 16 or sm_count(device)
    most = max(resident(compiled) * room // launch.cluster, 1)
    wanted = launch.grid[0]
    return replace(launch, grid=(-(-wanted // -(-wanted // most)),))


_SM_COUNT: dict[int, int] = {}


def sm_count(device: torch.device) -> int:
    """Multiprocessors of the device; 4 in the interpreter, so that persistent loops run more than one round."""
    if device.type != "cuda":
        return 4
    index = device.index or 0
    if index not in _SM_COUNT:
        _SM_COUNT[index] = torch.cuda.get_device_properties(index).multi_processor_count
    return _SM_COUNT[index]
