"""A look at a script before it runs: will it have steps that can be found, and how many?

Only for scripts of plain operators, which have neither an optimizer nor a module. Where the answer is unsure the script
counts as one that may have steps, and what happens decides.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Outlook", "look"]

_HARMLESS = {"torch", "numpy", "triton", "math"} | set(sys.stdlib_module_names)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the source tells.

    Attributes:
        plain: only operators: no module class, optimizer, backward pass or unknown package in sight.
        step: name of the function that a loop calls, of a plain script; empty if there is none.
        iterations: how often, where the loop counts to a number written in the source; None if unknown.
    """

    plain: bool = False
    step: str = ""
    iterations: int | None = None


def look(source: str) -> Outlook:
    """The outlook of a script's source text; of one that does not parse, the empty one."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return Outlook()
    if any(_may_step(node) for node in ast.walk(tree)) or not _imports_torch(tree):
        return Outlook()
    step, iterations = _called_in_loop(tree)
    return Outlook(plain=True, step=step, iterations=iterations)


def _may_step(node: ast.AST) -> bool:
    """Whether a node hints at modules, optimizers or code that cannot be seen from here."""
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] not in _HARMLESS or alias.name == "torch.optim" for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        package = (node.module or "").split(".")[0]
        return node.level > 0 or package not in _HARMLESS or any(alias.name == "optim" for alias in node.names)
    if isinstance(node, ast.Attribute):
        if node.attr in ("backward", "optim", "generate"):
            return True
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        return owner == "nn" and node.attr[:1].isupper()
    if isinstance(node, ast.ClassDef):
        return any("Module" in ast.unparse(base) for base in node.bases)
    return False


def _imports_torch(tree: ast.Module) -> bool:
    names = [
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return any(name.split(".")[0] == "torch" for name in names)


def _called_in_loop(tree: ast.Module) -> tuple[str, int | None]:
    """The function of the script that its last outermost loop calls first, and the loop's count."""
    defined = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    calls = [(loop, name) for loop in _loops(tree) for name in _names_called(loop) if name in defined]
    inner = {id(node) for _, name in calls for node in ast.walk(defined[name])}
    outermost = [(loop, name) for loop, name in calls if id(loop) not in inner]
    if not outermost:
        return "", None
    last = outermost[-1][0]
    name = next(name for loop, name in outermost if loop is last)
    return name, sum(counts) if None not in (counts := [_count(lp) for lp, n in outermost if n == name]) else None  # type: ignore[arg-type]


def _loops(tree: ast.AST) -> Iterator[ast.For | ast.While]:
    """Loops in source order, those inside other loops left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.For | ast.While):
            yield node
        else:
            yield from _loops(node)


def _names_called(loop: ast.For | ast.While) -> list[str]:
    return [
        node.func.id
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def _count(loop: ast.For | ast.While) -> int | None:
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return None
    call = loop.iter
    if getattr(call.func, "id", "") != "range" or len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
        return None
    value = call.args[0].value
    return value if isinstance(value, int) else None
