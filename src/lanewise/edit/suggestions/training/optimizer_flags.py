"""Optimizers that update parameter by parameter, or in batches, where one fused operator would do."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.analysis.optimizer_calls import arguments_of, dense_parameters
from lanewise.edit.edit import Edit, argument, is_literal, parse_expression, set_argument, without_argument

__all__ = ["OptimizerFlags"]

_FUSED = frozenset(f"torch.optim.{name}" for name in ("Adam", "AdamW", "SGD", "Adagrad"))
_FLAGS = ("fused", "foreach", "param_groups")
_SHOW = ("builtins.print", "builtins.repr", "builtins.str", "builtins.format")


class OptimizerFlags(Edit):
    """Sets `fused=True` on the optimizers of torch that know it, and drops `foreach=False`.

    Fused updates refuse sparse gradients, complex parameters and `differentiable`, round half types elsewhere, and on the
    host take gradients for being laid out as their parameters. Adagrad has none on a card.
    """

    name = "optimizer-flags"
    needs = ("optim",)
    answers = ("OPT101", "OPT102")

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        full = self.names.full(original_node)
        if full not in _FUSED:
            return updated_node
        given = arguments_of(original_node, self.names, ("params",))
        fused, foreach = argument(original_node, "fused"), argument(original_node, "foreach")
        off = [one for one in (given or {}).get("differentiable", []) if not is_literal(one, "False", "None")]
        chosen = fused is not None and not is_literal(fused.value, "False", "None")
        if off or chosen or (fused is not None and is_literal(fused.value, "True")):
            return updated_node
        spread = next((arg for arg in updated_node.args if arg.star == "**"), None)
        if spread is not None and '"fused": True' in text_of(spread.value):
            return updated_node
        safe = (
            given is not None
            and fused is None
            and not full.endswith("Adagrad")
            and dense_parameters(self.program, given.get("params", []))
            and not self._shown(original_node)
        )
        kind = full.rpartition(".")[2]
        what = f"{kind} updates parameters one by one or in batches; fused updates all at once"
        if not self.offer(original_node, what, safe=safe):
            return updated_node
        if spread is not None:
            # What the mapping holds is not known here: the flags are laid over it.
            over = parse_expression("{**" + text_of(spread.value) + ', "foreach": None, "fused": True}')
            return updated_node.with_changes(
                args=[arg.with_changes(value=over) if arg is spread else arg for arg in updated_node.args]
            )
        changed = without_argument(updated_node, "foreach") if foreach is not None else updated_node
        return set_argument(changed, "fused", "True")

    def _shown(self, call: cst.Call) -> bool:
        """Whether the program reads or prints the flags of its optimizers."""
        if self.program.says(("defaults",)) or any(
            one.evaluated_value in _FLAGS
            for one in m.findall(self.names.module, m.SimpleString())
            if isinstance(one, cst.SimpleString) and not isinstance(self.names.parent(one), cst.DictElement)
        ):
            return True
        groups = m.findall(self.names.module, m.Attribute(attr=m.Name("param_groups")))
        if not all(map(self._reads_others, groups)):
            return True
        line = self.names.parent(call)
        names = [one.target for one in line.targets] if isinstance(line, cst.Assign) else []
        for name in names:
            for read in self.names.reads(name) if isinstance(name, cst.Name) else ():
                around = self.names.parent(read)
                whole = around if not isinstance(around, cst.Arg) else self.names.parent(around)
                if isinstance(whole, cst.FormattedStringExpression) or (whole and self.names.full(whole) in _SHOW):
                    return True
        return False

    def _reads_others(self, groups: cst.CSTNode) -> bool:
        """Whether of `param_groups` nothing is read but values by name: `group["lr"]`, in a loop or of one group."""
        around = self.names.parent(groups)
        if isinstance(around, cst.For | cst.CompFor) and isinstance(around.target, cst.Name):
            whole = around if isinstance(around, cst.For) else self.names.parent(around)
            reads = m.findall(whole, m.Name(around.target.value)) if whole is not None else []
            return all(one is around.target or self._by_name(one) for one in reads)
        if isinstance(around, cst.Arg):
            call = self.names.parent(around)
            return call is not None and self.names.full(call) == "builtins.len"
        return isinstance(around, cst.Subscript) and around.value is groups and self._by_name(around)

    def _by_name(self, group: cst.CSTNode) -> bool:
        around = self.names.parent(group)
        return (
            isinstance(around, cst.Subscript)
            and around.value is group
            and m.matches(around.slice[0].slice, m.Index(m.SimpleString()))
        )
