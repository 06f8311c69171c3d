"""Everything that one call of a program does that somebody could notice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.gate.tolerances import error_of
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, copy_call, drawing, flatten, same_bits, sharing, tensors_of, values_of

__all__ = ["Observation", "compare_form", "cotangents", "observe", "why_not_the_same"]

torch: Any = torch_part()
_pytree: Any = torch_part("torch.utils._pytree")

_PLAUSIBLE = 0.1
"""Two results that are further apart, in norm, are not the same up to rounding."""

_LAYOUTS = ("contiguous", "expanded", "transposed")


class Observation(NamedTuple):
    """One call, observed.

    Attributes:
        outputs: tensors among the outputs, copied. form: structure of the outputs and what is not a tensor in them.
        gradients: of inputs, then parameters; None where there is none.
        inputs: tensors among the arguments after the call. buffers: of the modules after the call.
        shared: which outputs share memory with inputs and with each other. carries_grad: which outputs have a graph.
        touched: whether a parameter was written to.
    """

    outputs: list[Any]
    form: tuple[Any, ...]
    gradients: list[Any]
    inputs: list[Any]
    buffers: list[Any]
    shared: tuple[tuple[int, int], ...]
    carries_grad: tuple[bool, ...]
    touched: bool

    def values(self) -> list[tuple[str, Any]]:
        """Every tensor with a name."""
        named = [(f"output {at}", tensor) for at, tensor in enumerate(self.outputs)]
        named += [(f"gradient {at}", tensor) for at, tensor in enumerate(self.gradients) if tensor is not None]
        named += [(f"argument {at} after the call", tensor) for at, tensor in enumerate(self.inputs)]
        return named + [(f"buffer {at} after the call", tensor) for at, tensor in enumerate(self.buffers)]


def observe(subject: Subject, call: Call, state: State, *, layout: str = "contiguous", draw: int = 0) -> Observation:
    """Run a copy of the call; buffers and random numbers are put back afterwards.

    Args:
        layout: of the gradients that come from above: `contiguous`, `expanded` or `transposed`.
        draw: seed of the random numbers that the program draws.
    """
    copied = copy_call(call)
    parameters = subject.parameters()
    versions = [parameter._version for parameter in parameters]
    seed(subject, draw)
    try:
        args, kwargs = copied
        result = subject.entry(*args, **kwargs)
        found = tensors_of(result)
        gradients: list[Any] = []
        if subject.kind == "training":
            roots = [tensor for tensor in found if tensor.requires_grad]
            wanted = subject.differentiable(copied)
            if roots and wanted:
                back = cotangents(roots, layout)
                gradients = list(torch.autograd.grad(roots, wanted, back, allow_unused=True))
        leaves = flatten(result)
        structure = str(_pytree.tree_flatten(result)[1])
        plain = tuple(leaf for leaf in leaves if not isinstance(leaf, torch.Tensor))
        return Observation(
            outputs=[values_of(tensor) for tensor in found],
            form=(structure, tuple((t.dtype, tuple(t.shape), t.device) for t in found), plain),
            gradients=[None if tensor is None else values_of(tensor) for tensor in gradients],
            inputs=[values_of(tensor) for tensor in tensors_of(copied)],
            buffers=[values_of(tensor) for tensor in subject.buffers()],
            shared=sharing(found, tensors_of(copied)),
            carries_grad=tuple(bool(tensor.requires_grad) for tensor in found),
            touched=versions != [parameter._version for parameter in parameters],
        )
    finally:
        state.restore()


def cotangents(roots: Sequence[Any], layout: str, dtypes: Sequence[Any] = ()) -> list[Any]:
    """Gradients of the outputs, the same for every arm: random, of the given memory layout; `dtypes`: rounded to these."""
    assert layout in _LAYOUTS
    made: list[Any] = []
    for at, root in enumerate(roots):
        if layout == "expanded":
            made.append(torch.ones((), dtype=root.dtype, device=root.device).expand(root.shape))
            continue
        shape = tuple(reversed(root.shape)) if layout == "transposed" else tuple(root.shape)
        generator = drawing(root.device, 100 + at)
        drawn = torch.randn(shape, generator=generator, device=generator.device)
        value = drawn.to(root.device, dtypes[at] if dtypes else root.dtype).to(root.dtype)
        made.append(value.permute(tuple(reversed(range(value.dim())))) if layout == "transposed" else value)
    return made


def compare_form(expected: Observation, found: Observation) -> str:
    """The first difference besides values, as a sentence; "" if there is none."""
    if expected.form[0] != found.form[0]:
        return "the outputs have another structure"
    for at, (want, have) in enumerate(zip(expected.form[1], found.form[1], strict=True)):
        if want != have:
            return f"output {at} is {_described(have)} instead of {_described(want)}"
    if pair := _different(expected, found):
        return f"a value among the outputs that is not a tensor differs: {_short(pair[1])} instead of {_short(pair[0])}"
    if expected.shared != found.shared:
        return "the outputs share memory with inputs or each other in another way"
    if expected.carries_grad != found.carries_grad:
        return "other outputs carry a graph for the backward pass"
    if expected.touched != found.touched:
        return "parameters are written to" if found.touched else "parameters are no longer written to"
    missing = [
        at
        for at, (a, b) in enumerate(zip(expected.gradients, found.gradients, strict=False))
        if (a is None) != (b is None)
    ]
    if missing or len(expected.gradients) != len(found.gradients):
        return "gradients are missing" if missing else "there are gradients of other tensors"
    return ""


def why_not_the_same(first: Observation, again: Observation) -> str:
    """Why two runs with the same arguments and random numbers cannot be compared, "" if they can."""
    if first.form[:2] != again.form[:2]:
        return "the same call gives results of another structure or other shapes each time"
    if (pair := _different(first, again)) is None:
        return _moved(first, again)
    value = pair[0]
    if type(value).__eq__ is object.__eq__ or not isinstance(value, Hashable):
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        return f"what is returned holds a {kind}, whose value cannot be told; return tensors, or dataclasses of them"
    return f"the same call gives {_short(value)} first and {_short(pair[1])} then"


def _moved(first: Observation, again: Observation) -> str:
    """The first output that is another one in the second run, by more than an order of additions that changes explains."""
    for at, (a, b) in enumerate(zip(first.outputs, again.outputs, strict=True)):
        if same_bits(a, b) or (a.dtype.is_floating_point and error_of(b, a).norm <= _PLAUSIBLE):
            continue
        return f"output {at} of the same call is another one each time, as the program keeps what cannot be put back"
    return ""


def _different(expected: Observation, found: Observation) -> tuple[Any, Any] | None:
    """The first value that is no tensor and differs, as it was and as it is; None if there is none.

    How many there are differs only after a first one that does: an object's form comes before what it holds.
    """
    pairs = zip(expected.form[2], found.form[2], strict=False)
    return next(((a, b) for a, b in pairs if not _equal(a, b)), None)


def _short(value: Any) -> str:
    return f"{' '.join(repr(value).split()):.60}"


def _described(form: tuple[Any, ...]) -> str:
    dtype, shape, device = form
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) or bool(a != a and b != b)
    except Exception:
        return a is b
