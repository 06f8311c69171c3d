"""What the names of a file stand for: imports are resolved, whatever they are called here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    BuiltinAssignment,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

__all__ = ["Names", "Write", "mentioned", "text_of", "written_to"]

_SAME = (
    (re.compile(r"^torch\.optim\.[a-z_]+\.([A-Z]\w*)$"), r"torch.optim.\1"),
    (re.compile(r"^torch\.nn\.modules\.(?:[a-z_]+\.)?([A-Z]\w*)$"), r"torch.nn.\1"),
    (re.compile(r"^torch\.utils\.data\.dataloader\.(\w+)$"), r"torch.utils.data.\1"),
    (re.compile(r"^torch\.autograd\.grad_mode\.(\w+)$"), r"torch.\1"),
)
"""Where torch's classes are written, and the name they are known by."""


class Write(NamedTuple):
    """A place that gives a name its value: the statement or expression, and the node of the name in it."""

    node: cst.CSTNode
    target: cst.CSTNode


class Names:
    """Scopes, parents and positions of one parsed file."""

    def __init__(self, wrapper: MetadataWrapper) -> None:
        self.module = wrapper.module
        found: Any = wrapper.resolve_many([ScopeProvider, ParentNodeProvider, PositionProvider])
        self._scopes: Any = found[ScopeProvider]
        self._parents: Any = found[ParentNodeProvider]
        self._positions: Any = found[PositionProvider]

    def full(self, node: cst.CSTNode) -> str:
        """The full name of what an expression names, such as `torch.optim.SGD` for `t.optim.SGD`; for builtins
        `builtins.print`; "" for anything that is not certainly one imported or builtin name."""
        if isinstance(node, cst.Call):
            node = node.func
        head = node
        while isinstance(head, cst.Attribute):
            head = head.value
        if not isinstance(head, cst.Name):
            return ""  # a method of what a call gives back
        scope = self.scope(node)
        found: Any = scope.get_qualified_names_for(node) if scope is not None else ()
        if len(found) != 1:
            return ""
        (name,) = found
        if name.source is QualifiedNameSource.LOCAL:
            return ""
        full = str(name.name)
        for pattern, known in _SAME:
            full = pattern.sub(known, full)
        return full

    def calls(self, node: cst.CSTNode, *full: str) -> bool:
        """Whether a node is a call of one of these, by full name."""
        return isinstance(node, cst.Call) and self.full(node) in full

    def spelled(self, full: str, at: cst.CSTNode) -> str:
        """How to write a full name at a node of this file; with `torch`, which then has to be imported, if nothing in
        reach is bound to it. "" where the file uses that name for something else."""
        scope = self.scope(at)
        parts = full.split(".")
        if scope is None:
            return ""
        for length in range(len(parts), 0, -1):
            head = ".".join(parts[:length])
            for name in self._bound_to(head, scope):
                return ".".join([name, *parts[length:]])
        return full if not scope[parts[0]] else ""

    def bound(self, name: str, at: cst.CSTNode) -> bool:
        """Whether a name is bound in this file, in reach of a node."""
        scope = self.scope(at)
        return scope is not None and any(not isinstance(one, BuiltinAssignment) for one in scope[name])

    def _bound_to(self, full: str, scope: Scope) -> Iterable[str]:
        """Names that stand for `full`, and nothing else, at a scope; the shortest first."""
        names: set[str] = set()
        around: Any = scope
        while True:
            names |= {one.name.partition(".")[0] for one in around.assignments}
            if around is around.parent:
                break
            around = around.parent
        for name in sorted(names, key=lambda one: (len(one), one)):
            found = scope[name]
            if len(found) != 1 or not isinstance(one := next(iter(found)), ImportAssignment):
                continue
            if {q.name for q in one.get_qualified_names_for(name)} == {full} and not self._type_checking(one.node):
                yield name

    def _type_checking(self, node: cst.CSTNode) -> bool:
        return any(isinstance(one, cst.If) and "TYPE_CHECKING" in text_of(one.test) for one in self.parents(node))

    # -- the tree ------------------------------------------------------------------------------------------------

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """The scope that a node is in."""
        found: Any = self._scopes.get(node)
        while found is None and (node := self._parents.get(node)) is not None:
            found = self._scopes.get(node)
        return found

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node around a node."""
        return self._parents.get(node)

    def parents(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The nodes around a node, innermost first."""
        around: list[cst.CSTNode] = []
        while (node := self._parents.get(node)) is not None:
            around.append(node)
        return around

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of a node, from 1."""
        position: Any = self._positions[node]
        return int(position.start.line), int(position.end.line)

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | cst.Lambda | None:
        """The function that a node is in."""
        return next((one for one in self.parents(node) if isinstance(one, cst.FunctionDef | cst.Lambda)), None)

    def owner(self, function: cst.CSTNode) -> cst.ClassDef | None:
        """The class that a function is a method of."""
        around = self.parents(function)
        is_method = len(around) > 1 and isinstance(around[0], cst.IndentedBlock) and isinstance(around[1], cst.ClassDef)
        return around[1] if is_method and isinstance(around[1], cst.ClassDef) else None

    def own_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class whose instance `self` is, for the name `self` (whatever it is called) in one of its methods."""
        if not isinstance(node, cst.Name):
            return None
        for around in self.parents(node):
            if isinstance(around, cst.FunctionDef) and (owner := self.owner(around)) is not None:
                first = next(iter((*around.params.posonly_params, *around.params.params)), None)
                static = any("static" in text_of(one) or "classmethod" in text_of(one) for one in around.decorators)
                return owner if first is not None and first.name.value == node.value and not static else None
        return None

    # -- what is written and read --------------------------------------------------------------------------------

    def writes(self, name: cst.Name) -> list[Write] | None:
        """All places that give a name its value; None where it is not bound in this file, or imported."""
        scope = self.scope(name)
        found: Any = scope[name.value] if scope is not None else ()
        places: list[Write] = []
        for one in found:
            if not isinstance(one, Assignment) or isinstance(one, ImportAssignment):
                return None
            places.append(Write(self._statement(one.node), one.node))
        return places or None

    def _statement(self, target: cst.CSTNode) -> cst.CSTNode:
        """What gives the target its value: an assignment, a loop, a parameter, a definition."""
        kinds = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.WithItem, cst.Param)
        if isinstance(target, cst.FunctionDef | cst.ClassDef | cst.Param):
            return target
        around = self.parents(target)
        return next((one for one in around if isinstance(one, (*kinds, cst.BaseStatement))), target)

    def reads(self, name: cst.CSTNode, at: cst.CSTNode | None = None) -> list[cst.CSTNode]:
        """All nodes that read a name, wherever it is in reach; `at`: a node in the scope where it is bound."""
        text = name.value if isinstance(name, cst.Name) else text_of(name)
        scope = self.scope(at or name)
        found: Any = scope[text] if scope is not None else ()
        return [access.node for one in found if isinstance(one, BaseAssignment) for access in one.references]

    def calls_of(self, definition: cst.FunctionDef | cst.ClassDef) -> list[cst.Call] | None:
        """All calls of a function or a class of this file; None if it is used in any other way."""
        calls: list[cst.Call] = []
        for read in self.reads(definition.name, at=definition):
            around = self.parent(read)
            if not isinstance(around, cst.Call) or around.func is not read:
                return None
            calls.append(around)
        return calls

    def definition(self, node: cst.CSTNode) -> cst.FunctionDef | cst.ClassDef | None:
        """The function or class of this file that a name stands for, if it is one and nothing else."""
        writes = self.writes(node) if isinstance(node, cst.Name) else None
        one = writes[0].node if writes is not None and len(writes) == 1 else None
        return one if isinstance(one, cst.FunctionDef | cst.ClassDef) else None


def text_of(node: cst.CSTNode) -> str:
    """The source text of a node."""
    return cst.Module([]).code_for_node(node)


def mentioned(node: cst.CSTNode) -> set[str]:
    """All names in a piece of code."""
    return {one.value for one in m.findall(node, m.Name()) if isinstance(one, cst.Name)}


def written_to(node: cst.CSTNode) -> set[str]:
    """Names that a statement gives a value, or may change in place."""
    found: set[str] = set()
    targets = m.AssignTarget() | m.AugAssign() | m.AnnAssign() | m.NamedExpr() | m.For() | m.Del() | m.WithItem()
    for one in m.findall(node, targets):
        part = getattr(one, "target", None) or getattr(one, "asname", None)
        found |= mentioned(part) if part is not None else set() if isinstance(one, cst.WithItem) else mentioned(one)
    for call in m.findall(node, m.Call(func=m.Attribute())):
        func = cst.ensure_type(cst.ensure_type(call, cst.Call).func, cst.Attribute)
        if func.attr.value.endswith("_"):
            found |= mentioned(func.value)
    return found
