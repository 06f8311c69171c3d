"""torch with its types: what the checker sees is the release that development uses; what runs is the program's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.capture.lazy_torch import torch_part

__all__ = ["torch"]

if TYPE_CHECKING:
    import torch
else:
    torch = torch_part()
