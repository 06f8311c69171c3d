"""A module that is moved to the device and back in every step."""

from __future__ import annotations

import libcst as cst

from lanewise.fix.source.edit import Edit, emptied, method_call, text_of

__all__ = ["MovedBack"]


class MovedBack(Edit):
    """Leaves the module where the work is: the move back goes, and the next move there finds nothing to do."""

    name = "moved-back"
    needs = (".to(", ".cuda(", ".cpu(")
    safe = False  # the module stays on the device after the step
    answers = ("SYN109",)

    def __init__(self) -> None:
        super().__init__()
        self._moved: list[dict[str, str]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        self._moved.append({})

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._moved.pop()
        return updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        line = original_node.body[0] if len(original_node.body) == 1 else None
        call = method_call(line.value, "to", "cuda", "cpu") if isinstance(line, cst.Expr) else None
        if (
            call is None
            or not isinstance(call.func, cst.Attribute)
            or not self._moved
            or not self.repeated(original_node)
        ):
            return updated_node
        owner, where = text_of(call.func.value), text_of(call).removeprefix(text_of(call.func.value))
        # As a statement only modules are moved: a tensor's copy would be thrown away.
        before = self._moved[-1].setdefault(owner, where)
        if before == where:
            return updated_node
        self.note(original_node, f"{owner} is moved to the device and back every time")
        return cst.RemoveFromParent()

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:  # noqa: N802
        return cst.RemoveFromParent() if emptied(updated_node) else updated_node
