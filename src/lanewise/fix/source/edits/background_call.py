"""A call in every step that only writes or waits: the device has nothing to do meanwhile."""

from __future__ import annotations

import libcst as cst

from lanewise.fix.source.edit import Edit, text_of
from lanewise.fix.source.edits.growing_cat import after_imports

__all__ = ["BackgroundCall"]

_POOL = "background"
_WRITES = ("time.sleep(", "sleep(", "open(", ".write(", "print(", "logging.", "logger.", "json.dump(", ".savetxt(")
_NOT_ALONE = ("torch.", ".item(", ".backward(", "global ", "nonlocal ", "yield")


class BackgroundCall(Edit):
    """Hands the call to one thread: calls stay in their order, and the loop goes on."""

    name = "background-call"
    needs = ("def ",)
    safe = False  # it happens later, and an exception in it is not raised in the loop
    answers = ("LAU110", "REG101")

    def __init__(self) -> None:
        super().__init__()
        self._writers: set[str] = set()

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        for one in node.body:
            if isinstance(one, cst.FunctionDef) and _only_writes(one):
                self._writers.add(one.name.value)

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:  # noqa: N802
        call = original_node.value
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or not self.repeated(original_node):
            return updated_node
        name = call.func.value
        if name not in self._writers or not isinstance(updated_node.value, cst.Call):
            return updated_node
        self.note(original_node, f"every step waits until {name} is done, whose result nobody uses")
        arguments = [cst.Arg(cst.Name(name)), *updated_node.value.args]
        submit = cst.Attribute(cst.Name(_POOL), cst.Name("submit"))
        return updated_node.with_changes(value=updated_node.value.with_changes(func=submit, args=arguments))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:  # noqa: N802
        if not self.found:
            return updated_node
        text = f"from concurrent.futures import ThreadPoolExecutor\n\n{_POOL} = ThreadPoolExecutor(max_workers=1)\n"
        return after_imports(updated_node, text)


def _only_writes(function: cst.FunctionDef) -> bool:
    """Whether a function writes or waits, gives nothing back, and touches no tensor."""
    text = text_of(function.body)
    returns = [one for one in _returns(function) if one.value is not None]
    return any(word in text for word in _WRITES) and not returns and not any(word in text for word in _NOT_ALONE)


def _returns(function: cst.FunctionDef) -> list[cst.Return]:
    found: list[cst.Return] = []

    class Returns(cst.CSTVisitor):
        def visit_Return(self, node: cst.Return) -> None:  # noqa: N802
            found.append(node)

    function.visit(Returns())
    return found
