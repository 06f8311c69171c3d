"""A function that is a chain of small operations: each reads and writes memory, and is launched by itself."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, dotted, text_of

__all__ = ["CompileRegion"]

_LEAST, _LEAST_REPEATED = 3, 12
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
        around = self.parents(original_node)
        text = text_of(original_node)
        in_class = any(isinstance(one, cst.ClassDef) for one in around)
        if in_class or original_node.decorators or any(word in text for word in _FORBIDDEN):
            return updated_node
        counter = _Operations()
        original_node.visit(counter)
        # Inside of another function there are only single calls to gain from: it has to repeat many.
        least = _LEAST_REPEATED if any(isinstance(one, cst.FunctionDef) for one in around) else _LEAST
        if counter.other or not counter.torch or counter.pointwise < least or (counter.library and counter.most == 1):
            return updated_node
        self.note(original_node, f"{original_node.name.value} is a chain of small operations, each launched by itself")
        decorator = cst.Decorator(decorator=cst.parse_expression("torch.compile"))
        return updated_node.with_changes(decorators=[decorator])


_LIBRARY = frozenset({"argsort", "sort", "matmul", "mm", "bmm", "sum", "mean", "amax", "amin"})


class _Operations(cst.CSTVisitor):
    """Pointwise operations of a function, those of libraries, and calls of anything else.

    Attributes:
        pointwise, library: calls, those in a loop over a written range as often as it goes round. most: rounds of a loop.
    """

    def __init__(self) -> None:
        self.pointwise = 0
        self.library = 0
        self.other = 0
        self.torch = 0
        self.most = 1
        self._rounds = [1]
        self._functions = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        self._functions += 1
        self.other += self._functions > 1  # what another function does is its own matter

    def visit_For(self, node: cst.For) -> None:  # noqa: N802
        rounds = 1
        if isinstance(node.iter, cst.Call) and dotted(node.iter.func) == "range" and len(node.iter.args) == 1:
            count = node.iter.args[0].value
            rounds = int(count.value) if isinstance(count, cst.Integer) and count.value.isdigit() else 1
        self._rounds.append(self._rounds[-1] * rounds)
        self.most = max(self.most, self._rounds[-1])

    def leave_For(self, original_node: cst.For) -> None:  # noqa: N802
        self._rounds.pop()

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1] or (node.func.attr.value if isinstance(node.func, cst.Attribute) else "")
        if last in _POINTWISE and name.split(".", 1)[0] not in _SCALAR:
            self.pointwise += self._rounds[-1]
            # A method may be any object's; with one call of torch the others are tensors, too.
            self.torch += name.startswith(("torch.", "F."))
        elif last in _LIBRARY and name.startswith("torch."):
            self.library += self._rounds[-1]
        elif last != "range":
            self.other += 1

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:  # noqa: N802
        if isinstance(node.operator, cst.MatrixMultiply):
            self.library += self._rounds[-1]
        else:
            self.pointwise += self._rounds[-1]
