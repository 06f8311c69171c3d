"""`w.to(torch.bfloat16)` in every round of a loop, of a tensor that stays as it is."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import mentioned, text_of, written_to
from lanewise.edit.edit import Edit, method_call

__all__ = ["CastOnce"]

_METHODS = ("half", "bfloat16", "float", "double")
_CHANGES = ("backward", "optim", "requires_grad", "requires_grad_", "Parameter", "data", "out")
_IDENTITY = ("id", "data_ptr", "is_same", "untyped_storage", "catch_warnings")
"""With these it shows that the copies are one, or that a warning comes once."""


class CastOnce(Edit):
    """Casts before the loop: safe where nothing in the file writes to tensors in place or trains them."""

    name = "cast-once"
    needs = (".to(", *(f".{name}()" for name in _METHODS))
    answers = ("MEM106",)

    def leave_For(  # noqa: N802
        self, original_node: cst.For, updated_node: cst.For
    ) -> cst.For | cst.FlattenSentinel[cst.BaseStatement]:
        if any(isinstance(one, cst.For | cst.While) for one in self.names.parents(original_node)):
            return updated_node
        changed = written_to(original_node)
        once: dict[str, str] = {}
        for call in m.findall(original_node.body, m.Call()):
            name = self._cast_to(call, changed)
            if isinstance(call, cst.Call) and name and self.names.function(call) is self.names.function(original_node):
                owner = text_of(cst.ensure_type(call.func, cst.Attribute).value)
                what = f"{owner} is cast in every round of the loop, and never changes"
                safe = (
                    self.program.closed
                    and not self.program.writes_in_place()
                    and not self.program.says(_CHANGES + _IDENTITY)
                )
                if not self.program.says((name,)) and self.offer(call, what, safe=safe):
                    once[text_of(call)] = name
        if not once:
            return updated_node
        loop = updated_node.with_changes(body=updated_node.body.visit(_Named(once)))
        casts = [cst.parse_statement(f"{name} = {text}") for text, name in once.items()]
        first = cst.ensure_type(casts[0], cst.SimpleStatementLine).with_changes(
            leading_lines=updated_node.leading_lines
        )
        return cst.FlattenSentinel([first, *casts[1:], loop.with_changes(leading_lines=[])])

    def _cast_to(self, node: cst.CSTNode, changed: set[str]) -> str:
        """The name for what a cast of a tensor gives that the loop does not write to; "" for anything else."""
        call = method_call(node, "to", *_METHODS)
        if call is None or not isinstance(call.func, cst.Attribute) or not isinstance(call.func.value, cst.Name):
            return ""
        owner, method = call.func.value, call.func.attr.value
        if not self.values.of(owner).tensor or mentioned(call) & (changed | self.values.elsewhere):
            return ""
        if method != "to":
            return "" if call.args else f"{owner.value}_{method}"
        of = call.args[0].value if len(call.args) == 1 and call.args[0].keyword is None else None
        dtype = self.values.of(of) if of is not None else None
        return (
            f"{owner.value}_{self.names.full(of).rpartition('.')[2]}" if of and dtype and dtype.what == "dtype" else ""
        )


class _Named(cst.CSTTransformer):
    """Replaces expressions by names."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self._names = names

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: N802
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:  # noqa: N802
        return False

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        name = self._names.get(text_of(original_node))
        return updated_node if name is None else cst.Name(name)
