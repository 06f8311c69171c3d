"""Settings that make the compiler start over for every new size or number."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.edit import Edit, argument, is_literal, without_argument
from lanewise.edit.only_torch import only_torch

__all__ = ["StaticCompile"]

_SETTING = "torch._dynamo.config.automatic_dynamic_shapes"
_BACKENDS = ('"inductor"', "'inductor'", '"aot_eager"', "'aot_eager'", '"eager"', "'eager'")
_FIXED = (
    "mark_static",
    "mark_dynamic",
    "mark_unbacked",
    "error_on_recompile",
    "set_stance",
    "CUDAGraph",
    "export",
    "fullgraph",
)


class StaticCompile(Edit):
    """Lets the compiler generalise once a size or a number has changed.

    Not every backend and not every operation of others can: safe for functions of torch's own operations alone.
    """

    name = "static-compile"
    needs = ("dynamic",)
    answers = ("CMP102",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        given = argument(original_node, "dynamic")
        if (
            not self.names.calls(original_node, "torch.compile")
            or given is None
            or not is_literal(given.value, "False")
        ):
            return updated_node
        if not self.offer(
            original_node, "every new size or number is compiled again", safe=self._generalises(original_node)
        ):
            return updated_node
        return without_argument(updated_node, "dynamic")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        line = original_node.body[0] if len(original_node.body) == 1 else None
        if (
            isinstance(line, cst.Assign)
            and len(line.targets) == 1
            and self.names.full(line.targets[0].target) == _SETTING
            and is_literal(line.value, "False")
            and self.offer(
                original_node, "the compiler may not generalise over sizes and numbers", safe=self._all_generalise()
            )
        ):
            return cst.RemoveFromParent()
        return updated_node

    def _generalises(self, call: cst.Call) -> bool:
        if self.program.says(_FIXED) or any(arg.star for arg in call.args):
            return False
        if (backend := argument(call, "backend")) is not None and not is_literal(backend.value, *_BACKENDS):
            return False
        what = call.args[0].value if call.args and call.args[0].keyword is None else None
        definition = self.names.definition(what) if what is not None else None
        return isinstance(definition, cst.FunctionDef) and only_torch(definition, self.program)

    def _all_generalise(self) -> bool:
        calls = [one for one in m.findall(self.names.module, m.Call()) if self.names.calls(one, "torch.compile")]
        others = self.program.says(("compile",)) and not calls
        return (
            not others
            and self.program.closed
            and all(isinstance(one, cst.Call) and self._generalises(one) for one in calls)
        )
