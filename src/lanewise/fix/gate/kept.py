"""What checking keeps from one candidate to the next: as much as memory has room for, the rest is made again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from lanewise.capture.file.free_memory import free_memory
from lanewise.fix.tensors import tensors_of
from lanewise.fix.torch_types import Device
from lanewise.fix.typed_torch import torch

__all__ = ["Kept", "room_on"]

Value = TypeVar("Value")

_SHARE = 0.25
"""Of the memory that is free: candidates, compilers and one call in double precision need the rest."""
_HOST_BYTES = 1 << 32
"""Where the system does not say what is free."""


class Kept:
    """Values by name, as long as the tensors in them fit.

    Args:
        room: for all of them together, bytes.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._values: dict[Hashable, Any] = {}

    def get(self, name: Hashable, make: Callable[[], Value]) -> Value:
        """The value of that name; made now if it is not kept, and kept from now on if there is room."""
        if name not in self._values:
            value = make()
            size = _bytes_of(value)
            if size > self._room:
                return value
            self._room -= size
            self._values[name] = value
        return self._values[name]

    def give_back(self) -> None:
        """Keep nothing from now on: who needs the memory did not get it."""
        self._values.clear()
        self._room = -1


def room_on(device: Device) -> int:
    """Bytes that may be kept on a device: a share of what is free there now, and of what torch holds unused."""
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device)
        # A process may have been given a share of the card.
        free = min(free, int(torch.cuda.get_per_process_memory_fraction(device) * whole) - held)
        free = max(0, free + held - torch.cuda.memory_allocated(device))
    else:
        free = free_memory() or _HOST_BYTES
    return int(_SHARE * free)


def _bytes_of(value: Any) -> int:
    return sum({id(tensor): tensor.nbytes for tensor in tensors_of(value)}.values())
