"""What a result was measured on: versions, host and card, without names of hosts or users."""

from __future__ import annotations

from typing import Any

__all__ = ["described"]


def described() -> dict[str, Any]:
    """As nested plain values. It initializes the device: not in a process that is to be forked."""
    import torch

    from lanewise.capture.machine import describe

    facts = describe()
    found: dict[str, Any] = {name: facts.get(name, {}) for name in ("versions", "host", "device")}
    if torch.cuda.is_available():
        found["card"] = torch.cuda.get_device_name()
    return found
