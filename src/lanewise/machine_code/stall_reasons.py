"""What a warp waits for when it issues no instruction, by NVIDIA's names: in plain words, and which limiter it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanewise.machine_code.limiter import Limiter

__all__ = ["MEANINGS", "NO_WAITS", "expected_stalls", "stall_called", "top_stall", "wait_called"]

_PREFIXES = ("smsp__pcsamp_warps_issue_stalled_", "smsp__average_warps_issue_stalled_")
_SPELLED = {"no_instructions": "no_instruction"}
NOT_ISSUED = "_not_issued"
"""Behind a reason: counted a second time where no warp of the scheduler could issue."""

MEANINGS = {
    "long_scoreboard": "for data from global or local memory",
    "short_scoreboard": "for data from shared memory, a special function or a conversion",
    "lg_throttle": "for room in the queue of accesses to global and local memory",
    "mio_throttle": "for room in the queue of shared memory, special functions and conversions",
    "tex_throttle": "for room in the queue of textures",
    "barrier": "for the other warps of the block, at a barrier",
    "membar": "for a memory fence",
    "wait": "the fixed number of clocks that the instruction before takes",
    "math_pipe_throttle": "for a unit that computes and is busy",
    "gmma": "for the tensor cores",
    "drain": "at its end, for its stores to leave",
    "imc_miss": "for a constant that was not in its cache",
    "branch_resolving": "for where a branch goes",
    "no_instruction": "for its next instruction to be fetched",
    "dispatch_stall": "for the dispatcher, which is held up",
    "sleeping": "because it sleeps",
    "misc": "for something else",
    "selected": "nothing: it issues",
    "not_selected": "nothing: it could issue, and another warp does",
}
"""What a warp waits for, to be read behind "it waits"."""

NO_WAITS = frozenset({"selected", "not_selected"})
_NO_WAIT_CALLED = {"selected": "issues", "not_selected": "ready while another warp issues"}

_MEMORY = frozenset({"long_scoreboard", "lg_throttle"})
_SHARED = frozenset({"mio_throttle", "short_scoreboard"})
_COMPUTES = frozenset({"wait", "math_pipe_throttle"})
_OF_LIMITER = {
    "memory": _MEMORY,
    "uncoalesced loads": _MEMORY,
    "uncoalesced stores": _MEMORY | {"drain"},
    "narrow loads": _MEMORY,
    "narrow stores": _MEMORY | {"drain"},
    "occupancy": _MEMORY,
    "latency": _MEMORY,
    "spills": _MEMORY,
    "atomics": _MEMORY | {"drain"},
    "bank conflicts": _SHARED,
    "shared memory": _SHARED | {"barrier"},
    "special functions": _SHARED | _COMPUTES,
    "exact sine and cosine": _COMPUTES,
    "synchronous copies": _MEMORY | {"barrier"},
    # Constants and conversions between the precisions go through the queue of the special functions.
    "double precision": _SHARED | _COMPUTES,
    "math": _COMPUTES,
    "divergence": _COMPUTES,
    "integer division": _COMPUTES,
    # Without tensor cores a product is as fast as shared memory brings its factors, or as it multiplies.
    "no tensor cores": _SHARED | _COMPUTES,
    "tensor cores": _COMPUTES | {"gmma"},
}
_OF_GRID = frozenset({"tail", "too few blocks"})


def stall_called(text: str) -> str:
    """NVIDIA's short name of a reason, however a tool calls it: without what it is counted by."""
    name = text.partition("_per_issue_active")[0]
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _SPELLED.get(name, name)


def wait_called(name: str) -> str:
    """A reason as the name of what warps do meanwhile: `waits for the tensor cores`."""
    return _NO_WAIT_CALLED.get(name) or f"waits {MEANINGS.get(name, f'for {name}')}"


def top_stall(stalls: Mapping[str, float]) -> str:
    """The reason that warps wait for most, "" if there is none."""
    waits = {name: value for name, value in stalls.items() if name not in NO_WAITS and value > 0}
    return max(waits, key=lambda name: waits[name], default="")


def expected_stalls(limits: Sequence[Limiter]) -> frozenset[str]:
    """What warps wait for most, if a kernel is limited so. Multiprocessors without work show in none of its warps: for
    those the next limit counts."""
    first = next((one.name for one in limits if one.name not in _OF_GRID), "")
    return _OF_LIMITER.get(first, frozenset())
