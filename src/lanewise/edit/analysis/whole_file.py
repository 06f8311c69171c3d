"""What a whole file shows: which words are in it, and whether anything outside of it can have a hand in what it does."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper

from lanewise.edit.analysis.imported_names import Names
from lanewise.edit.analysis.values import Values
from lanewise.edit.torch_names import words

__all__ = ["Program"]

_KNOWN = frozenset({"torch", "numpy", "tqdm"}) | sys.stdlib_module_names
"""Packages that change neither modules nor gradients, and hold on to no tensor, behind a program's back."""

_BY_NAME = frozenset({"exec", "eval", "getattr", "setattr", "globals", "vars", "__import__", "importlib", "unittest"})
"""With these the words of a file are not all that it uses."""

TWICE = words(
    "create_graph retain_graph hessian jacobian hvp vhp jvp vjp vmap jacrev jacfwd forward_ad make_fx functorch "
    "gradgradcheck gradcheck functional_call"
)
"""Words of programs that differentiate more than once, or in another way than by one backward pass."""


_WATCHING = words(
    "TorchDispatchMode TorchFunctionMode BaseTorchFunctionMode __torch_dispatch__ __torch_function__ FlopCounterMode "
    "settrace setprofile addGlobalCallback grad_fn next_functions counters explain"
)
"""Words of programs that look at which operations are run."""


class Program:
    """One parsed file.

    Attributes:
        names, values: what is known of its names and expressions.
        words: all names, attributes and keywords in it, and texts that are names.
        closed: whether it imports nothing but torch, NumPy and the standard library, finds nothing by its name as text,
            and is used by no other file: then what cannot be read in it does not happen.
        watching: whether it may look at which operations are run: every edit shows then.
    """

    def __init__(self, wrapper: MetadataWrapper, *, alone: bool = True) -> None:
        self.names = Names(wrapper)
        self.values = Values(self.names)
        self.words = frozenset(_words(wrapper.module))
        self.watching = bool(self.words & _WATCHING)
        self.closed = alone and not (_imports(wrapper.module) - _KNOWN) and not self.words & (_BY_NAME - {"eval"})
        self.closed = self.closed and not any(
            self.names.full(call) == "builtins.eval" for call in m.findall(wrapper.module, m.Call())
        )

    def says(self, words: Iterable[str], *parts: str) -> bool:
        """Whether any of these words is in the file, or one that contains one of `parts`."""
        return bool(self.words & frozenset(words)) or any(part in word for word in self.words for part in parts)

    def writes_in_place(self) -> bool:
        """Whether tensors may be written to in place: what is a view and what is a copy would show."""
        plain = ("requires_grad_", "_", "manual_seed_", "zero_")
        if any(word.endswith("_") and not word.startswith("_") and word not in plain for word in self.words):
            return True
        module = self.names.module
        if m.findall(module, m.AssignTarget(m.Subscript()) | m.AugAssign(m.Subscript())):
            return True
        # What gradients are filled with, nothing else reads.
        zeroed = m.findall(module, m.Attribute(attr=m.Name("zero_")))
        gradients = m.findall(module, m.Attribute(value=m.Attribute(attr=m.Name("grad")), attr=m.Name("zero_")))
        counted = m.findall(module, m.AugAssign(m.Name()))
        return len(zeroed) > len(gradients) or not all(map(self._counts, counted))

    def _counts(self, node: cst.CSTNode) -> bool:
        """Whether `name += value` makes a number, text or list, and writes into no tensor."""
        target = cst.ensure_type(node, cst.AugAssign).target
        return self.values.of(target).what in ("number", "text", "list")


def _words(module: cst.Module) -> Iterable[str]:
    for node in m.findall(module, m.Name() | m.SimpleString()):
        if isinstance(node, cst.Name):
            yield node.value
        elif isinstance(node, cst.SimpleString):
            text = node.evaluated_value
            if isinstance(text, str) and text.isidentifier():
                yield text


def _imports(module: cst.Module) -> set[str]:
    """Packages that a file imports; "." for those beside it, "*" for all names of one."""
    found: set[str] = set()
    for node in m.findall(module, m.Import() | m.ImportFrom()):
        if isinstance(node, cst.Import):
            found |= {one.evaluated_name.partition(".")[0] for one in node.names}
        elif isinstance(node, cst.ImportFrom):
            inner = node.module
            while isinstance(inner, cst.Attribute):
                inner = inner.value
            found.add(inner.value if isinstance(inner, cst.Name) and not node.relative else ".")
            if isinstance(node.names, cst.ImportStar):
                found.add("*")
    return found
