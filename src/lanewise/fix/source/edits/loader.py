"""`DataLoader` that loads in the training process, into memory that the device cannot read directly."""

from __future__ import annotations

import libcst as cst

from lanewise.fix.source.edit import Edit, argument, called, is_literal, set_argument, text_of

__all__ = ["Loader"]

_WORKERS = "min(8, torch.get_num_threads())"


class Loader(Edit):
    """Adds workers that stay alive, and pinned memory where there is a CUDA device."""

    name = "loader"
    needs = ("DataLoader",)
    safe = False
    answers = ("OPT103", "SYN103")

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if not called(original_node, "DataLoader"):
            return updated_node
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
