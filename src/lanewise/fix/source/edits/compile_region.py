"""A function that is a chain of small operations: each reads and writes memory, and is launched by itself."""

from __future__ import annotations

import libcst as cst

from lanewise.fix.source.edit import Edit, dotted, text_of

__all__ = ["CompileRegion"]

_LEAST = 3
_SCALAR = frozenset({"math", "np", "numpy", "cmath", "operator"})
_FORBIDDEN = (".item(", ".tolist(", ".numpy(", ".cpu(", "print(", ".backward(", "time.", "open(", ".step(")
_POINTWISE = frozenset(
    {"sin", "cos", "tanh", "sigmoid", "relu", "gelu", "silu", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square"}
    | {"pow", "clamp", "add", "mul", "sub", "div", "erf", "softplus", "mish"}
)


class CompileRegion(Edit):
    """Compiles the function: one kernel instead of many."""

    name = "compile-region"
    needs = ("torch.", "F.")
    answers = ("LAU101", "LAU102", "LAU103")

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        inside = any(isinstance(one, cst.FunctionDef | cst.ClassDef) for one in self.parents(original_node))
        text = text_of(original_node)
        if inside or original_node.decorators or any(word in text for word in _FORBIDDEN):
            return updated_node
        counter = _Operations()
        original_node.visit(counter)
        if counter.other or not counter.torch or counter.pointwise < _LEAST:
            return updated_node
        self.note(original_node, f"{original_node.name.value} is a chain of small operations, each launched by itself")
        decorator = cst.Decorator(decorator=cst.parse_expression("torch.compile"))
        return updated_node.with_changes(decorators=[decorator])


class _Operations(cst.CSTVisitor):
    """Pointwise operations of a function, and calls of anything else."""

    def __init__(self) -> None:
        self.pointwise = 0
        self.other = 0
        self.torch = 0

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1] or (node.func.attr.value if isinstance(node.func, cst.Attribute) else "")
        if last in _POINTWISE and name.split(".", 1)[0] not in _SCALAR:
            self.pointwise += 1
            # A method may be any object's; with one call of torch the others are tensors, too.
            self.torch += name.startswith(("torch.", "F."))
        elif last != "range":
            self.other += 1

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:  # noqa: N802
        if isinstance(node.operator, cst.MatrixMultiply):
            self.other += 1
        else:
            self.pointwise += 1
