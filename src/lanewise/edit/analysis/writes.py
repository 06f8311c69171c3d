"""What the statements of a file write to names and attributes."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import Names

__all__ = ["Attributes", "just_written", "written_attributes"]

Attributes = dict[str, list[tuple[cst.ClassDef | None, cst.CSTNode | None]]]


def just_written(names: Names, node: cst.Name) -> cst.BaseExpression | None:
    """What a plain statement before, in the same block or around it, gives the name, if nothing in between can."""
    inner: cst.CSTNode | None = None
    for around in names.parents(node):
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


def written_attributes(names: Names) -> Attributes:
    """Per attribute the classes that write it, with what; None for anything that is not plain."""
    found: Attributes = {}

    def add(target: cst.CSTNode, value: cst.CSTNode | None) -> None:
        if isinstance(target, cst.Attribute):
            found.setdefault(target.attr.value, []).append((names.own_class(target.value), value))
        elif isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                add(element.value, None)

    for node in m.findall(names.module, m.Assign() | m.AnnAssign() | m.AugAssign() | m.For() | m.WithItem()):
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
    for call in m.findall(names.module, m.Call()):
        assert isinstance(call, cst.Call)
        if names.full(call) == "builtins.setattr":
            found["setattr"] = []
        func = call.func
        registers = isinstance(func, cst.Attribute) and func.attr.value in ("register_buffer", "register_parameter")
        if isinstance(func, cst.Attribute) and registers and len(call.args) > 1:
            if isinstance(call.args[0].value, cst.SimpleString):
                key = str(call.args[0].value.evaluated_value)
                found.setdefault(key, []).append((names.own_class(func.value), call.args[1].value))
    return found
