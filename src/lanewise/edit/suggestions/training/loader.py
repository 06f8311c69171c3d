"""`DataLoader` that loads in the training process, into memory that the device cannot read directly."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, argument, is_literal, method_call, set_argument

__all__ = ["Loader"]

_LOADER = "torch.utils.data.DataLoader"
_WORKERS_AT = 5
"""Place of `num_workers` among the arguments: who gives as many by place may give it, too."""


class Loader(Edit):
    """Adds workers that stay alive, and pinned memory where there is a CUDA device; copies from that are not waited for."""

    name = "loader"
    needs = ("DataLoader",)
    safe = False
    answers = ("OPT103", "SYN103")

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        self._loaders: set[str] = set()
        self._batches: list[set[str]] = []

    def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
        if self.names.calls(node.value, _LOADER) and isinstance(node.value, cst.Call):
            pinned = argument(node.value, "pin_memory")
            if pinned is None or is_literal(pinned.value, "True"):
                self._loaders |= {text_of(target.target) for target in node.targets}

    def visit_For(self, node: cst.For) -> None:  # noqa: N802
        names = {name.value for name in m.findall(node.iter, m.Name()) if isinstance(name, cst.Name)}
        batches = m.findall(node.target, m.Name()) if names & self._loaders else ()
        self._batches.append({one.value for one in batches if isinstance(one, cst.Name)})

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:  # noqa: N802
        self._batches.pop()
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if self._is_copy(original_node):
            return set_argument(updated_node, "non_blocking", "True")
        by_place = sum(arg.keyword is None for arg in original_node.args)
        if not self.names.calls(original_node, _LOADER) or any(arg.star for arg in original_node.args):
            return updated_node  # what a mapping holds is not known here, and nothing may be given twice
        threads, cuda = (
            self.written(f"torch.{name}", original_node) for name in ("get_num_threads", "cuda.is_available")
        )
        if by_place > _WORKERS_AT or not threads or not cuda:
            return updated_node
        default = f"min(8, {threads}())"
        changed, told = updated_node, list[str]()
        workers = argument(original_node, "num_workers")
        if workers is None or is_literal(workers.value, "0"):
            changed = set_argument(changed, "num_workers", default)
        elif not isinstance(workers.value, cst.Integer | cst.BooleanOperation | cst.Call):
            changed = set_argument(changed, "num_workers", f"{text_of(workers.value)} or {default}")
        if changed is not updated_node:
            told.append("batches are loaded in the training process")
            if argument(changed, "persistent_workers") is None:
                changed = set_argument(changed, "persistent_workers", "True")
        if argument(original_node, "pin_memory") is None:
            changed = set_argument(changed, "pin_memory", f"{cuda}()")
            told.append("from memory that the device cannot read directly")
        return changed if told and self.offer(original_node, ", ".join(told)) else updated_node

    def _is_copy(self, node: cst.Call) -> bool:
        """Whether it copies a batch of a loader to the device, and waits."""
        if method_call(node, "to", "cuda") is None or argument(node, "non_blocking") is not None:
            return False
        owner = node.func.value if isinstance(node.func, cst.Attribute) else None
        return isinstance(owner, cst.Name) and any(owner.value in names for names in self._batches)
