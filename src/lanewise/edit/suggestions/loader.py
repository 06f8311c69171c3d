"""`DataLoader` that loads in the training process, into memory that the device cannot read directly."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.edit import Edit, argument, called, is_literal, method_call, set_argument, text_of

__all__ = ["Loader"]

_WORKERS = "min(8, torch.get_num_threads())"


class Loader(Edit):
    """Adds workers that stay alive, and pinned memory where there is a CUDA device; copies from that are not waited for."""

    name = "loader"
    needs = ("DataLoader",)
    safe = False
    answers = ("OPT103", "SYN103")

    def __init__(self) -> None:
        super().__init__()
        self._loaders: set[str] = set()
        self._batches: list[set[str]] = []

    def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
        if called(node.value, "DataLoader") and isinstance(node.value, cst.Call):
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
        if not called(original_node, "DataLoader") or any(arg.star for arg in original_node.args):
            return updated_node  # what a mapping holds is not known here, and nothing may be given twice
        changed, told = updated_node, list[str]()
        workers = argument(original_node, "num_workers")
        if workers is None or is_literal(workers.value, "0"):
            changed = set_argument(changed, "num_workers", _WORKERS)
        elif not isinstance(workers.value, cst.Integer | cst.BooleanOperation | cst.Call):
            changed = set_argument(changed, "num_workers", f"{text_of(workers.value)} or {_WORKERS}")
        if changed is not updated_node:
            told.append("batches are loaded in the training process")
            if argument(changed, "persistent_workers") is None:
                changed = set_argument(changed, "persistent_workers", "True")
        if argument(original_node, "pin_memory") is None:
            changed = set_argument(changed, "pin_memory", "torch.cuda.is_available()")
            told.append("from memory that the device cannot read directly")
        if told:
            self.note(original_node, ", ".join(told))
        return changed

    def _is_copy(self, node: cst.Call) -> bool:
        """Whether it copies a batch of a loader to the device, and waits."""
        if method_call(node, "to", "cuda") is None or argument(node, "non_blocking") is not None:
            return False
        owner = node.func.value if isinstance(node.func, cst.Attribute) else None
        return isinstance(owner, cst.Name) and any(owner.value in names for names in self._batches)
