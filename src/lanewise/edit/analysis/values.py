"""What an expression of a file is, as far as the file proves it: a tensor and its rank, a number, a module.

Nothing is run. A name is what all its assignments are; a parameter what all calls of its function hand over, if the file
has all of them; an attribute of `self` what its class puts there. What is not proven is `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import Names, mentioned, text_of
from lanewise.edit.torch_names import (
    BLOCKS,
    DTYPES,
    ELEMENTWISE,
    KEEP_RANK,
    LAYERS,
    MAKERS,
    METHODS,
    REDUCTIONS,
)

__all__ = ["UNKNOWN", "Value", "Values"]

What = Literal[
    "", "pending", "tensor", "number", "text", "none", "sizes", "list", "module", "optimizer", "dtype", "object"
]


@dataclass(frozen=True)
class Value:
    """What is known of a value.

    Attributes:
        what: its kind; "" if unknown. rank: of a tensor, None if unknown. dtype: of a tensor: "float" for a type with a
            fraction, "bool", "int", "" if unknown. host: whether a tensor was made on the host.
        item: what a list holds. kind: full name of a module's or an optimizer's class; "" for one of this file.
        made: the call that made a module or an optimizer. own: its class, if that is written in this file.
        mask: "shows" for ones in a triangle that has the whole first column, "hides" for its opposite.
    """

    what: What = ""
    rank: int | None = None
    dtype: str = ""
    host: bool = False
    item: Value | None = None
    kind: str = ""
    made: cst.Call | None = None
    own: cst.ClassDef | None = None
    mask: Literal["", "hides", "shows"] = ""

    @property
    def tensor(self) -> bool:
        """Whether it is proven to be a tensor."""
        return self.what == "tensor"

    @property
    def known(self) -> bool:
        """Whether anything is proven."""
        return self.what not in ("", "pending")


UNKNOWN = Value()
_SELF_AGAIN = frozenset({"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16"})
"""Methods of a module that give itself back."""
_PENDING = Value("pending")
_OPPOSITE: dict[str, Literal["", "hides", "shows"]] = {"": "", "hides": "shows", "shows": "hides"}
NUMBER = Value("number")


class Values:
    """Answers what expressions of one file are; remembers what it has found."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._found: dict[cst.CSTNode, Value] = {}
        declared = m.findall(names.module, m.Global() | m.Nonlocal())
        self._elsewhere = {name for one in declared for name in mentioned(one)}  # names that other functions write
        self._attributes: dict[str, list[tuple[cst.ClassDef | None, cst.CSTNode | None]]] | None = None

    def of(self, node: cst.CSTNode) -> Value:
        """What an expression is."""
        value = self._of(node)
        return value if value.known else UNKNOWN

    def _of(self, node: cst.CSTNode) -> Value:
        if node not in self._found:
            self._found[node] = _PENDING  # a loop assigns from itself: what the other assignments prove decides
            value = self._evaluated(node)
            if value.what == "pending":
                del self._found[node]  # may be known from elsewhere, once what it hangs on is
                return value
            self._found[node] = value
        return self._found[node]

    def _evaluated(self, node: cst.CSTNode) -> Value:  # noqa: C901, PLR0912  a case for each kind of expression
        match node:
            case cst.Integer() | cst.Float():
                return NUMBER
            case cst.SimpleString() | cst.ConcatenatedString() | cst.FormattedString():
                return Value("text")
            case cst.Name(value="None"):
                return Value("none")
            case cst.Name(value="True" | "False"):
                return Value("number", dtype="bool")
            case cst.Name():
                return self._name(node)
            case cst.Attribute():
                return self._attribute(node)
            case cst.Call():
                return self._call(node)
            case cst.UnaryOperation():
                of = self._of(node.expression)
                inverted = isinstance(node.operator, cst.BitInvert) and of.dtype == "bool"
                return (
                    NUMBER
                    if isinstance(node.operator, cst.Not)
                    else replace(of, mask=_OPPOSITE[of.mask] if inverted else "")
                )
            case cst.BinaryOperation():
                return _operated(
                    self._of(node.left), self._of(node.right), isinstance(node.operator, cst.MatrixMultiply)
                )
            case cst.Comparison():
                return self._comparison(node)
            case cst.BooleanOperation():
                return _joined([self._of(node.left), self._of(node.right)])
            case cst.IfExp():
                return _joined([self._of(node.body), self._of(node.orelse)])
            case cst.Subscript():
                return self._subscript(node)
            case cst.NamedExpr():
                return self._of(node.value)
            case cst.List() | cst.Tuple():
                plain = all(isinstance(one, cst.Element) for one in node.elements)
                return Value("list", item=_joined([self._of(e.value) for e in node.elements]) if plain else UNKNOWN)
            case cst.ListComp() | cst.GeneratorExp():
                return Value("list", item=self._of(node.elt))
            case _:
                return UNKNOWN

    # -- names -----------------------------------------------------------------------------------------------------

    def _name(self, node: cst.Name) -> Value:
        if self._names.own_class(node) is not None:
            owner = self._names.own_class(node)
            return Value("module" if self.is_module_class(owner) else "object", own=owner)
        if (full := self._names.full(node)) in DTYPES:
            return Value("dtype", dtype=DTYPES[full])
        if full in ("math.pi", "math.inf", "torch.inf", "torch.pi", "math.e"):
            return NUMBER
        if (just := self._just_written(node)) is not None:
            return self._of(just)
        writes = self._names.writes(node)
        return _joined([self._written(one.node, one.target) for one in writes]) if writes else UNKNOWN

    def _just_written(self, node: cst.Name) -> cst.BaseExpression | None:
        """What a plain statement before, in the same block or around it, gives the name, if nothing in between can."""
        inner: cst.CSTNode | None = None
        if node.value in self._elsewhere:
            return None
        for around in self._names.parents(node):
            if isinstance(
                around, cst.Lambda | cst.CompFor | cst.For | cst.While | cst.FunctionDef | cst.ClassDef | cst.Try
            ):
                return None
            if isinstance(around, cst.IndentedBlock) and inner is not None:
                before = list(around.body[: [id(one) for one in around.body].index(id(inner))])
                for statement in reversed(before):
                    if m.findall(statement, m.Name(node.value)):
                        if (value := _plainly(statement, node.value)) is not None:
                            return value
                        if not _only_reads(statement):
                            return None
            inner = around
        return None

    def _written(self, node: cst.CSTNode, target: cst.CSTNode) -> Value:
        """What a statement writes to a target in it."""
        match node:
            case cst.Assign():
                return _joined(
                    [self._part(one.target, target, self._of(node.value), node.value) for one in node.targets]
                )
            case cst.AnnAssign():
                told = self._annotated(node.annotation)
                return told if told.known or node.value is None else self._of(node.value)
            case cst.AugAssign():
                value = self._of(node.value)
                return _PENDING if value.what == "number" else _operated(_PENDING, value, False)
            case cst.NamedExpr():
                return self._of(node.value)
            case cst.For() | cst.CompFor():
                return self._part(node.target, target, self._walked(node.iter), None)
            case cst.Param():
                return self._parameter(node)
            case _:
                return UNKNOWN

    def _part(self, whole: cst.CSTNode, target: cst.CSTNode, value: Value, written: cst.CSTNode | None) -> Value:
        """The part of a value that a target gets which stands alone or in a tuple of targets."""
        if whole is target:
            return value
        if not isinstance(whole, cst.Tuple | cst.List):
            return _PENDING
        for at, element in enumerate(whole.elements):
            inside = element.value is target or m.findall(element.value, m.MatchIfTrue(lambda n: n is target))
            if not inside:
                continue
            if isinstance(element, cst.StarredElement):
                return UNKNOWN
            if isinstance(written, cst.Tuple | cst.List) and len(written.elements) == len(whole.elements):
                other = written.elements[at].value
                return self._part(element.value, target, self._of(other), other)
            items = value.own_items if isinstance(value, _Pairs) else None
            inner = items[at] if items is not None and at < len(items) else _item(value)
            return self._part(element.value, target, inner, None)
        return _PENDING

    def _walked(self, node: cst.BaseExpression) -> Value:
        """What a loop over an expression goes through, one by one."""
        if isinstance(node, cst.Call):
            full = self._names.full(node)
            if full == "builtins.enumerate" and node.args:
                return _Pairs([NUMBER, _item(self._of(node.args[0].value))])
            if full == "builtins.zip":
                return _Pairs([_item(self._of(arg.value)) for arg in node.args])
        return _item(self._of(node))

    def _parameter(self, node: cst.Param) -> Value:
        told = self._annotated(node.annotation)
        if told.known:
            return told
        function = self._names.function(node.name)
        if not isinstance(function, cst.FunctionDef) or node.star:
            return UNKNOWN
        owner = self._names.owner(function)
        definition: cst.FunctionDef | cst.ClassDef = function
        if owner is not None:
            if function.name.value != "__init__" or owner.decorators:
                return UNKNOWN
            definition = owner
        calls = self._names.calls_of(definition)
        if not calls or function.decorators:
            return UNKNOWN
        given = [self.argument(function, call, node.name.value, skip=owner is not None) for call in calls]
        return _joined([UNKNOWN if one is None else self._of(one) for one in given])

    def argument(
        self, function: cst.FunctionDef, call: cst.Call, name: str, *, skip: bool = False
    ) -> cst.BaseExpression | None:
        """What a call gives a parameter, or its default; None if that cannot be told."""
        params = [*function.params.posonly_params, *function.params.params][1 if skip else 0 :]
        if any(arg.star for arg in call.args):
            return None
        for at, arg in enumerate(call.args):
            if arg.keyword is not None and arg.keyword.value == name:
                return arg.value
            if arg.keyword is None and at < len(params) and params[at].name.value == name:
                return arg.value
        every = [*params, *function.params.kwonly_params]
        return next((one.default for one in every if one.name.value == name), None)

    def _annotated(self, annotation: cst.Annotation | None) -> Value:
        if annotation is None:
            return UNKNOWN
        full = self._names.full(annotation.annotation)
        if full in ("torch.Tensor", "torch.FloatTensor", "torch.LongTensor", "torch.nn.Parameter"):
            return Value("tensor")
        return NUMBER if full in ("builtins.int", "builtins.float") else UNKNOWN

    # -- attributes ------------------------------------------------------------------------------------------------

    def _attribute(self, node: cst.Attribute) -> Value:
        if (full := self._names.full(node)) in DTYPES:
            return Value("dtype", dtype=DTYPES[full])
        if full in ("math.pi", "math.inf", "torch.inf", "torch.pi", "math.e"):
            return NUMBER
        name, of = node.attr.value, self._of(node.value)
        if of.own is not None and isinstance(node.value, cst.Name) and self._names.own_class(node.value) is of.own:
            return self._of_self(of.own, name)
        if of.tensor:
            kinds: dict[str, Value] = {
                "shape": Value("sizes"),
                "ndim": NUMBER,
                "dtype": Value("dtype"),
                "T": of,
                "mT": of,
            }
            return kinds.get(name, replace(of, host=False) if name in ("data", "real") else UNKNOWN)
        return UNKNOWN

    def _of_self(self, owner: cst.ClassDef, name: str) -> Value:
        """What all of a class puts into an attribute, if nothing else in the file does."""
        if self._attributes is None:
            self._attributes = self._written_attributes()
        places = self._attributes.get(name, [])
        if "setattr" in self._attributes or not all(cls is owner for cls, _ in places) or not places:
            return UNKNOWN
        return _joined([UNKNOWN if value is None else self._of(value) for _, value in places])

    def _written_attributes(self) -> dict[str, list[tuple[cst.ClassDef | None, cst.CSTNode | None]]]:
        """Per attribute the classes that write it, with what; None for anything that is not plain."""
        found: dict[str, list[tuple[cst.ClassDef | None, cst.CSTNode | None]]] = {}

        def add(target: cst.CSTNode, value: cst.CSTNode | None) -> None:
            if isinstance(target, cst.Attribute):
                found.setdefault(target.attr.value, []).append((self._names.own_class(target.value), value))
            elif isinstance(target, cst.Tuple | cst.List):
                for element in target.elements:
                    add(element.value, None)

        for node in m.findall(self._names.module, m.Assign() | m.AnnAssign() | m.AugAssign() | m.For() | m.WithItem()):
            match node:
                case cst.Assign():
                    for one in node.targets:
                        add(one.target, node.value)
                case cst.AnnAssign():
                    add(node.target, node.value)
                case cst.AugAssign() | cst.For():
                    add(node.target, None)
                case cst.WithItem() if node.asname is not None:
                    add(node.asname.name, None)
                case _:
                    pass
        for call in m.findall(self._names.module, m.Call()):
            assert isinstance(call, cst.Call)
            if self._names.full(call) == "builtins.setattr":
                found["setattr"] = []
            func = call.func
            registers = isinstance(func, cst.Attribute) and func.attr.value in ("register_buffer", "register_parameter")
            if isinstance(func, cst.Attribute) and registers and len(call.args) > 1:
                if isinstance(call.args[0].value, cst.SimpleString):
                    key = str(call.args[0].value.evaluated_value)
                    found.setdefault(key, []).append((self._names.own_class(func.value), call.args[1].value))
        return found

    def is_module_class(self, node: cst.CSTNode | None) -> bool:
        """Whether a class of this file is a plain module of torch: it has no other base."""
        bases = [self._names.full(arg.value) for arg in node.bases] if isinstance(node, cst.ClassDef) else []
        return bases == ["torch.nn.Module"]

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Value:
        full = self._names.full(node)
        if full.startswith("torch."):
            return self._torch_call(node, full)
        if full.startswith("math."):
            return NUMBER
        if full.startswith("builtins."):
            return self._builtin(node, full.removeprefix("builtins."))
        definition = self._names.definition(node.func)
        if isinstance(definition, cst.ClassDef):
            kind: What = "module" if self.is_module_class(definition) else "object"
            return Value(kind, made=node, own=definition)
        if isinstance(definition, cst.FunctionDef):
            return self._returned(definition)
        if isinstance(node.func, cst.Attribute) and not full:
            of = self._of(node.func.value)
            if of.what == "module" and node.func.attr.value in _SELF_AGAIN:
                return of if self._plain_method(of, node.func.attr.value) else UNKNOWN
            if of.tensor:
                return self._method(node, node.func.attr.value, of)
            if of.what == "pending":
                return _PENDING
        called = self._of(node.func)
        return self._module_call(called, node) if called.what == "module" else UNKNOWN

    def _plain_method(self, of: Value, name: str) -> bool:
        return of.own is None or not any(
            isinstance(one, cst.FunctionDef) and one.name.value == name for one in of.own.body.body
        )

    def _module_call(self, module: Value, node: cst.Call) -> Value:
        if module.own is not None:
            forward = next(
                (
                    one
                    for one in module.own.body.body
                    if isinstance(one, cst.FunctionDef) and one.name.value == "forward"
                ),
                None,
            )
            return self._returned(forward) if forward is not None else UNKNOWN
        first = self._of(node.args[0].value) if node.args else UNKNOWN
        if module.kind in LAYERS:
            return Value("tensor", first.rank if module.kind in KEEP_RANK else None, "float")
        if module.kind == "torch.nn.Sequential" and module.made is not None:
            layers = [self._of(arg.value) for arg in module.made.args if not arg.star]
            if len(layers) == len(module.made.args) and all(one.kind in LAYERS for one in layers):
                return Value("tensor", dtype="float")
        return UNKNOWN

    def _returned(self, function: cst.FunctionDef) -> Value:
        if function.decorators and not all(
            "compile" in text_of(one) or "grad" in text_of(one) for one in function.decorators
        ):
            return UNKNOWN
        if function.asynchronous is not None or m.findall(function.body, m.Yield()):
            return UNKNOWN
        returns = [
            one for one in m.findall(function.body, m.Return())
            if isinstance(one, cst.Return) and self._names.function(one) is function
        ]  # fmt: skip
        return (
            _joined([Value("none") if one.value is None else self._of(one.value) for one in returns])
            if returns
            else UNKNOWN
        )

    def _builtin(self, node: cst.Call, name: str) -> Value:
        if name in ("int", "float", "len", "round", "bool"):
            return NUMBER
        first = self._of(node.args[0].value) if node.args else UNKNOWN
        if name == "range":
            return Value("list", item=NUMBER)
        if name in ("list", "tuple", "sorted", "reversed"):
            return Value("list", item=_item(first)) if node.args else UNKNOWN
        if name in ("abs", "min", "max", "sum", "pow"):
            return (
                _joined([self._of(arg.value) for arg in node.args])
                if len(node.args) > 1 or name == "abs"
                else _item(first)
            )
        return UNKNOWN

    def _torch_call(self, node: cst.Call, full: str) -> Value:
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
            rank = first.rank if full in KEEP_RANK else None
            return Value("tensor", rank, "float") if full in ELEMENTWISE | KEEP_RANK | REDUCTIONS else UNKNOWN
        if full in MAKERS:
            return self._made(node, name)
        if full in ELEMENTWISE:
            return replace(_joined_ranks([self._of(a.value) for a in node.args if a.keyword is None]), host=False)
        if full in REDUCTIONS:
            return Value("tensor")
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

    def _method(self, node: cst.Call, name: str, of: Value) -> Value:
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
            ones = all(is_one(one.value if isinstance(one, cst.Element) else one) for one in list(sizes)[:-2])
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
            return replace(moved, mask=_OPPOSITE[of.mask] if name == "logical_not" and of.dtype == "bool" else kept)
        if f"torch.{name}" in REDUCTIONS:
            return Value("tensor", None, of.dtype)
        if name in ("max", "min", "median") and not node.args:
            return Value("tensor", 0, of.dtype)  # with a dimension it is a pair
        if name.endswith("_") and not name.endswith("__"):
            return of
        return UNKNOWN

    def _comparison(self, node: cst.Comparison) -> Value:
        plain = all(not isinstance(one.operator, cst.In | cst.NotIn | cst.Is | cst.IsNot) for one in node.comparisons)
        sides = [self._of(node.left), *(self._of(one.comparator) for one in node.comparisons)]
        if plain and len(sides) == 2 and any(one.tensor for one in sides):
            operator, right = node.comparisons[0].operator, node.comparisons[0].comparator
            to = right.value if isinstance(right, cst.Integer) else ""
            kept = (type(operator), to) in ((cst.Equal, "1"), (cst.NotEqual, "0"), (cst.GreaterThan, "0"))
            turned = isinstance(operator, cst.Equal) and to == "0"
            mask = sides[0].mask if kept else _OPPOSITE[sides[0].mask] if turned else ""
            return replace(_joined_ranks(sides), dtype="bool", host=False, mask=mask)
        return NUMBER if not plain or all(one.what == "number" for one in sides) else UNKNOWN

    def _subscript(self, node: cst.Subscript) -> Value:
        of = self._of(node.value)
        if of.what == "sizes":
            return NUMBER if isinstance(node.slice[0].slice, cst.Index) else of
        if of.what == "list":
            return _item(of) if isinstance(node.slice[0].slice, cst.Index) else of
        if not of.tensor:
            return of if of.what == "pending" else UNKNOWN
        rank, begins = of.rank, True
        for one in node.slice:
            if isinstance(one.slice, cst.Slice):
                begins = begins and one.slice.lower is None and one.slice.step is None
                continue
            begins = False
            index = one.slice.value if isinstance(one.slice, cst.Index) else None
            what = self._of(index).what if index is not None and not isinstance(index, cst.Ellipsis) else ""
            rank = (
                rank - 1
                if rank is not None and what == "number"
                else rank + 1
                if rank is not None and what == "none"
                else None
            )
        return Value("tensor", rank, of.dtype, mask=of.mask if begins else "")


