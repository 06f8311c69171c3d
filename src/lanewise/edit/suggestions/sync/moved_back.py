"""A module that is moved to the device and back in every step."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.analysis.optimizer_calls import defines
from lanewise.edit.edit import Edit, emptied, method_call

__all__ = ["MovedBack"]


class MovedBack(Edit):
    """Leaves the module where the work is: the move back goes, and the move there is made once, before the function.

    A move that may depend on what the function is called with stays: it finds nothing to do, for the price of asking every
    parameter.
    """

    name = "moved-back"
    needs = (".to(", ".cuda(", ".cpu(")
    safe = False  # the module stays on the device after the step
    answers = ("SYN109",)

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        self._moved: list[dict[str, str]] = []
        self._stays: list[dict[str, str]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        self._moved.append({})
        self._stays.append({})

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        self._moved.pop()
        stays = self._stays.pop()
        inside = any(isinstance(one, cst.FunctionDef) for one in self.names.parents(original_node))
        if not stays or not inside or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        own = _own_names(original_node)
        once: list[cst.BaseStatement] = []
        rest: list[cst.BaseStatement] = []
        for statement in updated_node.body.body:
            hoisted = any(_moves(statement, owner + where) for owner, where in stays.items())
            (once if hoisted and not own & _names(statement) else rest).append(statement)
        if not once or not rest:
            return updated_node
        body = updated_node.body.with_changes(body=rest)
        return cst.FlattenSentinel([*once, updated_node.with_changes(body=body)])

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
        of = self.values.of(call.func.value)
        if (of.known and of.what != "module") or defines(of.own, call.func.attr.value):
            return updated_node
        before = self._moved[-1].setdefault(owner, where)
        if before == where or not self.offer(original_node, f"{owner} is moved to the device and back every time"):
            return updated_node
        self._stays[-1][owner] = before
        return cst.RemoveFromParent()

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:  # noqa: N802
        return cst.RemoveFromParent() if emptied(updated_node) and not emptied(original_node) else updated_node


def _moves(statement: cst.BaseStatement, move: str) -> bool:
    """Whether a statement does nothing but this move, perhaps under a condition."""
    if isinstance(statement, cst.If):
        body = statement.body.body if isinstance(statement.body, cst.IndentedBlock) else []
        return statement.orelse is None and len(body) == 1 and text_of(body[0]).strip() == move
    return text_of(statement).strip() == move


def _names(node: cst.CSTNode) -> set[str]:
    found: set[str] = set()

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
            found.add(node.value)

    node.visit(Names())
    return found


def _own_names(function: cst.FunctionDef) -> set[str]:
    """Parameters of a function, and what it assigns to."""
    found = _names(function.params)

    class Targets(cst.CSTVisitor):
        def visit_AssignTarget(self, node: cst.AssignTarget) -> None:  # noqa: N802
            found.update(_names(node.target) if isinstance(node.target, cst.Name | cst.Tuple) else ())

        def visit_For(self, node: cst.For) -> None:  # noqa: N802
            found.update(_names(node.target))

    function.visit(Targets())
    return found
