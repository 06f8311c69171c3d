"""Statements that wait for the device and throw the answer away."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, called, emptied, method_call

__all__ = ["UnusedWait"]

# Not `cpu`: as a statement it moves a module, in place.
_READS = ("item", "tolist", "numpy")


class UnusedWait(Edit):
    """Removes `x.sum().item()` whose value nobody uses, and `torch.cuda.synchronize()` in code that is repeated."""

    name = "unused-wait"
    needs = (".item(", ".tolist(", ".numpy(", "synchronize(")
    answers = ("SYN101", "SYN105", "CMP101")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        if len(original_node.body) != 1 or not isinstance(original_node.body[0], cst.Expr):
            return updated_node
        value = original_node.body[0].value
        if method_call(value, *_READS) is not None and not called(value, *(f"self.{name}" for name in _READS)):
            self.note(original_node, "a value is read from the device and not used: the host waits for nothing")
            return cst.RemoveFromParent()
        if (
            not self.safe_only
            and called(value, "cuda.synchronize", "torch.cuda.synchronize")
            and self.repeated(original_node)
            and not self._timed(original_node)
        ):
            self.note(original_node, "the host waits for the device in every round", safe=False)
            return cst.RemoveFromParent()
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:  # noqa: N802
        return cst.RemoveFromParent() if emptied(updated_node) else updated_node

    def _timed(self, node: cst.CSTNode) -> bool:
        """Whether the function around it reads a clock: then the wait belongs to a measurement."""
        function = next((one for one in self.parents(node) if isinstance(one, cst.FunctionDef)), None)
        if function is None:
            return False
        text = cst.Module([]).code_for_node(function)
        return any(word in text for word in ("perf_counter", "time.time", "elapsed_time", "monotonic"))
