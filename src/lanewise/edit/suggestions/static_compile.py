"""Settings that make the compiler start over for every new size or number."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, argument, called, dotted, is_literal, without_argument

__all__ = ["StaticCompile"]

_SETTING = "config.automatic_dynamic_shapes"


class StaticCompile(Edit):
    """Lets the compiler generalise once a size or a number has changed."""

    name = "static-compile"
    needs = ("dynamic",)
    answers = ("CMP102",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        given = argument(original_node, "dynamic")
        if not called(original_node, "torch.compile") or given is None or not is_literal(given.value, "False"):
            return updated_node
        self.note(original_node, "every new size or number is compiled anew")
        return without_argument(updated_node, "dynamic")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        line = original_node.body[0] if len(original_node.body) == 1 else None
        if (
            isinstance(line, cst.Assign)
            and dotted(line.targets[0].target).endswith(_SETTING)
            and is_literal(line.value, "False")
        ):
            self.note(original_node, "the compiler may not generalise over sizes and numbers")
            return cst.RemoveFromParent()
        return updated_node
