"""What a plan holds for: the machine with its versions, the program's structure, and the kinds of calls."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from typing import Any

from lanewise._version import __version__
from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.guard.call_kinds import PARTS, call_kind
from lanewise.fix.subject import Subject
from lanewise.fix.typed_torch import torch

__all__ = ["differences", "kinds_of", "machine_of", "structure_of"]


def machine_of(subject: Subject) -> dict[str, str]:
    """What decides which way is the fastest: device, driver, versions, threads, precision."""
    found = {
        "lanewise": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": subject.device.type,
        "threads": str(torch.get_num_threads()),
        "float32_matmul_precision": str(torch.get_float32_matmul_precision()),
        "processor": _processor(),
    }
    if subject.cuda:
        properties = torch.cuda.get_device_properties(subject.device)
        found |= {
            "card": str(properties.name),
            "multiprocessors": str(properties.multi_processor_count),
            "cuda": str(torch.version.cuda),
            "driver": _driver(),
            "triton": str(getattr(_maybe("triton"), "__version__", "none")),
        }
    return found


def structure_of(subject: Subject) -> str:
    """A hash of the modules' classes and their parameters' shapes and types; values do not count."""
    lines: list[str] = [subject.name, subject.kind]
    for root in subject.found.modules:
        lines += [f"{name}:{type(module).__name__}:{module.training}" for name, module in root.named_modules()]
        lines += [f"{name}:{tuple(p.shape)}:{p.dtype}:{p.requires_grad}" for name, p in root.named_parameters()]
    lines += [type(optimizer).__name__ for optimizer in subject.found.optimizers]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def kinds_of(subject: Subject) -> list[dict[str, str]]:
    """The kinds of the recorded calls, as text by part."""
    training = bool(subject.module is not None and subject.module.training)
    kinds = [call_kind(call, training) for call in subject.calls]
    return [{part: str(value) for part, value in zip(PARTS, kind, strict=True)} for kind in kinds]


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was, as phrases."""
    keys = [*saved, *(key for key in now if key not in saved)]
    return [f"{key} was {saved.get(key)}, is {now.get(key)}" for key in keys if saved.get(key) != now.get(key)]


def _processor() -> str:
    from lanewise.capture.machine import describe

    host = describe().get("host", {})
    return f"{host.get('processor', platform.machine())}, {host.get('cores_allowed', host.get('cores', '?'))} cores"


def _driver() -> str:
    from lanewise.capture.machine import clocks

    return str(clocks().get("driver", "unknown"))


def _maybe(name: str) -> Any:
    try:
        return torch_part(name)
    except ImportError:
        return None
