"""A program's source with suggestions applied, and the difference to what it was."""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lanewise.edit.source_text import lines_of
from lanewise.edit.suggestion_places import Places
from lanewise.errors import InputError, MissingDependencyError, UsageError

if TYPE_CHECKING:
    from lanewise.edit.edit import Edit, Suggestion

__all__ = ["EDITS", "Rewritten", "patch_of", "rewrite", "unified_diff"]

EDITS: dict[str, tuple[str, str]] = {
    "zero-grad": ("memory.zero_grad", "ZeroGrad"),
    "optimizer-flags": ("training.optimizer_flags", "OptimizerFlags"),
    "loader": ("training.loader", "Loader"),
    "unused-wait": ("sync.unused_wait", "UnusedWait"),
    "item-in-loop": ("sync.item_in_loop", "ItemInLoop"),
    "small-copies": ("sync.small_copies", "SmallCopies"),
    "pinned-copy": ("sync.pinned", "Pinned"),
    "growing-cat": ("memory.growing_cat", "GrowingCat"),
    "background-call": ("launch.background_call", "BackgroundCall"),
    "moved-back": ("sync.moved_back", "MovedBack"),
    "no-grad": ("training.no_grad", "NoGrad"),
    "matmul-precision": ("kernel.matmul_precision", "MatmulPrecision"),
    "static-compile": ("compile.static_compile", "StaticCompile"),
    "mask-partition": ("sync.mask_partition", "MaskPartition"),
    "cast-around": ("memory.cast_around", "CastAround"),
    "cast-once": ("memory.cast_once", "CastOnce"),
    "channels-last": ("kernel.channels_last", "ChannelsLast"),
    "attention": ("kernel.attention", "HandWrittenAttention"),
    "compile-region": ("launch.compile_region", "CompileRegion"),
}
"""Edits by name, in the order in which they are applied: module, in the room of its family, and class."""


_HEAD = 2
"""Lines of a diff that name the file."""


class Rewritten(NamedTuple):
    """Source before and after, and what was changed, in the order of the lines."""

    before: str
    after: str
    suggestions: list[Suggestion]

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
        return self.before != self.after


def rewrite(
    source: str, *, only: Sequence[str] = (), skip: Sequence[str] = (), safe_only: bool = False,
    findings: Collection[str] | None = None, alone: bool = True, chosen: Callable[[Suggestion], bool] | None = None,
) -> Rewritten:  # fmt: skip
    """Apply the edits to a source text.

    Args:
        only, skip: names of edits, or `NAME:LINE` for the place in the text as it is. safe_only: leave out edits that may
            change what is computed. chosen: leave out those it says no to.
        findings: codes of a report on the program: edits that answer none of them are left out; None: all are made.
        alone: whether no other file of the program uses this one.

    Raises:
        MissingDependencyError: libcst is not installed. UsageError: no such edit. InputError: it is no Python.
    """
    if unknown := [name for name in (*only, *skip) if name.partition(":")[0] not in EDITS]:
        raise UsageError(f"no edit called {', '.join(unknown)}; there are: {', '.join(EDITS)}")
    cst, metadata = _libcst()
    try:
        tree: Any = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise InputError(f"it is no Python that can be read: {_what_is_wrong(source, error)}") from None
    from lanewise.edit.analysis.whole_file import Program

    def may(one: Suggestion) -> bool:
        return (
            (not only or _named(one, only))
            and not _named(one, skip)
            and (one.safe or not safe_only)
            and (chosen is None or chosen(one))
        )

    found: list[Suggestion] = []
    program: Program | None = None
    for name in EDITS:
        if only and not any(one.partition(":")[0] == name for one in only):
            continue
        module, kind = EDITS[name]
        make: type[Edit] = getattr(importlib.import_module(f"lanewise.edit.suggestions.{module}"), kind)
        if findings is not None and not set(make.answers) & set(findings):
            continue
        if name in skip or not any(text in source for text in make.needs):
            continue
        if program is None:
            program = Program(metadata.MetadataWrapper(tree), alone=alone)
            places = Places(source, program.names)
        edit = make(program, lambda one, node, places=places: places.wanted(one, node, may))
        changed: Any = program.names.module.visit(edit)
        if edit.found:
            tree = _with_torch(changed) if edit.imports else changed
            found += edit.found
            program = None
    return Rewritten(source, tree.code, sorted(found, key=lambda one: one.line))


def _named(one: Suggestion, names: Sequence[str]) -> bool:
    return one.name in names or f"{one.name}:{one.line}" in names


def unified_diff(rewritten: Rewritten, name: str) -> str:
    """The change as a unified diff that `patch -p1` and `git apply` take; empty if there is none."""
    lines = difflib.unified_diff(lines_of(rewritten.before), lines_of(rewritten.after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def patch_of(rewritten: Rewritten, name: str, encoding: str) -> bytes:
    """The unified diff in the bytes of the file, which is what `git apply` compares; empty if there is none."""
    mark = "\ufeff" if encoding == "utf-8-sig" else ""
    marked = rewritten._replace(before=mark + rewritten.before, after=mark + rewritten.after)
    lines = unified_diff(marked, name).split("\n")
    return b"\n".join(line.encode("utf-8" if mark or at < _HEAD else encoding) for at, line in enumerate(lines))


def _what_is_wrong(source: str, error: Any) -> str:
    """Python's own words, which name the line that is meant; those of the parser for what Python would take."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError) as own:
        return f"line {own.lineno}: {own.msg}" if isinstance(own, SyntaxError) else str(own)
    return f"line {error.raw_line}: {error.message}"


def _with_torch(tree: Any) -> Any:
    """The module with `import torch`, which edits may use."""
    codemod: Any = importlib.import_module("libcst.codemod")
    visitors: Any = importlib.import_module("libcst.codemod.visitors")
    return visitors.AddImportsVisitor(codemod.CodemodContext(), [visitors.ImportItem("torch")]).transform_module(tree)


def _libcst() -> tuple[Any, Any]:
    try:
        return importlib.import_module("libcst"), importlib.import_module("libcst.metadata")
    except ModuleNotFoundError:
        raise MissingDependencyError("editing sources needs libcst: pip install 'lanewise[fix]'") from None
