"""`torch.stack([x.to(device) for x in parts])`: every part is sent to the device by itself."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, called, method_call

__all__ = ["SmallCopies"]


class SmallCopies(Edit):
    """Stacks first, and sends the result once."""

    name = "small-copies"
    needs = ("stack(", "cat(")
    answers = ("SYN108",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not called(original_node, "torch.stack", "torch.cat") or not updated_node.args:
            return updated_node
        made = updated_node.args[0].value
        if not isinstance(made, cst.ListComp | cst.GeneratorExp):
            return updated_node
        move = method_call(made.elt, "to", "cuda")
        if move is None or not isinstance(move.func, cst.Attribute) or not isinstance(made.for_in.target, cst.Name):
            return updated_node
        moved = move.func.value
        uses_loop_variable = any(
            isinstance(arg.value, cst.Name) and arg.value.value == made.for_in.target.value for arg in move.args
        )
        if uses_loop_variable:
            return updated_node
        self.note(original_node, "many small tensors are sent to the device one by one")
        parts: cst.BaseExpression = made.with_changes(elt=moved)
        plain = isinstance(moved, cst.Name) and moved.value == made.for_in.target.value
        if plain and not made.for_in.ifs and made.for_in.inner_for_in is None:
            parts = cst.Call(func=cst.Name("list"), args=[cst.Arg(made.for_in.iter)])
        first = updated_node.args[0].with_changes(value=parts)
        joined = updated_node.with_changes(args=[first, *updated_node.args[1:]])
        return cst.Call(func=cst.Attribute(value=joined, attr=move.func.attr), args=move.args)
