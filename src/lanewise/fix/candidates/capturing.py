"""Capturing CUDA graphs so that a capture that fails, or is stopped, leaves the process as it was.

torch ends a capture only as far as CUDA does. Where that raises, which one synchronization inside is enough for, the
stream of the capture stays the current one and its memory stays set aside; and up to torch 2.11 the device's generator
takes itself to be in a capture from then on: what draws next fails with "Offset increment outside graph capture".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.torch_types import Device
from lanewise.fix.typed_torch import torch

__all__ = ["capture", "put_right"]

_torch_c: Any = torch_part("torch._C")


def capture(work: Callable[[], Any], device: Device, stream: Any) -> tuple[Any, Any]:
    """The graph of what `work` launches on a stream, and what it returned. Raises what a failed capture raises."""
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    with put_right(device), _given_back(pool, device), torch.cuda.graph(graph, pool=pool, stream=stream):
        result = work()
    return graph, result


@contextmanager
def put_right(device: Device) -> Generator[None]:
    """What captures inside leave behind that failed, reported or not: the current stream and the generator are as before.

    There is nothing to do where the device is the host.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.current_stream(device)
    try:
        yield
    finally:
        if torch.cuda.current_stream(device) != before:
            torch.cuda.set_stream(before)
        # After an error that ends all work on the device nothing can be put right, and the error itself says so.
        with suppress(RuntimeError):
            if _thinks_it_captures(device):
                _capture_once(device)


@contextmanager
def _given_back(pool: Any, device: Device) -> Generator[None]:
    """The memory of a capture that fails: its graph is none, and does not give it back."""
    try:
        yield
    except BaseException:
        # What was captured until an error of the program's own is a graph, and does. Releases before 2.6 have other names.
        with suppress(RuntimeError, AttributeError):
            _torch_c._cuda_endAllocateToPool(_index(device), pool)
            _torch_c._cuda_releasePool(_index(device), pool)
        raise


def _thinks_it_captures(device: Device) -> bool:
    """Whether the device's generator refuses to draw because it takes itself to be in a capture."""
    generator = torch.cuda.default_generators[_index(device)]
    state = generator.get_state()
    try:
        torch.empty(1, device=device).uniform_()
    except RuntimeError:
        return True
    finally:
        generator.set_state(state)
    return False


def _capture_once(device: Device) -> None:
    """A capture that ends well: the generator's ends with it. Graphs that draw from the generator go on following its
    seed, as they would not if it were given another state."""
    stream, nothing, graph = torch.cuda.Stream(device), torch.zeros(1, device=device), torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream):
        graph.capture_begin()
        nothing.zero_()
        graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)


def _index(device: Device) -> int:
    with torch.cuda.device(device):
        return torch.cuda.current_device()
