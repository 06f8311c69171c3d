"""What warps waited for as versioned data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lanewise._version import __version__
from lanewise.machine_code.disassembly import Instruction, Place
from lanewise.machine_code.sampled.samples import Samples
from lanewise.machine_code.sampled.stalls import Sampled, Stalls
from lanewise.machine_code.stall_reasons import MEANINGS

__all__ = ["STALLS_SCHEMA", "stalls_json"]

STALLS_SCHEMA = "lanewise.stalls/1"


def stalls_json(samples: Samples, stalls: Sequence[Stalls]) -> str:
    """All that was sampled, by kernel, source line and instruction."""
    data = {
        "schema": STALLS_SCHEMA,
        "version": __version__,
        "seconds": samples.seconds,
        "dropped": samples.dropped,
        "meanings": MEANINGS,
        "kernels": [_kernel(one) for one in stalls],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _kernel(stalls: Stalls) -> dict[str, Any]:
    return {
        "name": stalls.name,
        "share": round(stalls.share, 4),
        "samples": stalls.number,
        "reasons": dict(stalls.reasons),
        "lines": [_sampled(one) for one in stalls.lines],
        "instructions": [_sampled(one) for one in stalls.instructions],
        "missing": stalls.missing,
        "limits": [{"name": limit.name, "defect": limit.defect, "why": limit.why} for limit in stalls.limits],
        "agrees": stalls.agrees if stalls.limits else None,
    }


def _sampled(one: Sampled[Instruction] | Sampled[Place]) -> dict[str, Any]:
    return {**_where(one.at), "samples": one.number, "reasons": dict(one.reasons)}


def _where(at: Instruction | Place) -> dict[str, Any]:
    if isinstance(at, Place):
        return {"place": {"file": at.file, "line": at.line}}
    return {"offset": at.address, "opcode": at.opcode}
