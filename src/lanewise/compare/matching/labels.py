"""Names without what differs from run to run though nothing changed: step numbers, hashes, addresses."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["host_group", "stable_name"]

_STEP = re.compile(r"^ProfilerStep#\d+$")
_GRAPH = re.compile(r"^## Call CompiledFxGraph \S+ ##$")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")

_COMPILER = re.compile(
    r"^TorchDynamo |^Torch-Compiled Region|^AOTDispatcher|^CompiledFunction|^CompiledFxGraph|^Pregraph bytecode|"
    r"^Inductor|\(dynamo_timed\)$|^CUDAGraph|^cudagraph|^inductor_|^triton_|^cpp_fused_|^## "
)


@lru_cache(maxsize=1 << 16)
def stable_name(name: str) -> str:
    """A host name that is equal in two runs of the same program."""
    if _STEP.match(name):
        return "ProfilerStep#*"
    if _GRAPH.match(name):
        return "CompiledFxGraph"
    return _ADDRESS.sub("0x…", name)


@lru_cache(maxsize=1 << 16)
def host_group(name: str) -> str:
    """`compiler` for the bookkeeping and wrappers of torch.compile, `operator` for other operators."""
    return "compiler" if _COMPILER.search(name) else "operator"
