"""Most memory that one call has allocated at once, from the allocator's own records."""

from __future__ import annotations

from typing import Any

from lanewise.capture.lazy_torch import torch_part
from lanewise.capture.profiling import history
from lanewise.capture.profiling.stderr import profiler_messages
from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call
from lanewise.fix.typed_torch import torch

__all__ = ["peak_bytes"]


def peak_bytes(subject: Subject, state: State, variant: Variant | None) -> int:
    """Peak of one call above what was allocated before it, bytes; -1 if it cannot be told.

    On a CUDA device the caching allocator counts, which costs nothing. On the host the profiler has to listen to the
    allocator: no time is measured after that where it matters (CUPTI is not involved).
    """
    call = copy_call(subject.calls[0])
    if variant is not None:
        variant.enable()
    try:
        subject.run(call)
        subject.wait()
        return _on_card(subject, call) if subject.cuda else _on_host(subject, call)
    except Exception:
        return -1
    finally:
        if variant is not None:
            variant.disable()
        state.restore()


def _on_card(subject: Subject, call: Any) -> int:
    torch.cuda.reset_peak_memory_stats(subject.device)
    before = torch.cuda.memory_allocated(subject.device)
    kept = subject.run(call)
    subject.wait()
    del kept
    return int(torch.cuda.max_memory_allocated(subject.device) - before)


def _on_host(subject: Subject, call: Any) -> int:
    profiler: Any = torch_part("torch.profiler")
    history.note("torch.profiler, for the peak of the host's memory")
    with (
        profiler_messages([]),
        profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True) as running,
    ):
        kept = subject.run(call)
    del kept
    now = peak = 0
    for event in running.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
