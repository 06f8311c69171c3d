"""Functions that torch has as one operator, by the pointwise operators that spell them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["function_of"]

# Of each kind of operator so many, and no other: how a constant is multiplied in is a matter of taste.
_FUNCTIONS: dict[str, dict[str, range]] = {
    'F.gelu(x, approximate="tanh")': {
        "tanh": range(1, 2),
        "pow": range(2),
        "multiply": range(4, 8),
        "add": range(2, 3),
    },
    "F.gelu(x)": {"erf": range(1, 2), "multiply": range(2, 4), "add": range(1, 2)},
    "F.silu(x)": {"sigmoid": range(1, 2), "multiply": range(1, 2)},
    "F.mish(x)": {"softplus": range(1, 2), "tanh": range(1, 2), "multiply": range(1, 2)},
    "torch.softmax(x, dim)": {
        "maximum": range(2),
        "add": range(2),
        "exp": range(1, 2),
        "sum": range(1, 2),
        "multiply": range(1, 2),
    },
}
_KINDS = {
    "mul": "multiply",
    "div": "multiply",
    "sub": "add",
    "rsub": "add",
    "amax": "maximum",
    "max": "maximum",
}


def function_of(operators: Iterable[str]) -> str:
    """How torch spells what these operators compute together, `F.gelu(x)` say; "" if that is no function it has."""
    names = (name.removeprefix("aten::").rstrip("_") for name in operators)
    found = Counter(_KINDS.get(name, name) for name in names)
    for function, parts in _FUNCTIONS.items():
        if found.keys() <= parts.keys() and all(found[part] in number for part, number in parts.items()):
            return function
    return ""
