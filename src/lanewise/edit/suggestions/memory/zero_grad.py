"""`zero_grad(set_to_none=False)`: every gradient is filled with zeros, and then added to."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.optimizer_calls import arguments_of, defines, plain_parameters
from lanewise.edit.edit import Edit, argument, is_literal, method_call, without_argument

__all__ = ["ZeroGrad"]

_HOLDS = (
    "grad",
    "GradScaler",
    "DistributedDataParallel",
    "CUDAGraph",
    "param_groups",
    "add_param_group",
    "load_state_dict",
)


class ZeroGrad(Edit):
    """Drops the argument: the default frees the gradients, and the backward pass writes them instead of adding.

    A parameter that gets no gradient in a step is left alone then. With a gradient of zeros it still moves by momentum, by
    weight decay or by Adam's averages: it is the same for plain SGD alone, and where nobody reads or holds gradients.
    """

    name = "zero-grad"
    needs = ("zero_grad",)
    answers = ("MEM105",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if method_call(original_node, "zero_grad") is None or not isinstance(original_node.func, cst.Attribute):
            return updated_node
        given = argument(original_node, "set_to_none")
        owner = self.values.of(original_node.func.value)
        if given is None and owner.what in ("optimizer", "module") and len(original_node.args) == 1:
            given = original_node.args[0] if original_node.args[0].keyword is None else None
        if given is None or given.star or is_literal(given.value, "True") or defines(owner.own, "zero_grad"):
            return updated_node
        plain = owner.kind == "torch.optim.SGD" and owner.made is not None and self._is_plain(owner.made)
        safe = plain and self.program.closed and not self.program.says(_HOLDS, "hook", "graph")
        what = "zero_grad fills gradients with zeros that the backward pass then adds to"
        if not self.offer(original_node, what, safe=safe):
            return updated_node
        if given.keyword is None:
            return updated_node.with_changes(args=[])
        return without_argument(updated_node, "set_to_none")

    def _is_plain(self, made: cst.Call) -> bool:
        given = arguments_of(made, self.names, ("params", "lr", "momentum", "dampening", "weight_decay"))
        if given is None or not plain_parameters(given.pop("params", [])):
            return False
        off = {"momentum": "0", "dampening": "0", "weight_decay": "0"}
        return all(
            name in ("lr", "fused", "foreach", "maximize") or all(is_literal(one, off.get(name, "")) for one in values)
            for name, values in given.items()
        )
