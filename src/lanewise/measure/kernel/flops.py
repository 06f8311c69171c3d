"""FLOPs and bytes of an operator from its recorded shapes: the one door to all formulas."""

from __future__ import annotations

from lanewise.measure.kernel import flops_matrix, flops_memory
from lanewise.measure.kernel.work import Work
from lanewise.measure.signatures import Signature

__all__ = ["FORMULAS", "known", "work_of"]

FORMULAS = flops_matrix.FORMULAS | flops_memory.FORMULAS

# Generated kernels that only write: nothing tells them from the name of the pattern alone.
_WRITE_ONLY = ("zeros", "ones", "full", "fill", "arange", "rand", "empty", "constant")


def known(name: str) -> bool:
    """Whether there is a formula for an operator."""
    return name in FORMULAS or name.startswith(("triton_poi_", "triton_red_", "triton_per_"))


def work_of(name: str, call: Signature | None) -> Work | None:
    """What one call has to compute and to move; None if there is no formula, or the shapes are not recorded or odd."""
    if call is None:
        return None
    found = FORMULAS.get(name)
    if found is not None:
        return found(call)
    return _generated(name, call) if name.startswith(("triton_poi_", "triton_red_", "triton_per_")) else None


def _generated(name: str, call: Signature) -> Work | None:
    """A kernel that the compiler generated: each buffer is touched at least once, a lone one is read and written."""
    tensors = [tensor for tensor in call.tensors if tensor.shape]
    if not tensors or not all(tensor.itemsize for tensor in tensors):
        return None
    largest = max(tensors, key=lambda tensor: tensor.bytes)
    total = sum(tensor.bytes for tensor in tensors)
    kind = "pointwise" if name.startswith("triton_poi_") else "reduction"
    if len(tensors) == 1 and kind == "pointwise" and not any(word in name for word in _WRITE_ONLY):
        return Work(kind, None, total, total, largest.dtype)
    return Work(kind, None, total - largest.bytes, largest.bytes, largest.dtype, exact=False)
