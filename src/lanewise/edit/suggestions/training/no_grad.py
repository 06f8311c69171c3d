"""Inference that records a graph for a backward pass which never comes."""

from __future__ import annotations

import re

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, dotted, is_literal, method_call

__all__ = ["NoGrad"]

_TRAINS = (".backward(", "optim", ".train(", "autograd.grad", "requires_grad_(True)", "requires_grad=True")
_MODES = ("torch.no_grad", "torch.inference_mode")
_ELSEWHERE = ("no_grad", "inference_mode", "set_grad_enabled")
"""Where the file turns gradients off by itself somewhere, it has been thought about."""


class NoGrad(Edit):
    """Turns gradients off in functions that call `.eval()` and never train, and where turning them off was optional; in a
    file in which nothing trains also in those that call a model which the file itself has put in that mode."""

    name = "no-grad"
    needs = ("no_grad", "inference_mode", ".eval()")
    safe = False  # results carry no graph any more
    answers = ("OPT104",)

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        self._only_infer: list[str] = []
        if any(word in text_of(node) for word in (*_TRAINS, *_ELSEWHERE)):
            return
        lines = [line for one in node.body if isinstance(one, cst.SimpleStatementLine) for line in one.body]
        self._only_infer = [name for line in lines if (name := _put_in_eval(line))]

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:  # noqa: N802
        items: list[cst.WithItem] = []
        for was, item in zip(original_node.items, updated_node.items, strict=True):
            call = item.item
            if (
                self.names.full(was.item) in _MODES
                and isinstance(call, cst.Call)
                and call.args
                and not is_literal(call.args[0].value, "True")
                and self.offer(
                    original_node, f"{dotted(call.func)} is not always on: gradients are recorded for nothing"
                )
            ):
                item = item.with_changes(item=call.with_changes(args=[]))
            items.append(item)
        return updated_node.with_changes(items=items)

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        text = text_of(original_node)
        infers = ".eval()" in text or any(re.search(rf"(?<![\w.]){name}\(", text) for name in self._only_infer)
        modes = ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled")
        wanted = infers and not any(word in text for word in (*_TRAINS, *modes))
        if not wanted or any(isinstance(one, cst.FunctionDef) for one in self.names.parents(original_node)):
            return updated_node
        mode = self.written("torch.inference_mode", original_node)
        what = f"{original_node.name.value} only infers, and records a graph for a backward pass all the same"
        if not mode or not self.offer(original_node, what):
            return updated_node
        decorator = cst.Decorator(decorator=cst.parse_expression(f"{mode}()"))
        return updated_node.with_changes(decorators=[decorator, *updated_node.decorators])


def _put_in_eval(line: cst.BaseSmallStatement) -> str:
    """The name in `name.eval()` or `name = ... .eval()`; "" for anything else."""
    value = line.value if isinstance(line, cst.Expr | cst.Assign) else None
    if value is None or (call := method_call(value, "eval")) is None or call.args:
        return ""
    if isinstance(line, cst.Assign):
        return dotted(line.targets[0].target)
    return dotted(call.func.value) if isinstance(call.func, cst.Attribute) else ""
