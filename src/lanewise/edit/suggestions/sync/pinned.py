"""A tensor made on the host and copied to the device in every step, from memory that the device cannot read directly."""

from __future__ import annotations

import re

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, argument, dotted, is_literal, method_call, set_argument

__all__ = ["Pinned"]

_MAKERS = (
    "randn",
    "rand",
    "zeros",
    "ones",
    "empty",
    "full",
    "tensor",
    "arange",
    "from_numpy",
    "randint",
    "stack",
    "cat",
)


class Pinned(Edit):
    """Pins the tensor where it is made, and does not wait for its copies."""

    name = "pinned-copy"
    needs = (".to(", ".cuda(")
    safe = False  # whoever writes to the tensor while it is being copied has to wait for the copy now
    answers = ("SYN103", "SYN104")

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        made, sent = _Made(self), _Sent(self)
        node.visit(made)
        node.visit(sent)
        what = "{} lies in pageable memory: each copy to the device goes through a buffer, and is waited for"
        self._sent = {
            name
            for name in sorted((set(made.names) & sent.names) - made.pinned)
            if all(self.offer(one, what.format(name)) for one in made.names[name])
        }

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        casts = bool(original_node.args) and self.values.of(original_node.args[0].value).what == "dtype"
        if casts or not _is_copy(original_node, self._sent) or self.values.of(_owner(original_node)).what == "module":
            return updated_node
        given = argument(original_node, "non_blocking")
        if given is not None and is_literal(given.value, "True"):
            return updated_node
        return set_argument(updated_node, "non_blocking", "True")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        name = _made_name(original_node, self)
        cuda = self.written("torch.cuda.is_available", original_node) if name in self._sent else ""
        if not cuda:
            return updated_node
        pin = cst.parse_statement(f"if {cuda}():\n    {name} = {name}.pin_memory()\n")
        return cst.FlattenSentinel([updated_node, pin])


class _Made(cst.CSTVisitor):
    """Names of tensors made on the host, and those that are pinned wherever there is a device."""

    def __init__(self, edit: Edit) -> None:
        self.names: dict[str, list[cst.CSTNode]] = {}
        self.pinned: set[str] = set()
        self._edit = edit

    def visit_If(self, node: cst.If) -> None:  # noqa: N802
        if self._edit.names.calls(node.test, "torch.cuda.is_available"):
            self.pinned |= set(re.findall(r"(\w+) = \1\.pin_memory\(\)", text_of(node.body)))

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:  # noqa: N802
        if name := _made_name(node, self._edit):
            self.names.setdefault(name, []).append(node)


class _Sent(cst.CSTVisitor):
    """Names of tensors that are copied to a device in code that runs again and again."""

    def __init__(self, edit: Edit) -> None:
        self.names: set[str] = set()
        self._edit = edit

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        if method_call(node, "to", "cuda") is not None and isinstance(node.func, cst.Attribute):
            to = self._edit.values.of(node.args[0].value).what if node.args else ""
            casts = to == "dtype" or (bool(node.args) and dotted(node.args[0].value).endswith(".dtype"))
            if isinstance(node.func.value, cst.Name) and self._edit.repeated(node) and not casts:
                self.names.add(node.func.value.value)


def _made_name(node: cst.SimpleStatementLine, edit: Edit) -> str:
    line = node.body[0] if len(node.body) == 1 else None
    if not (isinstance(line, cst.Assign) and len(line.targets) == 1 and isinstance(line.targets[0].target, cst.Name)):
        return ""
    value = line.value
    if not edit.names.calls(value, *(f"torch.{maker}" for maker in _MAKERS)) or not isinstance(value, cst.Call):
        return ""
    return "" if argument(value, "device") is not None else line.targets[0].target.value


def _is_copy(node: cst.Call, names: set[str]) -> bool:
    return (
        method_call(node, "to", "cuda") is not None
        and isinstance(node.func, cst.Attribute)
        and dotted(node.func.value) in names
    )


def _owner(call: cst.Call) -> cst.BaseExpression:
    return call.func.value if isinstance(call.func, cst.Attribute) else call.func
