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

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
import triton
from torch._library.triton import is_wrap_triton_enabled
from torch._subclasses.fake_tensor import FakeTensor
from torch.library import wrap_triton
from triton import knobs

__all__ = ["INTERPRETED", "Kernel", "Launch", "Memo", "NoRoomError", "Remembered", "direct", "resident", "sm_count"]

INTERPRETED: bool = bool(knobs.runtime.interpret)
"""True when kernels run in Triton's interpreter (TRITON_INTERPRET=1), on CPU tensors."""

_DIRECT_RELEASES = ("3.6.",)
_MAX_REMEMBERED = 4096

_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)


def direct() -> bool:
    """Whether the direct call to the C launcher is used in this installation."""
    return not INTERPRETED and triton.__version__.startswith(_DIRECT_RELEASES)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch, without its tensors: what a key stands for.

    `scalars` follow the tensors in the kernel's signature, `meta` (the constexpr parameters) follows the scalars.
    `together` > 0 marks a kernel whose programs wait for each other in groups of that many: all programs are then
    resident at once (a cooperative launch), and the grid is cut down to the groups that the card has room for, evenly
    loaded. `max_registers` bounds the registers of a thread, 0 leaves it to the compiler.
    """

    grid: tuple[int, ...]
    scalars: tuple[int | float, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    num_warps: int = 4
    num_stages: int = 3
    together: int = 0
    max_registers: int = 0

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.together:
            options["launch_cooperative_grid"] = True
        if self.max_registers:
            options["maxnreg"] = self.max_registers
        return options


class Remembered:
    """A compiled kernel with every argument bound except the pointers."""

    __slots__ = ("_bound", "_device", "_grid", "_head", "_launch", "_run", "_tail", "compiled")

    def __init__(self, compiled: Any, launch: Launch, device: int) -> None:
        self.compiled = compiled
        self._device = device
        x, y, z = (*launch.grid, 1, 1)[:3]
        self._grid = (x, y, z)
        self._tail = (*launch.scalars, *launch.meta.values())
        launcher = compiled.run
        self._launch = launcher.launch if direct() and not launcher.global_scratch_size else None
        self._run = compiled[self._grid]
        self._head: tuple[Any, ...] = ()
        if self._launch is not None:
            self._head = (
                compiled.function,
                launcher.launch_cooperative_grid,
                launcher.launch_pdl,
                None,  # global scratch
                None,  # profile scratch
                compiled.packed_metadata,
                None,  # launch metadata
                None,  # enter hook
                None,  # exit hook
            )
            self._bound = functools.partial(self._launch, *self._grid)

    def go(self, *tensors: torch.Tensor) -> bool:
        """Launch if nothing but the tensors' addresses changed; False, and nothing done, if it takes a closer look."""
        pointers = [tensor.data_ptr() for tensor in tensors]
        low_bits = 0
        for pointer in pointers:
            low_bits |= pointer
        if low_bits & 15 or self._launch is None or _current_device() != self._device or _hooked():
            return False
        self._bound(_raw_stream(self._device), *self._head, *pointers, *self._tail)
        return True

    def __call__(self, pointers: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
        device = self._device
        if _current_device() != device:
            with torch.cuda.device(device):
                self._go(pointers, tensors)
        else:
            self._go(pointers, tensors)

    def _go(self, pointers: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
        if self._launch is None or _hooked():
            self._run(*tensors, *self._tail)
        else:
            self._launch(*self._grid, _raw_stream(self._device), *self._head, *pointers, *self._tail)


def _hooked() -> bool:
    enter, leave = _RUNTIME.launch_enter_hook, _RUNTIME.launch_exit_hook
    return bool(getattr(enter, "calls", enter)) or bool(getattr(leave, "calls", leave))


_RUNTIME = knobs.runtime


class Kernel:
    """A Triton kernel and the launches it remembers."""

    instances: ClassVar[list[Kernel]] = []

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
            if what.together:
                compiled = self.fn.warmup(*tensors, *what.scalars, grid=what.grid, **what.meta, **what.options)
                what = _fit(what, compiled, tensors[0].device)
            compiled = self.fn[what.grid](*tensors, *what.scalars, **what.meta, **what.options)
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        remembered = self._remembered[key] = Remembered(compiled, what, device)
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
        for memo in Memo.instances:
            memo.clear()


class Memo(dict[Hashable, Any]):
    """What a public function remembers per kind of call, to launch without looking at it again; bounded."""

    instances: ClassVar[list[Memo]] = []

    def __init__(self) -> None:
        super().__init__()
        Memo.instances.append(self)

    def __setitem__(self, key: Hashable, value: Any) -> None:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        super().__setitem__(key, value)


class NoRoomError(RuntimeError):
    """The card cannot hold one group of programs that wait for each other; run the kernel in phases instead."""


def resident(compiled: Any) -> int:
    """Programs of a compiled kernel that one multiprocessor holds at once (Hopper's limits; older ones are lower).

    64 K registers in four partitions, handed out per warp in units of 256; 2048 threads; 227 KB of shared memory, of
    which each program takes 1 KB besides its own.
    """
    compiled._init_handles()
    warps = compiled.metadata.num_warps
    per_warp = -(-compiled.n_regs * 32 // 256) * 256
    by_registers = 4 * (16384 // per_warp) // warps
    by_threads = 2048 // (32 * warps)
    by_shared = 232448 // (compiled.metadata.shared + 1024)
    return max(min(by_registers, by_threads, by_shared, 32), 0)


def _fit(launch: Launch, compiled: Any, device: torch.device) -> Launch:
    most = resident(compiled) * sm_count(device) // launch.together
    if most == 0:
        raise NoRoomError(f"{launch.together} programs of {compiled.name} do not fit the card at once")
    wanted = launch.grid[0] // launch.together
    rounds = -(-wanted // most)
    return replace(launch, grid=(-(-wanted // rounds) * launch.together,))


_SM_COUNT: dict[int, int] = {}


def sm_count(device: torch.device) -> int:
    """Multiprocessors of the device; 4 in the interpreter, so that persistent loops run more than one round."""
    if device.type != "cuda":
        return 4
    index = device.index or 0
    if index not in _SM_COUNT:
        _SM_COUNT[index] = torch.cuda.get_device_properties(index).multi_processor_count
    return _SM_COUNT[index]
