"""Parts of torch, by name, when they are needed: nothing here imports torch before the program does.

torch's types differ from release to release, and a machine that only reads traces has none; so they are not relied on.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["torch_part"]


def torch_part(name: str = "torch") -> Any:
    """The module `name`, imported if it is not yet. Raises ImportError where this torch has no such part."""
    return importlib.import_module(name)
