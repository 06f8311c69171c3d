"""Launches kernels of a cubin on torch's tensors through CUDA's driver, and times them."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

Argument = torch.Tensor | int | float
_SHARED_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Module:
    """The kernels of a cubin, on the current card."""

    def __init__(self, cubin: Path) -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # the context that the driver works in
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), cubin.read_bytes()))

    def _check(self, code: int) -> None:
        if code:
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(name))
            raise RuntimeError(f"CUDA's driver says {(name.value or b'?').decode()}")

    def launcher(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        shared: int = 0,
    ) -> Callable[[], None]:
        """What launches a kernel on torch's current stream, with so many bytes of shared memory more."""
        function = ctypes.c_void_p()
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()))
        if shared:
            self._check(self._driver.cuFuncSetAttribute(function, _SHARED_ATTRIBUTE, shared))
        values = [_value(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in values))

        def launch() -> None:
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            assert len(values) == len(pointers)  # they are pointed to: kept as long as this is
            self._check(self._driver.cuLaunchKernel(function, *grid, *block, shared, stream, pointers, None))

        return launch


def seconds_of(launch: Callable[[], None], times: int = 15) -> float:
    """Seconds that a launch takes on the card, the median of some."""
    taken: list[float] = []
    for at in range(times + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        # All is queued before the card comes to it: the host's time is not in it.
        torch.cuda._sleep(2_000_000)
        begin.record()
        launch()
        end.record()
        end.synchronize()
        if at >= 3:
            taken.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(taken)


def _value(argument: Argument) -> ctypes.c_uint64 | ctypes.c_int32 | ctypes.c_float:
    if isinstance(argument, torch.Tensor):
        return ctypes.c_uint64(argument.data_ptr())
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_int32(argument)
