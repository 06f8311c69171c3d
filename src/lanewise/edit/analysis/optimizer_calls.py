"""What a call that makes an optimizer is given, and what is proven of its parameters."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import Names
from lanewise.edit.analysis.whole_file import Program
from lanewise.edit.torch_names import MAKERS

__all__ = ["arguments_of", "defines", "dense_parameters", "plain_parameters"]

_HALF = ("half", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_COMPLEX = ("cfloat", "cdouble", "chalf", "view_as_complex", "polar", "fft", "rfft", "ifft")
_ELSEWHERE = (
    "meta",
    "data",
    "fully_shard",
    "FullyShardedDataParallel",
    "DTensor",
    "as_strided",
    "set_",
    "resize_",
    "swap_",
)
_FROM_FILES = ("load", "hub", "from_numpy", "as_tensor", "frombuffer")


def arguments_of(call: cst.Call, names: Names, positional: Sequence[str]) -> dict[str, list[cst.BaseExpression]] | None:
    """What a call may be given, by name: one value, or several where a mapping is chosen by a condition.

    None where that cannot be told. `positional`: names of the first parameters.
    """
    given: dict[str, list[cst.BaseExpression]] = {}
    for at, arg in enumerate(call.args):
        if arg.star == "**":
            mappings = _mappings(arg.value, names)
            if mappings is None:
                return None
            for key, value in mappings:
                given.setdefault(key, []).append(value)
        elif arg.star or (arg.keyword is None and at >= len(positional)):
            if arg.star:
                return None
            given.setdefault(f"#{at}", []).append(arg.value)
        else:
            given.setdefault(positional[at] if arg.keyword is None else arg.keyword.value, []).append(arg.value)
    return given


def _mappings(node: cst.BaseExpression, names: Names) -> list[tuple[str, cst.BaseExpression]] | None:
    """All that a mapping may hold, if it is written out: in place, or under a name that is given it once."""
    if isinstance(node, cst.IfExp):
        both = (_mappings(node.body, names), _mappings(node.orelse, names))
        return None if both[0] is None or both[1] is None else both[0] + both[1]
    if isinstance(node, cst.Name):
        writes = names.writes(node)
        one = writes[0].node if writes is not None and len(writes) == 1 else None
        used = [names.parent(read) for read in names.reads(node)]
        spread = all(isinstance(arg, cst.Arg) and arg.star == "**" for arg in used)
        plain = isinstance(one, cst.Assign) and isinstance(one.targets[0].target, cst.Name) and len(one.targets) == 1
        return _mappings(one.value, names) if isinstance(one, cst.Assign) and plain and spread else None
    if not isinstance(node, cst.Dict):
        return None
    found: list[tuple[str, cst.BaseExpression]] = []
    for element in node.elements:
        if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
            return None
        found.append((str(element.key.evaluated_value), element.value))
    return found


def plain_parameters(given: Sequence[cst.BaseExpression]) -> bool:
    """Whether an optimizer gets `something.parameters()`: one group, without settings of its own."""
    return len(given) == 1 and m.matches(given[0], m.Call(func=m.Attribute(attr=m.Name("parameters")), args=[]))


def dense_parameters(program: Program, given: Sequence[cst.BaseExpression]) -> bool:
    """Whether parameters are proven to be real, of single or double precision, laid out in the common way, and to get
    dense gradients laid out alike: those of a module of this file, made of torch's layers."""
    if not plain_parameters(given) or not program.closed:
        return False
    call = cst.ensure_type(given[0], cst.Call)
    module = program.values.of(cst.ensure_type(call.func, cst.Attribute).value)
    if module.what != "module" or not (module.own is not None or module.kind.startswith("torch.nn.")):
        return False
    if program.says((*_HALF, *_COMPLEX, *_ELSEWHERE, *_FROM_FILES), "sparse", "complex"):
        return False
    return not any(
        _unusual(node, program) for node in m.findall(program.names.module, m.Call() | m.Assign() | m.Imaginary())
    )


def _unusual(node: cst.CSTNode, program: Program) -> bool:
    """What makes a parameter, or its gradient, something else: a view, an imaginary number, a gradient set by hand, an
    embedding whose gradients may be sparse by position."""
    if isinstance(node, cst.Imaginary):
        return True
    if isinstance(node, cst.Assign):
        return any(
            isinstance(one.target, cst.Attribute) and one.target.attr.value in ("grad", "data") for one in node.targets
        )
    full = program.names.full(node)
    call = cst.ensure_type(node, cst.Call)
    if full == "torch.nn.Parameter":
        made = call.args[0].value if call.args else None
        return made is not None and program.names.full(made) not in MAKERS
    if full.rpartition(".")[2] in ("Embedding", "EmbeddingBag", "embedding", "embedding_bag"):
        return len(call.args) > 4 or any(arg.star for arg in call.args)
    return False


def defines(owner: cst.ClassDef | None, name: str) -> bool:
    """Whether a class of the file has a method of its own by this name."""
    return owner is not None and any(
        isinstance(one, cst.FunctionDef) and one.name.value == name for one in owner.body.body
    )
