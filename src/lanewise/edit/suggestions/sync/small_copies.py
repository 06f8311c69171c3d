"""`torch.stack([x.to(device) for x in parts])`: every part is sent to the device by itself."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.imported_names import Names
from lanewise.edit.edit import Edit, method_call

__all__ = ["SmallCopies"]

_READS = frozenset(
    {"builtins.len", "builtins.list", "builtins.tuple", "builtins.enumerate", "torch.stack", "torch.cat"}
)


class SmallCopies(Edit):
    """Stacks first, and sends the result once: the same if all parts are of one type on one device."""

    name = "small-copies"
    needs = ("stack(", "cat(")
    answers = ("SYN108",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not self.names.calls(original_node, "torch.stack", "torch.cat") or not updated_node.args:
            return updated_node
        made, whole = updated_node.args[0].value, original_node.args[0].value
        if not isinstance(made, cst.ListComp | cst.GeneratorExp) or not isinstance(
            whole, cst.ListComp | cst.GeneratorExp
        ):
            return updated_node
        if any(arg.star or (arg.keyword is not None and arg.keyword.value == "out") for arg in updated_node.args):
            return updated_node
        move = method_call(made.elt, "to", "cuda")
        if move is None or not isinstance(move.func, cst.Attribute) or not isinstance(made.for_in.target, cst.Name):
            return updated_node
        moved = move.func.value
        loop = made.for_in.target.value
        if any(_mentions(arg.value, loop) for arg in move.args):
            return updated_node
        plain = isinstance(moved, cst.Name) and moved.value == loop
        plain = plain and not made.for_in.ifs and made.for_in.inner_for_in is None
        item = self.values.of(whole.for_in.iter).item
        if item is not None and item.known and not item.tensor:
            return updated_node
        alike = item is not None and item.tensor and item.host and bool(item.dtype)
        default = not self.program.says(("set_default_device", "set_default_tensor_type", "set_default_dtype"))
        safe = plain and alike and default and _only_read(whole.for_in.iter, self.names)
        if not self.offer(original_node, "many small tensors are sent to the device one by one", safe=safe):
            return updated_node
        parts: cst.BaseExpression = made.with_changes(elt=moved)
        if plain:
            parts = cst.Call(func=cst.Name("list"), args=[cst.Arg(made.for_in.iter)])
        first = updated_node.args[0].with_changes(value=parts)
        joined = updated_node.with_changes(args=[first, *updated_node.args[1:]])
        return cst.Call(func=cst.Attribute(value=joined, attr=move.func.attr), args=move.args)


def _mentions(node: cst.CSTNode, name: str) -> bool:
    found: list[bool] = []

    class Look(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
            found.append(node.value == name)

    node.visit(Look())
    return any(found)


def _only_read(parts: cst.BaseExpression, names: Names) -> bool:
    """Whether a list is given one value, written out in one expression, and never changed: all in it are made alike."""
    writes = names.writes(parts) if isinstance(parts, cst.Name) else None
    if writes is None or len(writes) != 1 or not isinstance(writes[0].node, cst.Assign):
        return False
    if not isinstance(writes[0].node.value, cst.ListComp):
        return False
    for read in names.reads(parts):
        around = names.parent(read)
        call = names.parent(around) if isinstance(around, cst.Arg) else None
        walked = isinstance(around, cst.For | cst.CompFor) and around.iter is read
        if not walked and not (isinstance(call, cst.Call) and names.full(call) in _READS):
            return False
    return True
