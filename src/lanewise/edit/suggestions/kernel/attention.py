"""Attention written by hand: scores, softmax and a product, each through memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import Names, mentioned, text_of, written_to
from lanewise.edit.analysis.pure import Purity
from lanewise.edit.analysis.whole_file import TWICE, Program
from lanewise.edit.edit import Edit, is_literal, method_call, parse_expression
from lanewise.edit.torch_names import LAYERS

__all__ = ["HandWrittenAttention"]

_FUSED = "torch.nn.functional.scaled_dot_product_attention"
_PRODUCTS = ("torch.matmul", "torch.bmm")
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")


@dataclass(frozen=True)
class _Scores:
    """What is known of a name that holds attention scores, or weights after their softmax.

    Attributes:
        mask: what hides; `hides`: whether it stands for what is hidden, and not for what is added.
        statements: that made it, in order.
    """

    query: cst.BaseExpression
    key: cst.BaseExpression
    scale: cst.BaseExpression | None = None
    divides: bool = False
    mask: cst.BaseExpression | None = None
    hides: bool = False
    softmax: bool = False
    statements: tuple[cst.CSTNode, ...] = field(default=())

    @property
    def inputs(self) -> list[cst.BaseExpression]:
        """What it was made of, and is made of again by the one operator."""
        return [one for one in (self.query, self.key, self.scale, self.mask) if one is not None]


class HandWrittenAttention(Edit):
    """Calls `scaled_dot_product_attention`, which never writes the scores to memory.

    The same for tensors of two dimensions and more, a scale that is a number, and a mask that hides no whole row: of such a
    row softmax makes NaN, the operator zeros. It has no second derivative on every device.
    """

    name = "attention"
    needs = ("softmax",)
    answers = ("KER109",)

    def leave_IndentedBlock(  # noqa: N802
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if self.program.says(TWICE) or len(original_node.body) != len(updated_node.body):
            return updated_node
        reader = _Reader(self.program)
        known: dict[str, _Scores] = {}
        for at, statement in enumerate(original_node.body):
            assigned = _assigned(statement)
            if assigned is not None and (scores := reader.scores(assigned[1], known)) is not None:
                known[assigned[0]] = replace(scores, statements=(*scores.statements, statement))
                continue
            product = reader.product(statement, known)
            if product is not None and (changed := self._fused(original_node, statement, *product)) is not None:
                gone = {id(one) for one in product[1].statements}
                rest = [
                    changed if one is statement else new
                    for one, new in zip(original_node.body, updated_node.body, strict=True)
                    if id(one) not in gone
                ]
                assert original_node.body[at] is statement
                return updated_node.with_changes(body=rest)
            reader.forget(statement, known)
        return updated_node

    def _fused(
        self, block: cst.IndentedBlock, statement: cst.BaseStatement, node: cst.BaseExpression, scores: _Scores,
        value: cst.BaseExpression,
    ) -> cst.BaseStatement | None:  # fmt: skip
        """The statement with the one operator in it; None if that is not the same, or declined."""
        if not _only_in(scores.statements, node, self.names):
            return None
        first = block.body.index(scores.statements[0]) if scores.statements else block.body.index(statement)
        between = [one for one in block.body[first : block.body.index(statement)] if one not in scores.statements]
        if _reaches(between, scores.inputs):
            return None
        scale, mask = (self.values.of(one) if one is not None else None for one in (scores.scale, scores.mask))
        of = [self.values.of(one) for one in (scores.query, scores.key, value)]
        if (scale is not None and scale.tensor) or any(one.dtype in ("int", "bool") for one in of):
            return None
        if mask is not None and not scores.hides and mask.dtype in ("int", "bool"):
            return None  # ones are added to the scores, where the operator would hide
        operator = self.written(_FUSED, statement)
        proven = all(one.tensor and one.rank is not None and one.rank >= 2 and one.dtype == "float" for one in of)
        safe = (
            proven
            and len({one.rank for one in of}) == 1
            and (scale is None or scale.what == "number")
            and (mask is None or (scores.hides and mask.mask == "hides" and mask.rank is not None and mask.rank >= 2))
            and self._harmless(between, scores.inputs)
        )
        if not operator or not self.offer(statement, _WHAT, safe=safe):
            return None
        words = [text_of(scores.query), text_of(scores.key), text_of(value)]
        if scores.mask is not None:
            words.append(f"attn_mask={_shown(text_of(scores.mask)) if scores.hides else text_of(scores.mask)}")
        factor = "1.0" if scores.scale is None else text_of(scores.scale)
        words.append(f"scale={f'1 / ({factor})' if scores.divides else factor}")
        changed = statement.deep_replace(node, parse_expression(f"{operator}({', '.join(words)})"))
        return changed if isinstance(changed, cst.BaseStatement) else None

    def _harmless(self, between: Sequence[cst.BaseStatement], inputs: Sequence[cst.BaseExpression]) -> bool:
        """Whether statements in between do nothing but compute values of their own, so that their order does not matter."""
        pure = Purity(self.program)
        calls = [one for part in (*between, *(inputs if between else ())) for one in m.findall(part, m.Call())]
        return all(
            pure.call(one) or self.values.of(one.func).kind in LAYERS for one in calls if isinstance(one, cst.Call)
        )


_WHAT = "attention is written by hand: the scores go through memory several times"


class _Reader:
    """Finds scores, and what becomes of them, in the statements of a block."""

    def __init__(self, program: Program) -> None:
        self._names, self._values = program.names, program.values

    def scores(self, value: cst.BaseExpression, known: dict[str, _Scores]) -> _Scores | None:
        """What an expression makes of queries and keys; None if it is something else."""
        if (weights := self._softmax_of(value, known)) is not None:
            return weights
        if (pair := self._operands(value)) is not None:
            key = self._transposed(pair[1])
            return _Scores(pair[0], key) if key is not None else None
        if isinstance(value, cst.BinaryOperation):
            inner = self._inner(value.left, known)
            if inner is None or inner.softmax or inner.mask is not None:
                return None
            if isinstance(value.operator, cst.Divide | cst.Multiply) and inner.scale is None:
                return replace(inner, scale=value.right, divides=isinstance(value.operator, cst.Divide))
            return replace(inner, mask=value.right) if isinstance(value.operator, cst.Add) else None
        fill = method_call(value, "masked_fill", "masked_fill_")
        if fill is None or not isinstance(fill.func, cst.Attribute) or len(fill.args) != 2:
            return None
        if any(arg.keyword is not None or arg.star for arg in fill.args) or not self._lowest(fill.args[1].value):
            return None
        inner = self._inner(fill.func.value, known)
        if inner is None or inner.mask is not None or inner.softmax:
            return None
        return replace(inner, mask=fill.args[0].value, hides=True)

    def product(
        self, statement: cst.CSTNode, known: dict[str, _Scores]
    ) -> tuple[cst.BaseExpression, _Scores, cst.BaseExpression] | None:
        """The product of weights and values in a plain statement: itself, the weights, the values."""
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return None
        for node in m.findall(statement, m.BinaryOperation(operator=m.MatrixMultiply()) | m.Call()):
            pair = self._operands(node)
            if pair is None or not isinstance(node, cst.BaseExpression):
                continue
            scores = self._inner(pair[0], known)
            if scores is not None and scores.softmax:
                return node, scores, pair[1]
        return None

    def forget(self, statement: cst.CSTNode, known: dict[str, _Scores]) -> None:
        """Drop what a statement gives another value, or may have changed."""
        if not known:
            return
        simple = isinstance(statement, cst.SimpleStatementLine)
        touched = written_to(statement) if simple else mentioned(statement)
        for name in touched & set(known):
            del known[name]
        for name in [name for name, one in known.items() if _reaches([statement], one.inputs)]:
            del known[name]

    def _inner(self, node: cst.BaseExpression, known: dict[str, _Scores]) -> _Scores | None:
        """Scores under a name, or written in place."""
        return known.get(node.value) if isinstance(node, cst.Name) else self.scores(node, known)

    def _operands(self, node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        """Both sides of a matrix product."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
            return node.left, node.right
        plain = isinstance(node, cst.Call) and all(arg.keyword is None and not arg.star for arg in node.args)
        if plain and isinstance(node, cst.Call) and self._names.calls(node, *_PRODUCTS) and len(node.args) == 2:
            return node.args[0].value, node.args[1].value
        return None

    def _softmax_of(self, node: cst.BaseExpression, known: dict[str, _Scores]) -> _Scores | None:
        """Scores that a softmax over the last dimension is taken of."""
        if not isinstance(node, cst.Call) or any(
            arg.star or (arg.keyword is not None and arg.keyword.value not in ("input", "dim")) for arg in node.args
        ):
            return None
        if self._names.calls(node, *_SOFTMAX) and len(node.args) == 2 and node.args[0].keyword is None:
            of, dim = node.args[0].value, node.args[1].value
        elif method_call(node, "softmax") is not None and not self._names.full(node) and len(node.args) == 1:
            of, dim = cst.ensure_type(node.func, cst.Attribute).value, node.args[0].value
        else:
            return None
        inner = self._inner(of, known)
        if inner is None or inner.softmax or text_of(dim).replace(" ", "") != "-1":
            return None
        return replace(inner, softmax=True)

    def _transposed(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What is transposed in its last two dimensions; None if it is not."""
        if isinstance(node, cst.Attribute) and is_literal(node.attr, "mT"):
            return node.value
        call = method_call(node, "transpose")
        if call is None or not isinstance(call.func, cst.Attribute) or len(call.args) != 2:
            return None
        rank = self._values.of(call.func.value).rank
        last = {"-1", "-2"} if rank is None else {"-1", "-2", str(rank - 1), str(rank - 2)}
        dims = [text_of(arg.value).replace(" ", "") for arg in call.args]
        different = rank is None or len({int(one) % rank for one in dims if one in last}) == 2
        return call.func.value if set(dims) <= last and len(set(dims)) == 2 and different else None

    def _lowest(self, node: cst.BaseExpression) -> bool:
        """Whether a value is minus infinity."""
        if self._names.calls(node, "builtins.float") and isinstance(node, cst.Call) and len(node.args) == 1:
            return is_literal(node.args[0].value, '"-inf"', "'-inf'", '"-infinity"', "'-infinity'")
        if not isinstance(node, cst.UnaryOperation) or not isinstance(node.operator, cst.Minus):
            return False
        inner = node.expression
        if self._names.full(inner) in ("math.inf", "torch.inf", "numpy.inf"):
            return True
        call = inner if isinstance(inner, cst.Call) and self._names.calls(inner, "builtins.float") else None
        return call is not None and len(call.args) == 1 and is_literal(call.args[0].value, '"inf"', "'inf'")


def _shown(hidden: str) -> str:
    """The opposite of a mask."""
    return hidden[1:] if hidden.startswith("~") else f"~{hidden}" if hidden.isidentifier() else f"~({hidden})"


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


def _only_in(chain: Sequence[cst.CSTNode], product: cst.CSTNode, names: Names) -> bool:
    """Whether what the statements of a chain are called is read by these and the product alone: they can go."""
    weights = product.left if isinstance(product, cst.BinaryOperation) else cst.ensure_type(product, cst.Call).args[0]
    inside = set(map(id, (*chain, weights)))
    for statement in chain:
        assigned = _assigned(statement)
        for name in m.findall(statement, m.Name(assigned[0])) if assigned is not None else ():
            if any(not {id(one) for one in (read, *names.parents(read))} & inside for read in names.reads(name)):
                return False
    return True


def _reaches(statements: Sequence[cst.CSTNode], inputs: Sequence[cst.CSTNode]) -> bool:
    """Whether statements write to a name, or an attribute, that inputs are made of."""
    used = {name for one in inputs for name in mentioned(one)} - {"self"}
    return any((written_to(one) - {"self"}) & used for one in statements)
