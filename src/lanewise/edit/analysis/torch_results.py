"""What functions, methods and layers of torch give, and built-in functions, from what is known of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import libcst as cst

from lanewise.edit.analysis.imported_names import Names
from lanewise.edit.analysis.known_value import NUMBER, OPPOSITE, UNKNOWN, Value, broadcast, item_of, joined
from lanewise.edit.torch_names import BLOCKS, ELEMENTWISE, KEEP_RANK, LAYERS, LOSSES, MAKERS, METHODS, REDUCTIONS, WHOLE

__all__ = ["TorchResults"]


class TorchResults:
    """The results of calls in one file.

    Args:
        names: of the file. of: what an expression in it is.
    """

    def __init__(self, names: Names, of: Callable[[cst.CSTNode], Value]) -> None:
        self._names, self._of = names, of

    def builtin(self, node: cst.Call, name: str) -> Value:
        """What a built-in function gives."""
        if name in ("int", "float", "len", "round", "bool"):
            return NUMBER
        first = self._of(node.args[0].value) if node.args else UNKNOWN
        if name == "range":
            return Value("list", item=NUMBER)
        if name in ("list", "tuple", "sorted", "reversed"):
            return Value("list", item=item_of(first)) if node.args else UNKNOWN
        if name in ("abs", "min", "max", "sum", "pow"):
            return (
                joined([self._of(arg.value) for arg in node.args])
                if len(node.args) > 1 or name == "abs"
                else item_of(first)
            )
        return UNKNOWN

    def function(self, node: cst.Call, full: str) -> Value:
        """What a function or a class of torch gives, by its full name."""
        name = full.rpartition(".")[2]
        first = self._of(node.args[0].value) if node.args else UNKNOWN
        if full.startswith("torch.optim.") and full.count(".") == 2 and name[0].isupper():
            return Value("optimizer", kind=full, made=node)
        if full == "torch.nn.Parameter":
            return replace(first, host=False) if first.tensor else Value("tensor")
        if full.startswith("torch.nn.") and full.count(".") == 2 and name[0].isupper():
            return Value("module", kind=full, made=node)
        if full in BLOCKS:
            return Value("list", item=Value("tensor"))
        if full.startswith("torch.nn.functional."):
            rank = 0 if full in LOSSES and _reduced(node) else first.rank if full in KEEP_RANK else None
            return Value("tensor", rank, "float") if full in ELEMENTWISE | KEEP_RANK | REDUCTIONS else UNKNOWN
        if full in MAKERS:
            return self._made(node, name)
        if full in ELEMENTWISE:
            return replace(broadcast([self._of(a.value) for a in node.args if a.keyword is None]), host=False)
        if full in REDUCTIONS:
            return Value("tensor", 0 if name in WHOLE and len(node.args) == 1 and first.tensor else None)
        return UNKNOWN

    def _made(self, node: cst.Call, name: str) -> Value:
        given = {arg.keyword.value: arg.value for arg in node.args if arg.keyword is not None}
        plain = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
        host = "device" not in given
        dtype = {"randint": "int", "randperm": "int", "arange": "", "full": "", "tensor": ""}.get(name, "float")
        if "dtype" in given:
            dtype = self._of(given["dtype"]).dtype
        if name.endswith("_like"):
            of = self._of(plain[0]) if plain else UNKNOWN
            return Value("tensor", of.rank, dtype if "dtype" in given else of.dtype, host and of.host)
        if name in ("triu", "tril"):
            of = self._of(plain[0]) if plain else UNKNOWN
            return replace(of, host=False, mask=self._triangle(node, name)) if of.tensor else Value("tensor")
        rank: int | None = None
        if name in ("arange", "linspace", "randperm"):
            rank = 1
        elif name == "eye":
            rank = 2
        elif name in ("randn", "rand", "zeros", "ones", "empty", "full", "randint"):
            sizes = plain[-1:] if name == "randint" else plain[:1] if name == "full" else plain
            if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
                rank = len(sizes[0].elements)
            elif len(sizes) > 1 or (sizes and name not in ("full", "randint") and self._of(sizes[0]).what == "number"):
                rank = len(sizes)
            if any(arg.star for arg in node.args):
                rank = None
        return Value("tensor", rank, dtype, host)

    def _triangle(self, node: cst.Call, name: str) -> Literal["", "hides", "shows"]:
        """What ones in a triangle say of the first column: nothing is hidden there, or everything is shown."""
        ones = self._names.full(node.args[0].value) == "torch.ones"
        rest = [arg.value for arg in node.args[1:] if arg.keyword is None or arg.keyword.value == "diagonal"]
        number = rest[0] if rest else None
        above = (
            int(number.value) if isinstance(number, cst.Integer) and number.value.isdigit() else 0 if not rest else -1
        )
        if not ones or above < 0:
            return ""
        return "shows" if name == "tril" else "hides" if above >= 1 else ""

    def method(self, node: cst.Call, name: str, of: Value) -> Value:
        """What a method of a tensor gives."""
        given = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
        moved = replace(of, host=False)
        if name in ("item", "dim", "numel", "nelement", "tolist", "element_size"):
            return NUMBER if name != "tolist" else UNKNOWN
        if name == "size":
            return NUMBER if node.args else Value("sizes")
        if name in BLOCKS:
            return Value(
                "list", item=replace(moved, rank=None if name != "unbind" and of.rank is None else _unbound(of, name))
            )
        if name in ("view", "reshape", "expand", "permute", "repeat"):
            sizes = given[0].elements if len(given) == 1 and isinstance(given[0], cst.Tuple | cst.List) else given
            counted = len(sizes) > 1 or (len(sizes) == 1 and self._of(given[0]).what == "number")
            ones = all(_is_one(one.value if isinstance(one, cst.Element) else one) for one in list(sizes)[:-2])
            mask = of.mask if name in ("view", "reshape") and len(sizes) > 2 and ones else ""
            return replace(
                moved, rank=len(sizes) if counted and not any(arg.star for arg in node.args) else None, mask=mask
            )
        if name in ("unsqueeze",):
            return replace(moved, rank=None if of.rank is None else of.rank + 1)
        if name in ("float", "double", "half", "bfloat16", "bool", "int", "long"):
            dtype = {"bool": "bool", "int": "int", "long": "int"}.get(name, "float")
            return replace(moved, dtype=dtype)
        if name in ("to", "type_as", "type"):
            told = self._of(given[0]) if given else UNKNOWN
            return replace(moved, dtype=told.dtype if told.what == "dtype" else "" if not given else of.dtype)
        if name in METHODS or f"torch.{name}" in ELEMENTWISE:
            kept = moved.mask if name in ("cuda", "cpu", "contiguous", "detach", "clone", "requires_grad_") else ""
            return replace(moved, mask=OPPOSITE[of.mask] if name == "logical_not" and of.dtype == "bool" else kept)
        if f"torch.{name}" in REDUCTIONS:
            return Value("tensor", 0 if name in WHOLE and not node.args else None, of.dtype)
        if name in ("max", "min", "median") and not node.args:
            return Value("tensor", 0, of.dtype)  # with a dimension it is a pair
        if name.endswith("_") and not name.endswith("__"):
            return of
        return UNKNOWN

    def layer(self, module: Value, node: cst.Call) -> Value:
        """What a module of torch gives when it is called."""
        first = self._of(node.args[0].value) if node.args else UNKNOWN
        if module.kind in LOSSES and module.made is not None and _reduced(module.made):
            return Value("tensor", 0, "float")
        if module.kind in LAYERS:
            return Value("tensor", first.rank if module.kind in KEEP_RANK else None, "float")
        if module.kind == "torch.nn.Sequential" and module.made is not None:
            layers = [self._of(arg.value) for arg in module.made.args if not arg.star]
            if len(layers) == len(module.made.args) and all(one.kind in LAYERS for one in layers):
                return Value("tensor", dtype="float")
        return UNKNOWN


def _reduced(loss: cst.Call) -> bool:
    """Whether a loss, or its layer, gives one value: nothing is said of how it is reduced."""
    more = ("reduction", "reduce", "size_average")
    return not any(arg.star or (arg.keyword is not None and arg.keyword.value in more) for arg in loss.args)


def _is_one(node: cst.CSTNode) -> bool:
    """Whether an expression is the number one, as written."""
    return isinstance(node, cst.Integer) and node.value == "1"


def _unbound(of: Value, name: str) -> int | None:
    return of.rank if of.rank is None or name != "unbind" else of.rank - 1
