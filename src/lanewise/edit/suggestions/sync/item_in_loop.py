"""`total += loss.item()` in a loop: the host waits for the device once per round."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.edit import Edit, method_call

__all__ = ["ItemInLoop"]


class ItemInLoop(Edit):
    """Adds on the device and reads the sum once, after the loop."""

    name = "item-in-loop"
    needs = (".item(",)
    safe = False  # the sum is made in the tensor's type, not in double precision
    answers = ("SYN101", "CMP101")

    def leave_For(  # noqa: N802
        self, original_node: cst.For, updated_node: cst.For
    ) -> cst.For | cst.FlattenSentinel[cst.BaseStatement]:
        body = updated_node.body
        if not isinstance(body, cst.IndentedBlock):
            return updated_node
        statements: list[cst.BaseStatement] = []
        sums: list[str] = []
        original = original_node.body.body if isinstance(original_node.body, cst.IndentedBlock) else ()
        if len(original) != len(body.body):
            return updated_node
        for was, statement in zip(original, body.body, strict=True):
            replaced = _without_item(statement) if self._reads_tensor(was) else None
            if replaced is None or self._used(updated_node, replaced[1]):
                statements.append(statement)
            else:
                statements.append(replaced[0])
                sums.append(replaced[1])
        what = "a value is read from the device in every round of a loop, to be added up"
        tensor = self.written("torch.Tensor", original_node)
        if not sums or not tensor or any(_waits(statement) for statement in statements):
            return updated_node
        if not self.offer(original_node, what):
            return updated_node
        whole = self._whole_sum(updated_node, statements, sums, tensor)
        if whole is not None:
            return whole
        after = [
            cst.parse_statement(f"if isinstance({name}, {tensor}):\n    {name} = {name}.item()\n")
            for name in dict.fromkeys(sums)
        ]
        loop = updated_node.with_changes(body=body.with_changes(body=statements))
        return cst.FlattenSentinel([loop, *after])

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        """A function that begins with zero, adds a sum and gives it back: the sum can stay on the device."""
        if not self.found or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        *head, zero, added, back = [None, None, None, *updated_node.body.body]
        if zero is None or added is None or back is None:
            return updated_node
        texts = [text_of(one).strip() for one in (zero, added, back)]
        name = texts[2].removeprefix("return ").strip()
        if not name.isidentifier() or texts[0] not in (f"{name} = 0.0", f"{name} = 0"):
            return updated_node
        value = texts[1].removeprefix(f"{name} += ")
        if (
            value == texts[1]
            or not value.endswith(".sum().item()")
            or "\n" in value
            or text_of(added)
            == text_of(original_node.body.body[-2] if isinstance(original_node.body, cst.IndentedBlock) else added)
        ):
            return updated_node
        if not self.offer(
            original_node, f"{name} is read on every call; as a tensor it is read by whoever needs the number"
        ):
            return updated_node
        line = cst.parse_statement(f"return {value.removesuffix('.item()')}")
        body = updated_node.body.with_changes(body=[*(one for one in head if one is not None), line])
        return updated_node.with_changes(body=body)

    def _reads_tensor(self, statement: cst.CSTNode) -> bool:
        """Whether `.item()` in a statement may be a tensor's: not that of another object of the file."""
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        call = method_call(line.value, "item") if isinstance(line, cst.AugAssign) else None
        if call is None or not isinstance(call.func, cst.Attribute) or call.args:
            return False
        return self.values.of(call.func.value).what in ("", "tensor")

    def _used(self, loop: cst.For, name: str) -> bool:
        """Whether the sum is used in the loop besides being added to: then it is needed in every round."""
        return text_of(loop.body).count(name) > 1

    def _whole_sum(
        self, loop: cst.For, statements: list[cst.BaseStatement], sums: list[str], tensor: str
    ) -> cst.FlattenSentinel[cst.BaseStatement] | None:
        """For a loop that does nothing else than add up what it walks over: one sum."""
        only = statements[0] if len(statements) == 1 and isinstance(loop.target, cst.Name) else None
        if only is None or text_of(only).strip() != f"{sums[0]} += {text_of(loop.target)}.detach()":
            return None
        over = text_of(loop.iter)
        # A tensor is summed as it is: taking it apart row by row would cost as much as the loop did.
        values = f"{tensor.removesuffix('Tensor')}stack(tuple({over}))"
        if over.isidentifier():
            values = f"({over} if isinstance({over}, {tensor}) else {values})"
        line = cst.parse_statement(f"{sums[0]} += {values}.sum().item()")
        assert isinstance(line, cst.SimpleStatementLine)
        return cst.FlattenSentinel([line.with_changes(leading_lines=loop.leading_lines)])


def _waits(statement: cst.BaseStatement) -> bool:
    """Whether every round reads from the device here: one read less does not make it wait less."""
    return isinstance(statement, cst.SimpleStatementLine) and ".item()" in text_of(statement)


def _without_item(statement: cst.BaseStatement) -> tuple[cst.BaseStatement, str] | None:
    """`name += x.item()` as `name += x.detach()`, with the name; None for anything else."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    line = statement.body[0]
    if not (
        isinstance(line, cst.AugAssign)
        and isinstance(line.operator, cst.AddAssign)
        and isinstance(line.target, cst.Name)
    ):
        return None
    call = method_call(line.value, "item")
    if call is None or not isinstance(call.func, cst.Attribute):
        return None
    # Detached, so that the sum does not keep the graph of every round alive.
    kept = call.with_changes(func=call.func.with_changes(attr=cst.Name("detach")))
    return statement.with_changes(body=[line.with_changes(value=kept)]), line.target.value
