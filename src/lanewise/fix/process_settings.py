"""Settings of the process that a program may change while it runs: what they are, and how they are put back."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy

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


def _numpy_errors(kept: dict[str, Any]) -> None:
    numpy.seterr(**kept)


def _flushes() -> bool:
    """Whether results below the smallest normal number become zero."""
    return not bool(torch.tensor(1e-40) * 1.0)


def _known() -> dict[str, _Setting]:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    found = {
        "number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
        "precision of products": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "deterministic algorithms": _Setting(
            torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
        ),
        "grad mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "default type": _Setting(torch.get_default_dtype, torch.set_default_dtype),
        "anomaly detection": _Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        "flush of denormal numbers": _Setting(_flushes, torch.set_flush_denormal),
        "cudnn.benchmark": _flag(cudnn, "benchmark"),
        "cudnn.deterministic": _flag(cudnn, "deterministic"),
        "cudnn.allow_tf32": _flag(cudnn, "allow_tf32"),
        "flash attention": _Setting(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        "efficient attention": _Setting(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        "math attention": _Setting(cuda.math_sdp_enabled, cuda.enable_math_sdp),
        "NumPy's errors": _Setting(numpy.geterr, _numpy_errors),
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
    # What time is measured with is a setting, too.
    found |= {f"time.{name}": _flag(time, name) for name in _clocks}
    return found


def settings() -> dict[str, Any]:
    """What they are now, by name."""
    return {name: setting.read() for name, setting in _known().items()}


_RAISED = "recursion limit"
"""torch's compiler raises it whenever it compiles, for deep programs; nothing gets wrong by that, unlike by a lower one."""


def changed_settings(before: dict[str, Any]) -> list[str]:
    """Names of those that are not what they were; a higher recursion limit does not count."""
    return [
        name for name, now in settings().items() if (now < before[name] if name == _RAISED else now != before[name])
    ]


def put_back(before: dict[str, Any]) -> None:
    """Set those that have changed to what they were."""
    known = _known()
    for name, value in settings().items():
        if value != before[name]:
            known[name].write(before[name])
