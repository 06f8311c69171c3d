"""Verdicts on kernels as versioned data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lanewise._version import __version__
from lanewise.machine_code.disassembly import Place
from lanewise.machine_code.limiter import Verdict
from lanewise.machine_code.mended import Gain

__all__ = ["KERNELS_SCHEMA", "kernels_json"]

KERNELS_SCHEMA = "lanewise.kernels/1"


def kernels_json(verdicts: Sequence[Verdict], gains: Sequence[Gain | None]) -> str:
    """All that is known of each kernel, and what mending it would gain."""
    kernels = [_kernel(one) | {"mended": _gain(gain)} for one, gain in zip(verdicts, gains, strict=True)]
    data = {"schema": KERNELS_SCHEMA, "version": __version__, "kernels": kernels}
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _kernel(verdict: Verdict) -> dict[str, Any]:
    kernel, features = verdict.kernel, verdict.features
    return {
        "file": str(kernel.file),
        "name": kernel.code.name,
        "capability": list(kernel.code.capability),
        "registers": kernel.registers,
        "shared_bytes": kernel.shared,
        "stack_bytes": kernel.stack,
        "threads": kernel.threads,
        "resident_blocks": verdict.resident,
        "occupancy": round(verdict.occupancy, 4),
        "kept_out_by": verdict.kept_out_by,
        "limits": [
            {
                "name": one.name,
                "defect": one.defect,
                "why": one.why,
                "advice": one.advice,
                "place": _place(one.place),
            }
            for one in verdict.limits
        ],
        "instructions": len(kernel.code.instructions),
        "loops": [{"first": one.first, "last": one.last, "depth": one.depth} for one in features.loops],
        "hottest": {
            "loop": None if features.loop is None else features.loops.index(features.loop),
            "instructions": dict(features.count.most_common()),
            "tensor": dict(features.tensor),
            "loads_by_bits": {str(bits): number for bits, number in features.loads.items()},
            "staged_by_bits": {str(bits): number for bits, number in features.staged.items()},
            "stores_by_bits": {str(bits): number for bits, number in features.stores.items()},
            "lines": [{"place": _place(place), "instructions": number} for place, number in features.lines],
        },
    }


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    known = {"seconds": gain.seconds, "mended_seconds": gain.mended_seconds} if gain.seconds else {}
    return {"times_as_fast": round(gain.times, 3), **known}


def _place(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {"file": place.file, "line": place.line}
