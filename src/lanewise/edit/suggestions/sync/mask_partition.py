"""`torch.cat([x[mask], x[~mask]])`: two selections whose sizes the host has to wait for."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit

__all__ = ["MaskPartition"]


class MaskPartition(Edit):
    """The same order of rows by a stable sort of the mask, whose size is known: for a mask of one dimension."""

    name = "mask-partition"
    needs = ("cat(", "concat(")
    answers = ("SYN102",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not self.names.calls(original_node, "torch.cat", "torch.concat") or len(updated_node.args) != 1:
            return updated_node
        parts = original_node.args[0].value
        if not isinstance(parts, cst.List | cst.Tuple) or len(parts.elements) != 2:
            return updated_node
        first, second = (element.value for element in parts.elements)
        if not isinstance(first, cst.Subscript) or not isinstance(second, cst.Subscript):
            return updated_node
        owner, mask = text_of(first.value), _index(first)
        plain = owner.replace(".", "").isidentifier() and mask is not None and text_of(mask).isidentifier()
        other = _index(second)
        if mask is None or other is None or not plain or text_of(second.value) != owner:
            return updated_node
        if text_of(other) != f"~{text_of(mask)}":
            return updated_node
        by, of = self.values.of(mask), self.values.of(first.value)
        if (by.rank is not None and by.rank != 1) or by.dtype == "int" or (of.known and not of.tensor):
            return updated_node  # every element of a larger mask selects one of its own
        argsort = self.written("torch.argsort", original_node)
        # A mask of another length is an error, which a sort of it is not.
        safe = by.rank == 1 and by.dtype == "bool" and of.tensor and not self.tried(original_node)
        what = f"the host waits to learn how many rows {text_of(mask)} selects"
        if not argsort or not self.offer(original_node, what, safe=safe):
            return updated_node
        return cst.parse_expression(f"{owner}[{argsort}(~{text_of(mask)}, stable=True)]")


def _index(node: cst.Subscript) -> cst.BaseExpression | None:
    only = node.slice[0].slice if len(node.slice) == 1 else None
    return only.value if isinstance(only, cst.Index) else None
