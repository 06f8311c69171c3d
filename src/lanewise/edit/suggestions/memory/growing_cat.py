"""A tensor that grows by `cat` in every step: all of it is copied each time, into memory of a new size."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, after_imports, argument, is_literal

__all__ = ["GrowingCat"]

_NAME = "append_along"
_FUNCTION = '''

def append_along(held, new, dim):
    """`torch.cat([held, new], dim)` with room to spare behind what is held: most calls copy only what is new."""
    room = getattr(held, "room", None)
    records = torch.is_grad_enabled() and (held.requires_grad or new.requires_grad)
    alike = held.dtype == new.dtype and held.device == new.device and held.layout == new.layout == torch.strided
    dim = dim % max(new.ndim, 1)
    if records or not alike or held.ndim != new.ndim or held.shape[:dim] != new.shape[:dim]:
        return torch.cat([held, new], dim)
    if held.shape[dim + 1 :] != new.shape[dim + 1 :] or type(held) is not torch.Tensor:
        return torch.cat([held, new], dim)
    length, more = held.size(dim), new.size(dim)
    if room is not None and room.is_inference() and not torch.is_inference_mode_enabled():
        room = None
    if room is None or room.filled_dim != dim or room.filled != length or length + more > room.size(dim):
        shape = list(held.shape)
        shape[dim] = 2 * length + more
        room = held.new_empty(shape)
        room.narrow(dim, 0, length).copy_(held)
    room.narrow(dim, length, more).copy_(new)
    room.filled, room.filled_dim = length + more, dim
    grown = room.narrow(dim, 0, length + more)
    grown.room = room
    return grown
'''

_SETTING = "enable_cudnn_sdp"
_PLANS = f"""

if torch.cuda.is_available():
    torch.backends.cuda.{_SETTING}(False)  # it would make a plan for every new length
"""


class GrowingCat(Edit):
    """Keeps room behind the tensor and writes what is new into it; the room doubles when it is full.

    Where the program attends to what grows, cuDNN's attention is switched off: it makes a plan for every new length.
    """

    name = "growing-cat"
    needs = ("cat(", "concat(")
    safe = False  # takes up to twice the memory, and what is written into the older tensor shows in the newer one
    answers = ("MEM107", "LAU104")

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        if len(original_node.targets) != 1 or not (self.repeated(original_node) or self._kept(original_node)):
            return updated_node
        target, value = original_node.targets[0].target, original_node.value
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            if len(target.elements) != len(value.elements) or not isinstance(updated_node.value, cst.Tuple):
                return updated_node
            pairs = zip(target.elements, value.elements, updated_node.value.elements, strict=True)
            elements = [new.with_changes(value=self._grown(to.value, old.value, new.value)) for to, old, new in pairs]
            return updated_node.with_changes(value=updated_node.value.with_changes(elements=elements))
        return updated_node.with_changes(value=self._grown(target, value, updated_node.value))

    def _kept(self, node: cst.Assign) -> bool:
        """Whether a method other than the one that makes the object writes to what the object keeps: a cache in a class."""
        function = self.names.function(node)
        method = isinstance(function, cst.FunctionDef) and self.names.owner(function) is not None
        return method and isinstance(function, cst.FunctionDef) and function.name.value != "__init__"

    def _grown(
        self, target: cst.BaseExpression, value: cst.BaseExpression, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        """The call that appends, if `value` is a `cat` of what it is assigned to, or kept in, and something else."""
        if isinstance(value, cst.IfExp) and isinstance(updated, cst.IfExp):
            body, other = (
                self._grown(target, *both) for both in ((value.body, updated.body), (value.orelse, updated.orelse))
            )
            return updated.with_changes(body=body, orelse=other)
        if (
            not self.names.calls(value, "torch.cat", "torch.concat")
            or not isinstance(value, cst.Call)
            or not value.args
        ):
            return updated
        parts = value.args[0].value
        dim = argument(value, "dim") or (value.args[1] if len(value.args) == 2 else None)
        if not isinstance(parts, cst.List | cst.Tuple) or len(parts.elements) != 2 or dim is None or dim.star:
            return updated
        if dim.keyword is not None and dim.keyword.value != "dim":
            return updated
        held, new = (element.value for element in parts.elements)
        grows = text_of(held) == text_of(target) or self._is_kept_in(held, target)
        if not grows or text_of(new) == text_of(held) or is_literal(new, "None") or self._taken():
            return updated
        what = f"{text_of(held)} is copied as a whole in every step, into memory of a new size"
        if not self.offer(value, what):
            return updated
        self.written("torch.cat", self.names.module.body[0])
        return cst.parse_expression(f"{_NAME}({text_of(held)}, {text_of(new)}, {text_of(dim.value)})")

    def _is_kept_in(self, held: cst.BaseExpression, target: cst.BaseExpression) -> bool:
        """Whether a name that gets the longer tensor is put where the shorter one was: `k = cat([self.k, k])`,
        `self.k = k`."""
        function = self.names.function(held)
        if not isinstance(target, cst.Name) or not isinstance(held, cst.Attribute | cst.Subscript) or function is None:
            return False
        puts = m.findall(function, m.Assign(value=m.Name(target.value)))
        return any(isinstance(one, cst.Assign) and text_of(one.targets[0].target) == text_of(held) for one in puts)

    def _taken(self) -> bool:
        """Whether the file uses our function's name, or torch's, for something else."""
        own = f"def {_NAME}(" in self.names.module.code
        torch = self.names.spelled("torch.cat", self.names.module.body[0]) != "torch.cat"
        return torch or (not own and self.program.says((_NAME,)))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:  # noqa: N802
        if not self.found or f"def {_NAME}(" in original_node.code:
            return updated_node
        attends = "scaled_dot_product_attention" in original_node.code and _SETTING not in original_node.code
        return after_imports(updated_node, f"{_FUNCTION}{_PLANS if attends else ''}")
