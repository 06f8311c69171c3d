"""What a function does: operations of torch, element by element and others, and calls of anything else."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.whole_file import Program
from lanewise.edit.edit import argument
from lanewise.edit.torch_names import ELEMENTWISE, JUMPS, MAKERS, METHODS, POINTWISE, RANDOM, REDUCTIONS

__all__ = ["Operations", "only_torch"]

_PRODUCTS = frozenset(
    {"matmul", "mm", "bmm", "einsum", "addmm", "baddbmm", "sort", "argsort", "dot", "outer", "det", "inverse"}
)
_UNTOUCHED = frozenset(
    {
        "size",
        "dim",
        "numel",
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "to",
        "expand",
        "expand_as",
        "float",
        "type_as",
        "chunk",
    }
)
_PLAIN = frozenset({"builtins.range", "builtins.len", "builtins.float", "builtins.int"})


def only_torch(function: cst.FunctionDef, program: Program) -> bool:
    """Whether a function calls nothing but operations of torch on what are proven to be tensors."""
    counted = Operations(program)
    function.body.visit(counted)
    return counted.torch > 0 and counted.other == 0 and counted.unproven == 0


class Operations(cst.CSTVisitor):
    """Counts what is in the body of a function.

    Attributes:
        pointwise, products: calls, those in a loop over a written range as often as it goes round. Reductions and views,
            which a compiler fuses as well, are neither. most: rounds of a loop. jumps: operations in which a rounding may
            show as a whole step.
        torch: operations that are certainly torch's. other: anything else. unproven: methods of what may be no tensor.
    """

    def __init__(self, program: Program) -> None:
        self.pointwise = self.products = self.other = self.torch = self.unproven = self.jumps = 0
        self.most = 1
        self._rounds = [1]
        self._program = program

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: N802
        self.other += 1  # what another function does is its own matter
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:  # noqa: N802
        self.other += 1
        return False

    def visit_Yield(self, node: cst.Yield) -> None:  # noqa: N802
        self.other += 1

    def visit_Await(self, node: cst.Await) -> None:  # noqa: N802
        self.other += 1

    def visit_Global(self, node: cst.Global) -> None:  # noqa: N802
        self.other += 1

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:  # noqa: N802
        self.other += 1

    def visit_With(self, node: cst.With) -> None:  # noqa: N802
        self.other += 1

    def visit_Try(self, node: cst.Try) -> None:  # noqa: N802
        self.other += 1

    def visit_Import(self, node: cst.Import) -> None:  # noqa: N802
        self.other += 1

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:  # noqa: N802
        # What is kept elsewhere is seen by others.
        self.other += isinstance(node.target, cst.Attribute)

    def visit_For(self, node: cst.For) -> None:  # noqa: N802
        rounds = 1
        if (
            self._program.names.calls(node.iter, "builtins.range")
            and len(cst.ensure_type(node.iter, cst.Call).args) == 1
        ):
            count = cst.ensure_type(node.iter, cst.Call).args[0].value
            rounds = int(count.value) if isinstance(count, cst.Integer) and count.value.isdigit() else 1
        self._rounds.append(self._rounds[-1] * rounds)
        self.most = max(self.most, self._rounds[-1])

    def leave_For(self, original_node: cst.For) -> None:  # noqa: N802
        self._rounds.pop()

    def visit_Expr(self, node: cst.Expr) -> None:  # noqa: N802
        # A value that nobody takes: the call is there for what else it does.
        self.other += isinstance(node.value, cst.Call)

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        full = self._program.names.full(node)
        name = full.rpartition(".")[2] or (node.func.attr.value if isinstance(node.func, cst.Attribute) else "")
        if full:
            self._function(full, name)
        elif name and isinstance(node.func, cst.Attribute):
            self._method(name, node.func.value)
            # Nothing but a tensor keeps a dimension.
            self.torch += self._program.values.of(node.func.value).tensor or argument(node, "keepdim") is not None
        else:
            self.other += 1

    def _function(self, full: str, name: str) -> None:
        if full.startswith("torch."):
            if name in RANDOM or full not in ELEMENTWISE | REDUCTIONS | MAKERS:
                self.other += 1
                return
            self.torch += 1
            self.jumps += name in JUMPS
            self.pointwise += self._rounds[-1] * (name in POINTWISE)
            self.products += self._rounds[-1] * (name in _PRODUCTS)
        elif full not in _PLAIN and not full.startswith("math."):
            self.other += 1

    def _method(self, name: str, of: cst.BaseExpression) -> None:
        value = self._program.values.of(of)
        self.jumps += name in JUMPS
        if value.known and not value.tensor:
            self.other += 1
        elif name in POINTWISE:
            self.pointwise += self._rounds[-1]
        elif name in _PRODUCTS:
            self.products += self._rounds[-1]
        elif name not in METHODS | _UNTOUCHED and f"torch.{name}" not in REDUCTIONS:
            self.other += 1
        self.unproven += not value.tensor

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:  # noqa: N802
        what = self._program.values.of(node).what
        if what in ("number", "text", "list"):
            return
        self.jumps += isinstance(node.operator, cst.FloorDivide | cst.Modulo)
        if isinstance(node.operator, cst.MatrixMultiply):
            self.products += self._rounds[-1]
        else:
            self.pointwise += self._rounds[-1]
        self.unproven += what != "tensor"
