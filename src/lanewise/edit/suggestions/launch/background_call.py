"""A call in every step that only writes or waits: the device has nothing to do meanwhile."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, after_imports

__all__ = ["BackgroundCall"]

_QUEUE = "background"
_MAKER = f'''import atexit
import traceback
from queue import SimpleQueue
from threading import Thread


def _make_calls():
    """Makes the calls that are handed over, in their order."""
    while (call := {_QUEUE}.get()) is not None:
        try:
            call[0](*call[1:])
        except Exception:
            traceback.print_exc()


def _finish_calls():
    {_QUEUE}.put(None)
    _maker.join()


{_QUEUE} = SimpleQueue()
_maker = Thread(target=_make_calls, daemon=True)
_maker.start()
atexit.register(_finish_calls)
'''
_TAKEN = (_QUEUE, "_maker", "_make_calls", "_finish_calls", "SimpleQueue", "Thread", "atexit", "traceback")
_WRITES = ("time.sleep(", "sleep(", "open(", ".write(", "print(", "logging.", "logger.", "json.dump(", ".savetxt(")
_NOT_ALONE = ("torch.", ".item(", ".backward(", "global ", "nonlocal ", "yield")


class BackgroundCall(Edit):
    """Hands the call to one thread: calls stay in their order, and the loop goes on."""

    name = "background-call"
    needs = ("def ",)
    safe = False  # it happens later, falls behind if it takes longer than a step, and what it raises is only printed
    answers = ("LAU110", "REG101")

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        self._writers: set[str] = set()
        if self.program.says(_TAKEN):
            return
        for one in node.body:
            if isinstance(one, cst.FunctionDef) and _only_writes(one):
                self._writers.add(one.name.value)

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:  # noqa: N802
        call = original_node.value
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or not self.repeated(original_node):
            return updated_node
        name = call.func.value
        plain = all(arg.keyword is None and not arg.star for arg in call.args)
        definition = self.names.definition(call.func)
        here = definition is not None and definition in self.names.module.body
        what = f"every step waits for {name}, whose result is never used"
        if name not in self._writers or not plain or not here or not self.offer(original_node, what):
            return updated_node
        arguments = ", ".join([name, *(text_of(arg.value) for arg in call.args)])
        comma = "" if call.args else ","
        return updated_node.with_changes(value=cst.parse_expression(f"{_QUEUE}.put(({arguments}{comma}))"))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:  # noqa: N802
        if not self.found:
            return updated_node
        return after_imports(updated_node, _MAKER)


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
