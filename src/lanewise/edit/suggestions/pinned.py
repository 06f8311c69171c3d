"""A tensor made on the host and copied to the device in every step, from memory that the device cannot read directly."""

from __future__ import annotations

import re

import libcst as cst

from lanewise.edit.edit import Edit, argument, called, dotted, is_literal, method_call, set_argument, text_of

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

    def __init__(self) -> None:
        super().__init__()
        self._sent: set[str] = set()

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        made, sent = _Made(), _Sent(self)
        node.visit(made)
        node.visit(sent)
        self._sent = (made.names & sent.names) - made.pinned

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not _is_copy(original_node, self._sent):
            return updated_node
        given = argument(original_node, "non_blocking")
        if given is not None and is_literal(given.value, "True"):
            return updated_node
        return set_argument(updated_node, "non_blocking", "True")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        name = _made_name(original_node)
        if name not in self._sent:
            return updated_node
        self.note(
            original_node,
            f"{name} lies in pageable memory: each copy to the device goes through a buffer, and is waited for",
        )
        pin = cst.parse_statement(f"if torch.cuda.is_available():\n    {name} = {name}.pin_memory()\n")
        return cst.FlattenSentinel([updated_node, pin])


class _Made(cst.CSTVisitor):
    """Names of tensors made on the host, and those that are pinned wherever there is a device."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.pinned: set[str] = set()

    def visit_If(self, node: cst.If) -> None:  # noqa: N802
        if text_of(node.test) == "torch.cuda.is_available()":
            self.pinned |= set(re.findall(r"(\w+) = \1\.pin_memory\(\)", text_of(node.body)))

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:  # noqa: N802
        if name := _made_name(node):
            self.names.add(name)


class _Sent(cst.CSTVisitor):
    """Names of tensors that are copied to a device in code that runs again and again."""

    def __init__(self, edit: Edit) -> None:
        self.names: set[str] = set()
        self._edit = edit

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        if method_call(node, "to", "cuda") is not None and isinstance(node.func, cst.Attribute):
            if isinstance(node.func.value, cst.Name) and self._edit.repeated(node):
                self.names.add(node.func.value.value)


def _made_name(node: cst.SimpleStatementLine) -> str:
    line = node.body[0] if len(node.body) == 1 else None
    if not (isinstance(line, cst.Assign) and len(line.targets) == 1 and isinstance(line.targets[0].target, cst.Name)):
        return ""
    value = line.value
    if not called(value, *(f"torch.{maker}" for maker in _MAKERS)) or not isinstance(value, cst.Call):
        return ""
    return "" if argument(value, "device") is not None else line.targets[0].target.value


def _is_copy(node: cst.Call, names: set[str]) -> bool:
    return (
        method_call(node, "to", "cuda") is not None
        and isinstance(node.func, cst.Attribute)
        and dotted(node.func.value) in names
    )
