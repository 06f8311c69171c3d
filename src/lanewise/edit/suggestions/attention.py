"""Attention written by hand: scores, softmax and a product, each through memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from lanewise.edit.edit import Edit, called, is_literal, method_call, parse_expression, text_of

__all__ = ["HandWrittenAttention"]


@dataclass
class _Scores:
    """What is known of a name that holds attention scores, or weights after their softmax."""

    query: str
    key: str
    scale: str = "1.0"
    mask: str = ""
    softmax: bool = False
    statements: list[cst.CSTNode] = field(default_factory=list[cst.CSTNode])


class HandWrittenAttention(Edit):
    """Calls `scaled_dot_product_attention`, which never writes the scores to memory."""

    name = "attention"
    needs = ("softmax",)
    answers = ("KER109",)

    def leave_IndentedBlock(  # noqa: N802
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        known: dict[str, _Scores] = {}
        body = list(updated_node.body)
        for at, statement in enumerate(body):
            assigned = _assigned(statement)
            if assigned is not None and (scores := _scores(assigned[1], known)) is not None:
                scores.statements.append(statement)
                known[assigned[0]] = scores
                continue
            found = _Product(known)
            changed = statement.visit(found)
            if found.used is not None and isinstance(changed, cst.BaseStatement):
                body[at] = changed
                rest = [one for one in body if id(one) not in {id(part) for part in found.used.statements}]
                if not _names_of(rest) & _targets(found.used, known):
                    what = "attention is written by hand: the scores go through memory several times"
                    self.note(original_node.body[at], what)
                    return updated_node.with_changes(body=rest)
                return updated_node
        return updated_node


def _targets(scores: _Scores, known: dict[str, _Scores]) -> set[str]:
    """Names that hold something between the scores and the weights: dropout on them, say, would be lost."""
    chain = {id(one) for one in scores.statements}
    return {name for name, one in known.items() if chain & {id(statement) for statement in one.statements}}


def _names_of(statements: list[cst.BaseStatement]) -> set[str]:
    words = _Names()
    for statement in statements:
        statement.visit(words)
    return words.seen


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.seen: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
        self.seen.add(node.value)


class _Product(cst.CSTTransformer):
    """Replaces `weights @ v` by the one operator."""

    def __init__(self, known: dict[str, _Scores]) -> None:
        super().__init__()
        self._known = known
        self.used: _Scores | None = None

    def leave_BinaryOperation(  # noqa: N802
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        if isinstance(updated_node.operator, cst.MatrixMultiply):
            return self._replaced(updated_node.left, updated_node.right) or updated_node
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if called(updated_node, "torch.matmul", "torch.bmm") and len(updated_node.args) == 2:
            return self._replaced(updated_node.args[0].value, updated_node.args[1].value) or updated_node
        return updated_node

    def _replaced(self, left: cst.BaseExpression, right: cst.BaseExpression) -> cst.BaseExpression | None:
        scores = self._known.get(left.value) if isinstance(left, cst.Name) else _softmax_of(left, self._known)
        if scores is None or not scores.softmax or self.used is not None:
            return None
        self.used = scores
        words = [scores.query, scores.key, text_of(right)]
        words += [f"attn_mask={scores.mask}"] if scores.mask else []
        words.append(f"scale={scores.scale}")
        return parse_expression(f"torch.nn.functional.scaled_dot_product_attention({', '.join(words)})")


def _assigned(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """The name and the value that a statement gives it; filling in place is one as well."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    line = statement.body[0]
    if isinstance(line, cst.Expr) and method_call(line.value, "masked_fill_") is not None:
        fill = cst.ensure_type(line.value, cst.Call)
        owner = cst.ensure_type(fill.func, cst.Attribute).value
        return (owner.value, fill) if isinstance(owner, cst.Name) else None
    if isinstance(line, cst.Assign) and len(line.targets) == 1 and isinstance(line.targets[0].target, cst.Name):
        return line.targets[0].target.value, line.value
    return None


def _scores(value: cst.BaseExpression, known: dict[str, _Scores]) -> _Scores | None:
    """What an expression makes of queries and keys; None if it is something else."""
    if (weights := _softmax_of(value, known)) is not None:
        return weights
    if isinstance(value, cst.BinaryOperation):
        if isinstance(value.operator, cst.MatrixMultiply):
            key = _transposed(value.right)
            return _Scores(text_of(value.left), key) if key else None
        inner = _inner(value.left, known)
        if inner is None or inner.softmax:
            return None
        if isinstance(value.operator, cst.Divide | cst.Multiply) and inner.scale == "1.0" and not inner.mask:
            factor = text_of(value.right)
            inner.scale = f"1 / ({factor})" if isinstance(value.operator, cst.Divide) else factor
            return inner
        if isinstance(value.operator, cst.Add) and not inner.mask:
            inner.mask = text_of(value.right)
            return inner
        return None
    if called(value, "torch.matmul", "torch.bmm") and isinstance(value, cst.Call) and len(value.args) == 2:
        key = _transposed(value.args[1].value)
        return _Scores(text_of(value.args[0].value), key) if key else None
    fill = method_call(value, "masked_fill", "masked_fill_")
    if (
        fill is not None
        and isinstance(fill.func, cst.Attribute)
        and len(fill.args) == 2
        and "inf" in text_of(fill.args[1])
    ):
        inner = _inner(fill.func.value, known)
        if inner is not None and not inner.mask and not inner.softmax:
            hidden = text_of(fill.args[0].value)
            inner.mask = (
                hidden[1:] if hidden.startswith("~") else f"~{hidden}" if hidden.isidentifier() else f"~({hidden})"
            )
            return inner
    return None


def _inner(node: cst.BaseExpression, known: dict[str, _Scores]) -> _Scores | None:
    """Scores under a name, or written in place; a copy that may be added to."""
    found = known.get(node.value) if isinstance(node, cst.Name) else _scores(node, known)
    if found is None:
        return None
    return _Scores(found.query, found.key, found.scale, found.mask, found.softmax, list(found.statements))


def _softmax_of(node: cst.BaseExpression, known: dict[str, _Scores]) -> _Scores | None:
    """Scores that a softmax over the last dimension is taken of."""
    if not isinstance(node, cst.Call):
        return None
    method = method_call(node, "softmax")
    function = called(node, "torch.softmax", "F.softmax", "functional.softmax")
    if function and len(node.args) == 2:
        of, dim = node.args[0].value, node.args[1].value
    elif method is not None and not function and isinstance(node.func, cst.Attribute) and len(node.args) == 1:
        of, dim = node.func.value, node.args[0].value
    else:
        return None
    inner = _inner(of, known)
    if inner is None or inner.softmax or text_of(dim).replace(" ", "") != "-1":
        return None
    inner.softmax = True
    return inner


def _transposed(node: cst.BaseExpression) -> str:
    """What is transposed in its last two dimensions; "" if it is not."""
    if isinstance(node, cst.Attribute) and is_literal(node.attr, "mT"):
        return text_of(node.value)
    call = method_call(node, "transpose")
    if call is None or not isinstance(call.func, cst.Attribute) or len(call.args) != 2:
        return ""
    dims = {text_of(arg.value).replace(" ", "") for arg in call.args}
    return text_of(call.func.value) if dims == {"-1", "-2"} else ""
