"""Whether code only computes: it can be left out, or made once, without anybody noticing."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.whole_file import Program
from lanewise.edit.torch_names import ELEMENTWISE, MAKERS, METHODS, RANDOM, REDUCTIONS

__all__ = ["Purity"]

_SIZES = frozenset(
    {
        "size",
        "dim",
        "numel",
        "max",
        "min",
        "median",
        "view",
        "reshape",
        "unsqueeze",
        "to",
        "float",
        "double",
        "long",
        "int",
        "expand",
    }
)
_NUMBERS = frozenset({"builtins.int", "builtins.float", "builtins.len", "builtins.abs", "builtins.min", "builtins.max"})

_WRITES = frozenset({"out", "inplace", "max_norm", "training"})
"""Arguments by which a function of torch writes to others of its arguments, or draws."""
_FUNCTIONS_THAT_WRITE = frozenset(
    f"torch.nn.functional.{name}"
    for name in (
        "embedding",
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "silu",
        "mish",
        "hardtanh",
        "threshold",
    )
)
"""Those that can be told so by place, behind their tensors."""


class Purity:
    """Answers for expressions of one file."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def expression(self, node: cst.CSTNode) -> bool:
        """Whether an expression has no effect but its value: names, numbers, operators, and what torch computes without
        drawing random numbers or writing in place."""
        match node:
            case cst.Name() | cst.Integer() | cst.Float() | cst.SimpleString():
                return True
            case cst.Attribute():
                return self.expression(node.value)
            case cst.UnaryOperation():
                return self.expression(node.expression)
            case cst.BinaryOperation():
                return self.expression(node.left) and self.expression(node.right)
            case cst.Comparison():
                return self.expression(node.left) and all(self.expression(one.comparator) for one in node.comparisons)
            case cst.BooleanOperation():
                return self.expression(node.left) and self.expression(node.right)
            case cst.IfExp():
                return all(self.expression(one) for one in (node.test, node.body, node.orelse))
            case cst.Tuple() | cst.List():
                return all(isinstance(one, cst.Element) and self.expression(one.value) for one in node.elements)
            case cst.Subscript():
                return self.expression(node.value) and all(self._index(one.slice) for one in node.slice)
            case cst.Call():
                return self.call(node) and all(self.expression(arg.value) for arg in node.args)
            case _:
                return isinstance(node, cst.Ellipsis)

    def _index(self, node: cst.BaseSlice) -> bool:
        if isinstance(node, cst.Index):
            return self.expression(node.value)
        parts = (node.lower, node.upper, node.step) if isinstance(node, cst.Slice) else ()
        return all(one is None or self.expression(one) for one in parts)

    def call(self, node: cst.Call) -> bool:
        """The same for a call, whatever its arguments are."""
        full = self._program.names.full(node)
        last = full.rpartition(".")[2]
        if full:
            known = full in ELEMENTWISE | REDUCTIONS or (full in MAKERS and last not in RANDOM)
            known = known or full in _NUMBERS or full.startswith("math.")
            given = {arg.keyword.value for arg in node.args if arg.keyword is not None}
            # An embedding with a largest norm shrinks its table; arguments by place may be any of these.
            by_place = sum(arg.keyword is None for arg in node.args)
            writes = bool(given & _WRITES) or any(arg.star for arg in node.args)
            tensors = 2 if last == "embedding" else 1
            return known and not writes and (full not in _FUNCTIONS_THAT_WRITE or by_place <= tensors)
        if not isinstance(node.func, cst.Attribute):
            return False
        name = node.func.attr.value
        plain = name in METHODS | _SIZES or f"torch.{name}" in ELEMENTWISE | REDUCTIONS
        return (
            plain and not name.endswith("_") and self.expression(node.func.value) and self._is_tensor(node.func.value)
        )

    def _is_tensor(self, node: cst.CSTNode) -> bool:
        """A method of an unknown object may do anything; what it is called decides, unless it is known to be another's."""
        value = self._program.values.of(node)
        return value.tensor or not value.known
