"""`relu(y.float()).to(x.dtype)`: a cast up and back around an operation that rounds nothing."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, dotted, method_call

__all__ = ["CastAround"]

_EXACT = frozenset(
    {
        "relu",
        "abs",
        "neg",
        "clamp",
        "clamp_min",
        "clamp_max",
        "maximum",
        "minimum",
        "where",
        "transpose",
        "permute",
        "reshape",
    }
)


class CastAround(Edit):
    """Drops both casts: such an operation gives the same in either type."""

    name = "cast-around"
    needs = (".float()",)
    safe = False  # that the value was in the type it is cast back to is what the code suggests, not what it says
    answers = ("MEM106",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        back = method_call(updated_node, "to", "type_as")
        if back is None or not isinstance(back.func, cst.Attribute) or len(back.args) != 1:
            return updated_node
        target = text_of(back.args[0].value)
        if back.func.attr.value == "to" and not target.endswith(".dtype"):
            return updated_node
        inner = back.func.value
        if not isinstance(inner, cst.Call) or dotted(inner.func).rsplit(".", 1)[-1] not in _EXACT or not inner.args:
            return updated_node
        up = method_call(inner.args[0].value, "float")
        if up is None or not isinstance(up.func, cst.Attribute):
            return updated_node
        what = "a value is cast to single precision and back around an operation that rounds nothing"
        if not self._is_torchs(original_node) or not self.offer(original_node, what):
            return updated_node
        return inner.with_changes(args=[inner.args[0].with_changes(value=up.func.value), *inner.args[1:]])

    def _is_torchs(self, cast: cst.Call) -> bool:
        """Whether the operation is one of torch: a function of it, or a method of what is not known to be anything else."""
        inner = cst.ensure_type(cst.ensure_type(cast.func, cst.Attribute).value, cst.Call)
        if full := self.names.full(inner):
            return full.startswith("torch.")
        return isinstance(inner.func, cst.Attribute) and self.values.of(inner.func.value).what in ("", "tensor")
