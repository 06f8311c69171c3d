"""`torch.cat([x[mask], x[~mask]])`: two selections whose sizes the host has to wait for."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, called, text_of

__all__ = ["MaskPartition"]


class MaskPartition(Edit):
    """The same order of rows by a stable sort of the mask, whose size is known."""

    name = "mask-partition"
    needs = ("cat(", "concat(")
    answers = ("SYN102",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not called(original_node, "torch.cat", "torch.concat") or len(updated_node.args) != 1:
            return updated_node
        parts = updated_node.args[0].value
        if not isinstance(parts, cst.List | cst.Tuple) or len(parts.elements) != 2:
            return updated_node
        first, second = (element.value for element in parts.elements)
        if not isinstance(first, cst.Subscript) or not isinstance(second, cst.Subscript):
            return updated_node
        owner, mask = text_of(first.value), _index(first)
        if text_of(second.value) != owner or not mask or _index(second) != f"~{mask}" or not mask.isidentifier():
            return updated_node
        self.note(original_node, f"the host waits to learn how many rows {mask} selects")
        return cst.parse_expression(f"{owner}[torch.argsort(~{mask}, stable=True)]")


def _index(node: cst.Subscript) -> str:
    if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
        return ""
    return text_of(node.slice[0].slice.value)
