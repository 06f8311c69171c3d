"""A look at a script, or at a notebook's cell, before it runs: will it have steps that can be found, and how many?

Only for scripts of plain operators, which have neither an optimizer nor a module. Where the answer is unsure the script
counts as one that may have steps, and what happens decides. Of a cell more is known: the values that its names have.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from lanewise.capture.schedule import Plan

__all__ = ["Outlook", "look", "look_at_cell"]

_PASSED_FORWARD = 8
"""Forward calls with gradients on that are not counted as steps: see `StepFinder`."""
_FEWEST = 4
"""Steps for which there is a plan; fewer are recorded whole."""

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

    @property
    def whole(self) -> bool:
        """Whether no step will be found: all of it is to be recorded."""
        return self.plain and not self.step

    def fitted(self, plan: Plan) -> Plan:
        """The plan, for as many steps as there will be."""
        return plan if self.iterations is None else plan.fitted(self.iterations)


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


def look_at_cell(source: str, names: Mapping[str, Any]) -> Outlook:
    """The outlook of a cell's source text, whose `names` may have been given values by cells before it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return Outlook()
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    functions |= {name for name, value in names.items() if _is_of_notebook(value)}
    mentioned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names}
    unknown = any(_may_hide_steps(names[name]) for name in mentioned)
    loops = list(_loops(tree))
    if not loops:
        return Outlook() if unknown or mentioned & functions else Outlook(plain=True)
    rounds, body = _rounds(loops[-1], names, functions)
    first = next((name for node in body if (name := _name_called(node)) in functions), "")
    if first:
        return _counted(Outlook(plain=True, step=first, iterations=rounds))
    modules = any(_is_of_torch(names[name], "Module", "Optimizer") for name in mentioned)
    if not unknown and not modules and not any(_may_step(node) for node in ast.walk(tree)):
        return Outlook(plain=True)
    if rounds is not None and not any(_is_method_call(node, "step", "backward") for node in body):
        rounds -= _PASSED_FORWARD
    return _counted(Outlook(iterations=rounds))


def _counted(found: Outlook) -> Outlook:
    return Outlook(plain=True) if found.iterations is not None and found.iterations < _FEWEST else found


def _is_of_notebook(value: Any) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == "__main__"


def _is_of_torch(value: Any, *classes: str) -> bool:
    return any(one.__name__ in classes and one.__module__.startswith("torch.") for one in type(value).__mro__)


def _may_hide_steps(value: Any) -> bool:
    """Whether calls of it may loop where nobody can see it: what is neither data, nor torch's, nor the notebook's."""
    if _is_of_torch(value, "Module") or _is_of_notebook(value) or isinstance(value, ModuleType):
        return isinstance(value, ModuleType) and value.__name__.split(".")[0] not in _HARMLESS
    owner = value if isinstance(value, FunctionType | BuiltinFunctionType | type) else type(value)
    return str(owner.__module__ or "builtins").split(".")[0] not in _HARMLESS | {"builtins"}


def _rounds(
    loop: ast.For | ast.While, names: Mapping[str, Any], functions: set[str]
) -> tuple[int | None, list[ast.AST]]:
    """How often the loop that makes the steps goes round, None if unknown, and what it does itself in each."""
    own = _count(loop, names)
    body = list(_outside_of_loops(loop.body))
    inner = [one for statement in loop.body for one in _loops(ast.Module([statement], []))]
    if not inner or any(_name_called(node) in functions or _is_method_call(node, "step", "backward") for node in body):
        return own, body
    if any(_is_of_torch(names.get(_name_called(node)), "Module") for node in body):
        return own, body
    within, body = _rounds(inner[-1], names, functions)
    return (None if own is None or within is None else own * within), body


def _outside_of_loops(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if not isinstance(node, ast.For | ast.While):
            yield node
            yield from _outside_of_loops(ast.iter_child_nodes(node))


def _name_called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _is_method_call(node: ast.AST, *methods: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods


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
    counts = [_count(loop) for loop, called in outermost if called == name]
    known = [count for count in counts if count is not None]
    return name, sum(known) if len(known) == len(counts) else None


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


def _count(loop: ast.For | ast.While, names: Mapping[str, Any] = MappingProxyType({})) -> int | None:
    """How often a loop goes round: counted to a number in the source, or over something that has a length."""
    over = loop.iter if isinstance(loop, ast.For) else None
    if isinstance(over, ast.Call) and getattr(over.func, "id", "") in ("enumerate", "tqdm") and over.args:
        over = over.args[0]
    if isinstance(over, ast.Call) and getattr(over.func, "id", "") == "range" and len(over.args) == 1:
        (over,) = over.args
        value = over.value if isinstance(over, ast.Constant) else names.get(getattr(over, "id", ""))
        return value if isinstance(value, int) else None
    value: Any = names.get(over.id) if isinstance(over, ast.Name) else None
    # Of data only: asking anything else for its length may run whatever it likes.
    return len(value) if isinstance(value, list | tuple | dict) or _is_of_torch(value, "DataLoader") else None
