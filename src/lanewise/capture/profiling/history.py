"""Which profilers this process has had. It stays slower after one, so a time taken later says less.

Sessions of our own are noted as they begin. Those of the program leave traces in torch: profiler objects that are still
there, and a Kineto that has been initialised (it says so when it is not, and somebody adds to its metadata).
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from lanewise.capture.profiling.own_profiler import OURS
from lanewise.capture.profiling.stderr import profiler_messages

__all__ = ["note", "noted", "profilers_so_far"]

_NOT_INITIALISED = "Profiler is not initialized"
_WARNINGS_SHOWN = ("", "INFO", "WARNING", "0", "1")

_noted: list[str] = []


def note(name: str) -> None:
    """A profiler of ours is being attached, named as a reader would know it."""
    if name not in _noted:
        _noted.append(name)


def noted() -> list[str]:
    """Profilers of ours so far."""
    return list(_noted)


def profilers_so_far() -> list[str]:
    """All that is known of, ours first; looks at every object, which takes a while (0.1 s for a million).

    Where a CUDA context exists, a session of the program whose profiler object is gone is not found: creating the
    context may initialise Kineto as well.
    """
    found = noted()
    if "torch" in sys.modules and (_foreign_objects() or (not found and _kineto_began())):
        found.append("torch.profiler")
    return found


def _foreign_objects() -> bool:
    """Whether a profiler object that was entered, and is not ours, is still there."""
    profile: Any = getattr(sys.modules.get("torch.autograd.profiler"), "profile", None)
    if profile is None:
        return False
    # `type`, not `isinstance`: a proxy would be asked for its class, and may do anything then.
    return any(
        issubclass(type(one), profile) and getattr(one, "entered", False) and not getattr(one, OURS, False)
        for one in gc.get_objects()
    )


def _kineto_began() -> bool:
    """Whether Kineto has been initialised in this process; False if it cannot tell."""
    torch: Any = sys.modules["torch"]
    ask = getattr(getattr(torch._C, "_autograd", None), "_add_metadata_json", None)
    tells = os.environ.get("TORCH_CPP_LOG_LEVEL", "").upper() in _WARNINGS_SHOWN and _can_be_read()
    if ask is None or not tells or not torch.autograd.kineto_available() or torch.cuda.is_initialized():
        return False
    messages: list[str] = []
    with profiler_messages(messages):
        ask("lanewise_asked", "true")
    return not any(_NOT_INITIALISED in message for message in messages)


def _can_be_read() -> bool:
    """Whether what is written to standard error can be had: the descriptor is open."""
    try:
        os.fstat(2)
    except OSError:
        return False
    return True