class _Pairs(Value):
    """What a loop over pairs gives, part by part."""

    def __init__(self, items: Sequence[Value]) -> None:
        super().__init__("list")
        object.__setattr__(self, "own_items", list(items))

    own_items: list[Value]


def _plainly(statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """The value in `name = value`."""
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    plain = isinstance(line, cst.Assign) and len(line.targets) == 1
    return (
        line.value
        if isinstance(line, cst.Assign) and plain and m.matches(line.targets[0].target, m.Name(name))
        else None
    )


def _only_reads(statement: cst.CSTNode) -> bool:
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    return isinstance(line, cst.Expr | cst.Return | cst.Assert) and not m.findall(line, m.NamedExpr())


def is_one(node: cst.CSTNode) -> bool:
    """Whether an expression is the number one, as written."""
    return isinstance(node, cst.Integer) and node.value == "1"


def _item(value: Value) -> Value:
    """One of what a value holds."""
    if value.what == "list":
        return value.item or UNKNOWN
    if value.what == "sizes":
        return NUMBER
    if value.tensor:
        return replace(value, rank=None if value.rank is None else value.rank - 1, host=False)
    return value if value.what == "pending" else UNKNOWN


def _unbound(of: Value, name: str) -> int | None:
    return of.rank if of.rank is None or name != "unbind" else of.rank - 1


def _joined(values: Iterable[Value]) -> Value:
    """What is known of a value that is one of these."""
    found = [one for one in values if one.what != "pending"]
    if not found:
        return _PENDING
    first = found[0]
    for one in found[1:]:
        if one.what != first.what:
            return UNKNOWN
        first = replace(
            first,
            rank=first.rank if one.rank == first.rank else None,
            dtype=first.dtype if one.dtype == first.dtype else "",
            host=first.host and one.host,
            item=None if first.item is None or one.item is None else _joined([first.item, one.item]),
            kind=first.kind if one.kind == first.kind else "",
            made=first.made if one.made is first.made else None,
            own=first.own if one.own is first.own else None,
            mask=first.mask if one.mask == first.mask else "",
        )
        if first.what in ("module", "optimizer") and not first.kind and first.own is None:
            return UNKNOWN
    return first


def _joined_ranks(values: Sequence[Value]) -> Value:
    """The tensor that operands are broadcast to."""
    tensors = [one for one in values if one.tensor]
    if any(one.what == "" for one in values):
        return Value("tensor")
    ranks = [one.rank for one in tensors]
    known = [rank for rank in ranks if rank is not None]
    types = {one.dtype for one in tensors}
    dtype = "float" if "float" in types and "" not in types else types.pop() if len(types) == 1 else ""
    return Value("tensor", max(known) if len(known) == len(ranks) and known else None, dtype)


def _operated(left: Value, right: Value, product: bool) -> Value:
    """The result of an operator: of a tensor and anything else a tensor."""
    if left.tensor or right.tensor:
        result = _joined_ranks([one for one in (left, right) if one.what != "pending"])
        return replace(result, rank=None) if product and result.rank is not None and result.rank < 2 else result
    if left.what == right.what == "number":
        return NUMBER
    if "pending" in (left.what, right.what):
        other = right if left.what == "pending" else left
        return _PENDING if other.what in ("number", "pending") else UNKNOWN
    return UNKNOWN
