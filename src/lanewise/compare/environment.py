"""What the times of a run depend on besides the program, and what of it differs between two runs.

Three weights: `refuse` makes times incomparable (another card), `warn` may explain a difference in time (driver,
clocks, versions, what was recorded), `info` is worth knowing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lanewise.compare.model import EnvironmentDifference, Weight
from lanewise.trace.metadata import Recorded

if TYPE_CHECKING:
    from lanewise.measure.facts import Facts

__all__ = ["describe", "environment_differences"]

_MAX_VALUE = 120

_REFUSE = frozenset({"card", "multiprocessors"})
_WARN = re.compile(
    r"^(versions\.(torch|triton)|CUDA driver|CUDA runtime|HIP .*|clocks\.power_limit_w|clocks\.throttled|"
    r"torch\.(float32_matmul_precision|tf32_cudnn|cudnn_benchmark|deterministic|threads|cudnn|cuda|hip)|"
    r"host\.(processor|cores_allowed|machine)|recorded .*|variables\..*|world size)$"
)
# Different in every run, or said better elsewhere.
_SKIP = re.compile(
    r"^(clocks\.(power_w|temperature_c|driver)|device\.(name|multiprocessors|reserved_bytes|memory_bytes|visible_devices)|"
    r"host\.(load|cores|system)|git\.modified|torch\.(dynamo_loaded|grad_enabled|git)|versions\.implementation)$"
)
# Clocks move by a little all the time; this much changes a time that depends on them.
_CLOCK_SHARE = 0.02
_CLOCKS = frozenset({"clocks.sm_mhz", "clocks.memory_mhz"})


def describe(facts: Facts, recorded: Recorded | None) -> dict[str, str]:
    """Environment of a trace as text by name, from the profiler's own properties and from what the recorder added."""
    metadata, device, health = facts.trace.metadata, facts.device, facts.health
    found: dict[str, str] = {}
    if device.name:
        found["card"] = device.name
    if device.sms:
        found["multiprocessors"] = str(device.sms)
    for label, key in (
        ("CUDA driver", "cuda_driver_version"),
        ("CUDA runtime", "cuda_runtime_version"),
        ("HIP driver", "hip_driver_version"),
        ("HIP runtime", "hip_runtime_version"),
        ("CUPTI", "cupti_version"),
    ):
        value = metadata.get(key)
        if isinstance(value, int | str) and not isinstance(value, bool):
            found[label] = str(value)[:_MAX_VALUE]
    for flag in ("shapes", "stacks", "memory", "sync_events"):
        found[f"recorded {flag.replace('_', ' ')}"] = "yes" if getattr(health, flag) else "no"
    if recorded is not None:
        found.update(_flat(recorded.environment))
        if recorded.world_size:
            found["world size"] = str(recorded.world_size)
    return found


def environment_differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[EnvironmentDifference]:
    """What differs, the weightiest first. A fact that one side did not record is no difference."""
    found: list[EnvironmentDifference] = []
    for key in sorted(a.keys() & b.keys()):
        if a[key] == b[key] or _SKIP.match(key) or (key in _CLOCKS and _close(a[key], b[key])):
            continue
        weight: Weight = "refuse" if key in _REFUSE else "warn" if key in _CLOCKS or _WARN.match(key) else "info"
        found.append(EnvironmentDifference(key, a[key], b[key], weight))
    # An environment variable that only one side has is a difference: the other recorder would have written it.
    if any(key.startswith("versions.") for key in a) and any(key.startswith("versions.") for key in b):
        found.extend(
            EnvironmentDifference(key, a.get(key, "not set"), b.get(key, "not set"), "warn")
            for key in sorted(a.keys() ^ b.keys())
            if key.startswith("variables.")
        )
    order: Sequence[Weight] = ("refuse", "warn", "info")
    return sorted(found, key=lambda item: (order.index(item.weight), item.key))


def _close(a: str, b: str) -> bool:
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    return abs(x - y) <= _CLOCK_SHARE * max(x, y)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as text by dotted name; two levels, bounded."""
    found: dict[str, str] = {}
    for key, value in list(values.items())[:200]:
        name = f"{prefix}{key}"[:80]
        if isinstance(value, Mapping):
            if not prefix:
                found.update(_flat(value, f"{name}."))
        elif isinstance(value, list | tuple):
            found[name] = ", ".join(str(part) for part in value)[:_MAX_VALUE]
        else:
            found[name] = str(value)[:_MAX_VALUE]
    return found
