"""Single-precision products that leave the tensor cores unused."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, is_literal, parse_expression

__all__ = ["MatmulPrecision"]


class MatmulPrecision(Edit):
    """Allows TF32 where the program chose not to."""

    name = "matmul-precision"
    needs = ("set_float32_matmul_precision",)
    safe = False  # products round their inputs to 10 bits of mantissa
    answers = ("KER104",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not self.names.calls(original_node, "torch.set_float32_matmul_precision") or len(updated_node.args) != 1:
            return updated_node
        if is_literal(original_node.args[0].value, '"high"', "'high'", '"medium"', "'medium'"):
            return updated_node
        if not self.offer(original_node, "single-precision products do not use the tensor cores"):
            return updated_node
        return updated_node.with_changes(args=[updated_node.args[0].with_changes(value=parse_expression('"high"'))])
