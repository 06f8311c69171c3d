"""Arguments that lie in pageable host memory while the work is on a card: sent from pinned memory, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.predictions import kernel_named
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import map_tensors, tensors_of
from lanewise.fix.torch_types import Device, Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["candidates"]


_LEAST_BYTES = 1 << 20


def candidates(subject: Subject) -> list[Candidate]:
    """For programs on a CUDA device whose arguments are large and on the host."""
    sent = [tensor for call in subject.calls for tensor in tensors_of(call) if _worth_it(tensor)]
    if not subject.cuda or not sent:
        return []
    return [
        Candidate(
            "pinned-inputs",
            "program",
            "arguments",
            "host arguments go to the device from pinned memory, while the host goes on",
            lambda subject: ForwardPatch(subject.entry, _pinned(subject)),
            predictions=(kernel_named("copies read pinned memory", ("Pinned -> Device",)),),
            answers=("SYN103", "SYN104"),
        )
    ]


def _worth_it(tensor: Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and not tensor.requires_grad
        and tensor.numel() * tensor.element_size() >= _LEAST_BYTES
    )


class _Buffer:
    """Pinned memory for one argument, and the event after which it may be written again."""

    def __init__(self, like: Any) -> None:
        self.memory = torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
        self.free: Any = torch.cuda.Event()

    def send(self, tensor: Tensor, device: Device) -> Any:
        """The tensor on the device; the copy is in the order of the current stream."""
        # The copy of the last call may still be reading.
        self.free.synchronize()
        self.memory.copy_(tensor)
        sent = self.memory.to(device, non_blocking=True)
        self.free.record(torch.cuda.current_stream(device))
        return sent


def _pinned(subject: Subject) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    device = subject.device

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        buffers: dict[tuple[Any, ...], _Buffer] = {}

        def forward(*args: Any, **kwargs: Any) -> Any:
            places = iter(range(1 << 30))

            def send(tensor: Tensor) -> Any:
                key = (next(places), tensor.shape, tensor.dtype)
                if not _worth_it(tensor) or tensor.is_pinned():
                    return tensor
                if key not in buffers:
                    buffers[key] = _Buffer(tensor)
                return buffers[key].send(tensor, device)

            args, kwargs = map_tensors(send, (args, kwargs))
            return original(*args, **kwargs)

        return forward

    return make
