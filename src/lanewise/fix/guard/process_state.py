"""Whether what torch keeps for the thread and the process is as it was: grad mode, autocast, the default type and device.

Which of it decides about results is part of the kind of a call (`guard.call_kinds`); here it is asked, of all at once and
in C++, whether any of it has changed since a call of that kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.written import NO, Questions
from lanewise.fix.typed_torch import torch

__all__ = ["devices_set", "how_many_modes", "process_state", "watches"]

_C: Any = torch_part("torch._C")
how_many_modes: Any = getattr(_C, "_len_torch_function_stack", lambda: 0)
_at: Any = getattr(_C, "_get_function_stack_at", None)


def _modes() -> list[Any]:
    """What looks at every function of torch that is called; `torch.set_default_device` and `with torch.device` do."""
    return [_at(number) for number in range(how_many_modes())]


def _sets_device(mode: Any) -> bool:
    return type(mode).__name__ == "DeviceContext"


def devices_set() -> list[str]:
    """Where tensors are made that are asked for without a device: the last one counts."""
    return [str(mode.device) for mode in _modes() if _sets_device(mode)]


def watches() -> bool:
    """Whether somebody's mode looks at every function of torch."""
    return bool(how_many_modes()) and not all(map(_sets_device, _modes()))


def process_state() -> Questions:
    """Whether it is as it is now, in the thread that asks, with as many such modes as there are now."""
    state = _C._dynamo.guards.GlobalStateGuard().check if _tells() else _told()
    if modes := _modes():
        before, these = state, list(map(id, modes))
        state = lambda: before() and list(map(id, _modes())) == these  # noqa: E731
    names = {"alike": state, "how_many_modes": how_many_modes}
    return Questions([f"if not alike() or how_many_modes() != {len(modes)}: {NO}"], names)


def _told() -> Callable[[], bool]:
    def now() -> Any:
        devices = [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
        return devices, torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()

    before = now()
    return lambda: now() == before


@cache
def _tells() -> bool:
    """Whether torch tells of autocast and grad mode there, which came later than the default type."""
    try:
        state = _C._dynamo.guards.GlobalStateGuard()
        found = [state.check()]
        with torch.set_grad_enabled(not torch.is_grad_enabled()):
            found.append(not state.check())
        for device in ("cpu", "cuda"):
            before = torch.is_autocast_enabled(device)
            torch.set_autocast_enabled(device, not before)
            found.append(not state.check())
            torch.set_autocast_enabled(device, before)
        return all(found)
    except Exception:
        return False
