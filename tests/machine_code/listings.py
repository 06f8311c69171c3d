"""What NVIDIA's tools print of the planted kernels, kept for where the tools are not; `planted` writes it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from lanewise.machine_code.cubins import Kernel, Launch, kernels_of
from lanewise.machine_code.disassembly import Function, parse

__all__ = ["LISTED", "code_of", "kernel_of", "lines"]

_FILE = Path(__file__).parents[1] / "data" / "machine_code" / "planted.json.gz"
LISTED: dict[str, Any] = json.loads(gzip.decompress(_FILE.read_bytes()))


def kernel_of(name: str) -> Kernel:
    """A planted kernel."""
    (kernel,) = kernels_of(Path(name), *LISTED[name]["listings"], beside=Launch(**LISTED[name]["beside"]))
    return kernel


def lines(*instructions: str, name: str = "kernel") -> str:
    """A disassembly of these instructions; a text that ends in a colon is a label."""
    printed = ['	.headerflags	@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"', f".text.{name}:"]
    address = 0
    for one in instructions:
        if one.endswith(":") or one.startswith("//##"):
            printed.append(one)
            continue
        printed.append(f"        /*{address:04x}*/                   {one} ;")
        address += 16
    return "\n".join(printed)


def code_of(*instructions: str) -> Function:
    """A function of these instructions."""
    (code,) = parse(lines(*instructions))
    return code
