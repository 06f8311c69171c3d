"""Inference that records a graph for a backward pass which never comes."""

from __future__ import annotations

import libcst as cst

from lanewise.fix.source.edit import Edit, called, dotted, is_literal, text_of

__all__ = ["NoGrad"]

_TRAINS = (".backward(", "optim", ".train(", "autograd.grad", "requires_grad_(True)", "requires_grad=True")
_MODES = ("torch.no_grad", "torch.inference_mode")


class NoGrad(Edit):
    """Turns gradients off in functions that call `.eval()` and never train, and where turning them off was optional."""

    name = "no-grad"
    needs = ("no_grad", "inference_mode", ".eval()")
    safe = False  # results carry no graph any more
    answers = ("OPT104",)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:  # noqa: N802
        items: list[cst.WithItem] = []
        for item in updated_node.items:
            call = item.item
            if (
                called(call, *_MODES)
                and isinstance(call, cst.Call)
                and call.args
                and not is_literal(call.args[0].value, "True")
            ):
                self.note(original_node, f"{dotted(call.func)} is not always on: gradients are recorded for nothing")
                item = item.with_changes(item=call.with_changes(args=[]))
            items.append(item)
        return updated_node.with_changes(items=items)

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        text = text_of(original_node)
        wanted = ".eval()" in text and not any(word in text for word in (*_TRAINS, *_MODES))
        if not wanted or any(isinstance(one, cst.FunctionDef) for one in self.parents(original_node)):
            return updated_node
        self.note(
            original_node,
            f"{original_node.name.value} only infers, and records a graph for a backward pass all the same",
        )
        decorator = cst.Decorator(decorator=cst.parse_expression("torch.inference_mode()"))
        return updated_node.with_changes(decorators=[decorator, *updated_node.decorators])
