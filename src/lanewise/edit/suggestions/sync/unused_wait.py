"""Statements that wait for the device and throw the answer away."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.analysis.known_value import Value
from lanewise.edit.analysis.pure import Purity
from lanewise.edit.edit import Edit, emptied, method_call

__all__ = ["UnusedWait"]

# Not `cpu`: as a statement it moves a module, in place.
_READS = ("item", "tolist", "numpy")
_CLOCKS = (
    "perf_counter",
    "perf_counter_ns",
    "time",
    "time_ns",
    "elapsed_time",
    "monotonic",
    "Event",
    "Timer",
    "timeit",
)
_WAITED_FOR = (
    "non_blocking",
    "Stream",
    "current_stream",
    "stream",
    "record_event",
    "wait_stream",
    "isend",
    "irecv",
    "async_op",
)
"""With these a read may be what makes something else be done in time."""
_WITHOUT_VALUES = (
    "meta",
    "is_meta",
    "FakeTensorMode",
    "to_sparse",
    "sparse_coo_tensor",
    "sparse_csr_tensor",
    "_assert_async",
)
"""With these a tensor may have no values, or none that can be read."""


class UnusedWait(Edit):
    """Removes `x.sum().item()` whose value nobody uses, and `torch.cuda.synchronize()` in code that is repeated.

    What the value is computed by stays if it does anything else, such as drawing random numbers.
    """

    name = "unused-wait"
    needs = (".item(", ".tolist(", ".numpy(", "synchronize(")
    answers = ("SYN101", "SYN105", "CMP101")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        line = original_node.body[0] if len(original_node.body) == 1 else None
        if not isinstance(line, cst.Expr):
            return updated_node
        read = method_call(line.value, *_READS)
        if read is not None and isinstance(read.func, cst.Attribute) and not read.args and not self.names.full(read):
            return self._without_read(original_node, updated_node, read.func.value)
        if (
            self.names.calls(line.value, "torch.cuda.synchronize", "torch.accelerator.synchronize")
            and self.repeated(original_node)
            and not self._timed(original_node)
            and self.offer(original_node, "the host waits for the device in every round", safe=False)
        ):
            return cst.RemoveFromParent()
        return updated_node

    def _without_read(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine, of: cst.BaseExpression
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        value = self.values.of(of)
        if value.known and not value.tensor:
            return updated
        own = any(
            isinstance(one, cst.FunctionDef) and one.name.value in _READS and self.names.owner(one) is not None
            for one in m.findall(self.names.module, m.FunctionDef())
        )
        if (own and not value.tensor) or self._timed(original):
            return updated
        pure = Purity(self.program).expression(of)
        waited = self.tried(original) or self.program.says((*_WAITED_FOR, *_WITHOUT_VALUES))
        safe = value.tensor and not waited and self._succeeds(cst.ensure_type(original.body[0], cst.Expr).value, value)
        if not pure and not value.tensor:
            return updated  # what is computed has to stay, and that it can stay by itself is not known
        if not self.offer(
            original, "a value is read from the device and not used: the host waits for nothing", safe=safe
        ):
            return updated
        if pure:
            return cst.RemoveFromParent()
        return updated.with_changes(body=[cst.Expr(of)])

    def _succeeds(self, read: cst.BaseExpression, of: Value) -> bool:
        """Whether the read cannot be what ends the program: `item` does for several values, `numpy` for many types."""
        return method_call(read, "tolist") is not None or (method_call(read, "item") is not None and of.rank == 0)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:  # noqa: N802
        return cst.RemoveFromParent() if emptied(updated_node) and not emptied(original_node) else updated_node

    def _timed(self, node: cst.CSTNode) -> bool:
        """Whether the function around it reads a clock: then the wait belongs to a measurement."""
        around = self.names.function(node) or self.names.module
        words = {one.value for one in m.findall(around, m.Name()) if isinstance(one, cst.Name)}
        return bool(words & set(_CLOCKS)) or "cuda.Event" in text_of(around)
