"""Optimizers that update parameter by parameter, or in batches, where one fused operator would do."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import (
    Edit,
    argument,
    dotted,
    is_literal,
    parse_expression,
    set_argument,
    text_of,
    without_argument,
)

__all__ = ["OptimizerFlags"]

_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})


class OptimizerFlags(Edit):
    """Sets `fused=True` on the optimizers of torch that know it, and drops `foreach=False`."""

    name = "optimizer-flags"
    needs = ("optim",)
    answers = ("OPT101", "OPT102")

    def __init__(self) -> None:
        super().__init__()
        self._imported = False

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        self._imported = "from torch.optim import" in text_of(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        name = dotted(original_node.func)
        owner, _, kind = name.rpartition(".")
        torchs = owner in {"torch.optim", "optim"} or (not owner and self._imported)
        if kind not in _FUSED or not torchs:
            return updated_node
        fused, foreach = argument(original_node, "fused"), argument(original_node, "foreach")
        spread = next((arg for arg in updated_node.args if arg.star == "**"), None)
        said = spread is not None and '"fused": True' in text_of(spread.value)
        if said or (fused is not None and is_literal(fused.value, "True")):
            return updated_node
        self.note(
            original_node,
            f"{kind} updates parameters one by one or in batches; fused updates all at once",
        )
        if spread is not None:
            # What the mapping holds is not known here: the flags are laid over it.
            over = parse_expression("{**" + text_of(spread.value) + ', "foreach": None, "fused": True}')
            return updated_node.with_changes(
                args=[arg.with_changes(value=over) if arg is spread else arg for arg in updated_node.args]
            )
        changed = without_argument(updated_node, "foreach") if foreach is not None else updated_node
        return set_argument(changed, "fused", "True")
