"""What an expression of a file is, as far as the file proves it: a tensor and its rank, a number, a module.

Nothing is run. A name is what all its assignments are; a parameter what all calls of its function hand over, if the file
has all of them; an attribute of `self` what its class puts there. What is not proven is `UNKNOWN`.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import Names, mentioned, text_of
from lanewise.edit.analysis.known_value import (
    NUMBER,
    OPPOSITE,
    PENDING,
    UNKNOWN,
    Pairs,
    Value,
    What,
    broadcast,
    item_of,
    joined,
    operated,
)
from lanewise.edit.analysis.torch_results import TorchResults
from lanewise.edit.analysis.writes import Attributes, just_written, written_attributes
from lanewise.edit.torch_names import DTYPES

__all__ = ["Values"]

_SELF_AGAIN = frozenset({"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16"})
"""Methods of a module that give itself back."""


class Values:
    """Answers what expressions of one file are; remembers what it has found.

    Attributes:
        elsewhere: names that functions declare to write outside of themselves.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._torch = TorchResults(names, self._of)
        self._found: dict[cst.CSTNode, Value] = {}
        declared = m.findall(names.module, m.Global() | m.Nonlocal())
        self.elsewhere = {name for one in declared for name in mentioned(one)}
        self._attributes: Attributes | None = None

    def of(self, node: cst.CSTNode) -> Value:
        """What an expression is."""
        value = self._of(node)
        return value if value.known else UNKNOWN

    def _of(self, node: cst.CSTNode) -> Value:
        if node not in self._found:
            self._found[node] = PENDING  # a loop assigns from itself: what the other assignments prove decides
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
                    else replace(of, mask=OPPOSITE[of.mask] if inverted else "")
                )
            case cst.BinaryOperation():
                return operated(
                    self._of(node.left), self._of(node.right), isinstance(node.operator, cst.MatrixMultiply)
                )
            case cst.Comparison():
                return self._comparison(node)
            case cst.BooleanOperation():
                return joined([self._of(node.left), self._of(node.right)])
            case cst.IfExp():
                return joined([self._of(node.body), self._of(node.orelse)])
            case cst.Subscript():
                return self._subscript(node)
            case cst.NamedExpr():
                return self._of(node.value)
            case cst.List() | cst.Tuple():
                plain = all(isinstance(one, cst.Element) for one in node.elements)
                return Value("list", item=joined([self._of(e.value) for e in node.elements]) if plain else UNKNOWN)
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
        if node.value not in self.elsewhere and (just := just_written(self._names, node)) is not None:
            return self._of(just)
        writes = self._names.writes(node)
        return joined([self._written(one.node, one.target) for one in writes]) if writes else UNKNOWN

    def _written(self, node: cst.CSTNode, target: cst.CSTNode) -> Value:
        """What a statement writes to a target in it."""
        match node:
            case cst.Assign():
                return joined(
                    [self._part(one.target, target, self._of(node.value), node.value) for one in node.targets]
                )
            case cst.AnnAssign():
                told = self._annotated(node.annotation)
                return told if told.known or node.value is None else self._of(node.value)
            case cst.AugAssign():
                value = self._of(node.value)
                return PENDING if value.what == "number" else operated(PENDING, value, False)
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
            return PENDING
        for at, element in enumerate(whole.elements):
            inside = element.value is target or m.findall(element.value, m.MatchIfTrue(lambda n: n is target))
            if not inside:
                continue
            if isinstance(element, cst.StarredElement):
                return UNKNOWN
            if isinstance(written, cst.Tuple | cst.List) and len(written.elements) == len(whole.elements):
                other = written.elements[at].value
                return self._part(element.value, target, self._of(other), other)
            items = value.own_items if isinstance(value, Pairs) else None
            inner = items[at] if items is not None and at < len(items) else item_of(value)
            return self._part(element.value, target, inner, None)
        return PENDING

    def _walked(self, node: cst.BaseExpression) -> Value:
        """What a loop over an expression goes through, one by one."""
        if isinstance(node, cst.Call):
            full = self._names.full(node)
            if full == "builtins.enumerate" and node.args:
                return Pairs([NUMBER, item_of(self._of(node.args[0].value))])
            if full == "builtins.zip":
                return Pairs([item_of(self._of(arg.value)) for arg in node.args])
        return item_of(self._of(node))

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
        return joined([UNKNOWN if one is None else self._of(one) for one in given])

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
            self._attributes = written_attributes(self._names)
        places = self._attributes.get(name, [])
        if "setattr" in self._attributes or not all(cls is owner for cls, _ in places) or not places:
            return UNKNOWN
        return joined([UNKNOWN if value is None else self._of(value) for _, value in places])

    def is_module_class(self, node: cst.CSTNode | None) -> bool:
        """Whether a class of this file is a plain module of torch: it has no other base."""
        bases = [self._names.full(arg.value) for arg in node.bases] if isinstance(node, cst.ClassDef) else []
        return bases == ["torch.nn.Module"]

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Value:
        full = self._names.full(node)
        if full.startswith("torch."):
            return self._torch.function(node, full)
        if full.startswith("math."):
            return NUMBER
        if full.startswith("builtins."):
            return self._torch.builtin(node, full.removeprefix("builtins."))
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
                return self._torch.method(node, node.func.attr.value, of)
            if of.what == "pending":
                return PENDING
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
        return self._torch.layer(module, node)

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
            joined([Value("none") if one.value is None else self._of(one.value) for one in returns])
            if returns
            else UNKNOWN
        )

    def _comparison(self, node: cst.Comparison) -> Value:
        plain = all(not isinstance(one.operator, cst.In | cst.NotIn | cst.Is | cst.IsNot) for one in node.comparisons)
        sides = [self._of(node.left), *(self._of(one.comparator) for one in node.comparisons)]
        if plain and len(sides) == 2 and any(one.tensor for one in sides):
            operator, right = node.comparisons[0].operator, node.comparisons[0].comparator
            to = right.value if isinstance(right, cst.Integer) else ""
            kept = (type(operator), to) in ((cst.Equal, "1"), (cst.NotEqual, "0"), (cst.GreaterThan, "0"))
            turned = isinstance(operator, cst.Equal) and to == "0"
            mask = sides[0].mask if kept else OPPOSITE[sides[0].mask] if turned else ""
            return replace(broadcast(sides), dtype="bool", host=False, mask=mask)
        return NUMBER if not plain or all(one.what == "number" for one in sides) else UNKNOWN

    def _subscript(self, node: cst.Subscript) -> Value:
        of = self._of(node.value)
        if of.what == "sizes":
            return NUMBER if isinstance(node.slice[0].slice, cst.Index) else of
        if of.what == "list":
            return item_of(of) if isinstance(node.slice[0].slice, cst.Index) else of
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
