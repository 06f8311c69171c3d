"""What the edits share: noting what was changed and where, and small questions about syntax trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import libcst as cst

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.analysis.whole_file import Program

__all__ = [
    "Edit",
    "Suggestion",
    "after_imports",
    "argument",
    "dotted",
    "emptied",
    "is_literal",
    "method_call",
    "parse_expression",
    "set_argument",
    "text_of",
    "without_argument",
]


class Suggestion(NamedTuple):
    """One change of the source.

    Attributes:
        name: of the edit. line: in the source as it was, from 1. what: one sentence: what is there, and what it costs.
        safe: whether the program computes the same afterwards, up to rounding. answers: codes of the diagnoses that it
            answers.
    """

    name: str
    line: int
    what: str
    safe: bool
    answers: tuple[str, ...]


class Edit(cst.CSTTransformer):
    """A change of one kind, made wherever its shape of code is found.

    Attributes:
        needs: texts of which one must be in a source for the edit to find anything; most sources need few edits.
        name: stable; what `--only` and `--skip` use. safe, answers: see `Suggestion`.
        program: the file that it is applied to. found: what was changed in it.
        imports: whether what was written needs `import torch`.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    safe: ClassVar[bool] = True
    answers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, program: Program, wanted: Callable[[Suggestion, cst.CSTNode], Suggestion | None]) -> None:
        """`wanted`: gives a suggestion back, with the line in the file as it was, if it is to be made."""
        super().__init__()
        self.program, self.names, self.values = program, program.names, program.values
        self._wanted = wanted
        self.found: list[Suggestion] = []
        self.imports = False

    def offer(self, node: cst.CSTNode, what: str, *, safe: bool | None = None) -> bool:
        """Whether a change at a node of the original tree is to be made; it is remembered if so."""
        line, _ = self.names.lines(node)
        safe = (self.safe if safe is None else safe) and not self.program.watching
        one = self._wanted(Suggestion(self.name, line, what, safe, self.answers), node)
        if one is not None:
            self.found.append(one)
        return one is not None

    def written(self, full: str, at: cst.CSTNode) -> str:
        """How a name of torch is written at a node; "" where the file calls something else by that name."""
        text = self.names.spelled(full, at)
        self.imports |= text.startswith("torch.") and not self.names.bound("torch", at)
        return text

    def tried(self, node: cst.CSTNode) -> bool:
        """Whether an error may be waited for: a `try` is around the node, or another manager than torch's plain ones."""
        for around in self.names.parents(node):
            if isinstance(around, cst.Try | cst.TryStar):
                return True
            if isinstance(around, cst.With) and any(self.names.full(one.item) not in _PLAIN for one in around.items):
                return True
        return False

    def repeated(self, node: cst.CSTNode) -> bool:
        """Whether the node is inside a loop or a function that is not the outermost one: code that may run many times."""
        around = self.names.parents(node)
        functions = [one for one in around if isinstance(one, cst.FunctionDef)]
        loops = [one for one in around if isinstance(one, cst.For | cst.While)]
        return bool(loops) or len(functions) > 1 or any(f.name.value in _STEP_NAMES for f in functions)


_PLAIN = ("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.autocast")
_STEP_NAMES = frozenset({"step", "forward", "train_step", "training_step", "validation_step"})


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` of names and attributes; "" for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def method_call(node: cst.CSTNode, *names: str) -> cst.Call | None:
    """The call if the node is `something.name(...)` with one of these names, on any expression."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in names:
        return node
    return None


def argument(call: cst.Call, keyword: str) -> cst.Arg | None:
    """A keyword argument; None if it is not given by keyword."""
    return next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == keyword), None)


def set_argument(call: cst.Call, keyword: str, value: str) -> cst.Call:
    """The call with a keyword argument set to an expression."""
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    new = cst.Arg(keyword=cst.Name(keyword), value=parse_expression(value), equal=equal)
    before = argument(call, keyword)
    if before is not None:
        return call.with_changes(args=[before.with_changes(value=new.value) if a is before else a for a in call.args])
    stars = [arg for arg in call.args if arg.star == "**"]
    plain = [arg for arg in call.args if arg.star != "**"]
    return call.with_changes(args=_separated([*plain, new, *stars]))


def without_argument(call: cst.Call, keyword: str) -> cst.Call:
    """The call without a keyword argument."""
    return call.with_changes(args=_separated([arg for arg in call.args if arg is not argument(call, keyword)]))


def is_literal(node: cst.CSTNode, *values: str) -> bool:
    """Whether the node is one of these names or literals, as written."""
    return isinstance(node, cst.Name | cst.SimpleString | cst.Integer) and node.value in values


def emptied(node: cst.If) -> bool:
    """Whether nothing is left to do under a condition that only reads names: the statement can go."""
    body = node.body.body if isinstance(node.body, cst.IndentedBlock) else None
    return body is not None and not body and node.orelse is None and _only_reads(node.test)


def _only_reads(test: cst.BaseExpression) -> bool:
    if isinstance(test, cst.UnaryOperation):
        return _only_reads(test.expression)
    if isinstance(test, cst.BooleanOperation):
        return _only_reads(test.left) and _only_reads(test.right)
    return bool(dotted(test))


def parse_expression(text: str) -> cst.BaseExpression:
    """An expression from its text."""
    return cst.parse_expression(text)


def after_imports(module: cst.Module, text: str) -> cst.Module:
    """The module with statements behind its last import at the top."""
    body = list(module.body)
    imports = [at for at, one in enumerate(body) if _is_import(one)]
    place = imports[-1] + 1 if imports else 1 if module.get_docstring() is not None else 0
    first, *others = cst.parse_module(text.lstrip("\n")).body
    blank = [cst.EmptyLine(indent=False)] * (len(text) - len(text.lstrip("\n")))
    return module.with_changes(body=[*body[:place], first.with_changes(leading_lines=blank), *others, *body[place:]])


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Import | cst.ImportFrom)


def _separated(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    """Arguments with a comma between each two, none after the last; commas that were there stay as they are."""
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    last = len(args) - 1
    return [
        arg.with_changes(
            comma=cst.MaybeSentinel.DEFAULT if at == last else arg.comma if isinstance(arg.comma, cst.Comma) else comma
        )
        for at, arg in enumerate(args)
    ]
