"""Settings of the process that a program may change while it runs: what they are, and how they are put back."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.process_state import devices_set
from lanewise.fix.typed_torch import torch

__all__ = ["changed_settings", "put_back", "settings"]

_clocks = ("perf_counter", "perf_counter_ns", "monotonic", "time")


class _Setting(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], Any]


def _flag(owner: Any, name: str) -> _Setting:
    return _Setting(partial(getattr, owner, name), partial(setattr, owner, name))


def _collect(on: bool) -> None:
    gc.enable() if on else gc.disable()


def _with_names(function: Callable[..., Any], kept: dict[str, Any]) -> None:
    function(**kept)


def _flushes() -> bool:
    """Whether results below the smallest normal number become zero."""
    return not bool(torch.tensor(1e-40) * 1.0)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(kept: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(kept[0], warn_only=kept[1])


def _set_default_device(kept: list[str]) -> None:
    torch.set_default_device(kept[-1] if kept else None)


def _printing() -> dict[str, Any]:
    return dict(vars(torch_part("torch._tensor_str").PRINT_OPTS))


def _set_printing(kept: dict[str, Any]) -> None:
    vars(torch_part("torch._tensor_str").PRINT_OPTS).update(kept)


_PRODUCTS = (
    "allow_tf32",
    "allow_fp16_accumulation",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)


def _of_backends() -> Iterator[tuple[str, _Setting]]:
    """Everything that torch lets a program set in one of its backends; which there are differs from version to version."""
    prefix, found = "torch.backends.", torch_part("torch.backends").ContextProp
    for name in sorted(name for name in sys.modules if name.startswith(prefix)):
        module = sys.modules[name]
        names = {one for kind in type(module).__mro__ for one, value in vars(kind).items() if isinstance(value, found)}
        yield from ((f"{name.removeprefix(prefix)}.{one}", _flag(module, one)) for one in sorted(names))
    products = torch.backends.cuda.matmul
    yield from ((f"cuda.matmul.{one}", _flag(products, one)) for one in _PRODUCTS)


def _known() -> dict[str, _Setting]:
    cuda = torch.backends.cuda
    found = dict(_of_backends()) | {
        "number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
        "precision of products": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "deterministic algorithms": _Setting(_deterministic, _set_deterministic),
        "grad mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "default type": _Setting(torch.get_default_dtype, torch.set_default_dtype),
        "default device": _Setting(devices_set, _set_default_device),
        "anomaly detection": _Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        "flush of denormal numbers": _Setting(_flushes, torch.set_flush_denormal),
        "flash attention": _Setting(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        "efficient attention": _Setting(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        "math attention": _Setting(cuda.math_sdp_enabled, cuda.enable_math_sdp),
        "cuDNN's attention": _Setting(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        "printing of tensors": _Setting(_printing, _set_printing),
        "warnings each time": _Setting(torch.is_warn_always_enabled, torch.set_warn_always),
        "autocast keeps casts": _Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        "NumPy's errors": _Setting(numpy.geterr, partial(_with_names, numpy.seterr)),
        "printing of NumPy's arrays": _Setting(numpy.get_printoptions, partial(_with_names, numpy.set_printoptions)),
        "level of the root logger": _flag(logging.getLogger(), "level"),
        "profile function": _Setting(sys.getprofile, sys.setprofile),
        "trace function": _Setting(sys.gettrace, sys.settrace),
        "garbage collection": _Setting(gc.isenabled, _collect),
        "recursion limit": _Setting(sys.getrecursionlimit, sys.setrecursionlimit),
        "switch interval": _Setting(sys.getswitchinterval, sys.setswitchinterval),
    }
    for device in ("cpu", "cuda"):
        found[f"autocast on {device}"] = _Setting(
            partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device)
        )
        found[f"type of autocast on {device}"] = _Setting(
            partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device)
        )
    # What time is measured with is a setting, too.
    found |= {f"time.{name}": _flag(time, name) for name in _clocks}
    return found


def settings() -> dict[str, Any]:
    """What they are now, by name; without those that cannot be read here, as torch says of some that exclude each other."""
    found: dict[str, Any] = {}
    for name, setting in _known().items():
        with suppress(RuntimeError, AttributeError):
            found[name] = setting.read()
    return found


_RAISED = "recursion limit"
"""torch's compiler raises it whenever it compiles, for deep programs; nothing gets wrong by that, unlike by a lower one."""


def changed_settings(before: dict[str, Any]) -> list[str]:
    """Names of those that are not what they were; a higher recursion limit does not count."""
    now = settings()
    return [
        name
        for name in sorted({*before, *now})
        if (now[name] < before[name] if name == _RAISED else now.get(name) != before.get(name))
    ]


def put_back(before: dict[str, Any]) -> None:
    """Set those that have changed to what they were."""
    known = _known()
    now = settings()
    for name, value in before.items():
        if now.get(name) != value:
            known[name].write(value)
