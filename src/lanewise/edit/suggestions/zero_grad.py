"""`zero_grad(set_to_none=False)`: every gradient is filled with zeros, and then added to."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, argument, is_literal, method_call, without_argument

__all__ = ["ZeroGrad"]


class ZeroGrad(Edit):
    """Drops the argument: the default frees the gradients, and the backward pass writes them instead of adding."""

    name = "zero-grad"
    needs = ("set_to_none",)
    answers = ("MEM105",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        given = argument(original_node, "set_to_none")
        if method_call(original_node, "zero_grad") is None or given is None or is_literal(given.value, "True"):
            return updated_node
        self.note(original_node, "zero_grad fills gradients with zeros that the backward pass then adds to")
        return without_argument(updated_node, "set_to_none")
