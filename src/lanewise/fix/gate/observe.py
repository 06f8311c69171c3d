"""Everything that one call of a program does that somebody could notice."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from lanewise.capture.lazy_torch import torch_part
from lanewise.fix.gate.tolerances import error_of
from lanewise.fix.state import State, seed
from lanewise.fix.subject import Subject
from lanewise.fix.telling import told
from lanewise.fix.tensors import (
    Call,
    copy_call,
    drawing,
    flatten,
    map_tensors,
    same_bits,
    sharing,
    tensors_of,
    values_of,
)
from lanewise.fix.torch_types import Tensor
from lanewise.fix.typed_torch import torch

__all__ = ["Observation", "compare_form", "cotangents", "gradient_scale", "observe", "why_not_the_same"]

_pytree: Any = torch_part("torch.utils._pytree")
_reductions: Any = torch_part("torch.multiprocessing.reductions")

_PLAUSIBLE = 0.1
"""Two results that are further apart, in norm, are not the same up to rounding."""

_LAYOUTS = ("contiguous", "expanded", "transposed")

_LARGER, _SMALL_BYTES = 2.0, 1 << 16
"""Memory behind a result: how many times that of the original is too much, and how much never is."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Placed(NamedTuple):
    """How a result lies in memory: its class, strides of dimensions that have any, bytes of all that it keeps; and how it
    is marked."""

    kind: type
    strides: tuple[int, ...]
    storage: int
    marks: tuple[str, ...]


class Names(NamedTuple):
    """Of values that have a name in the program."""

    gradients: list[str]
    buffers: list[str]


class Observation(NamedTuple):
    """One call, observed.

    Attributes:
        outputs: tensors among the outputs, copied. form: structure of the outputs and what is not a tensor in them.
        gradients: of inputs, then parameters; None where there is none.
        inputs: tensors among the arguments after the call. buffers: of the modules after the call.
        shared: which outputs share memory with inputs, what modules hold, and each other.
        carries_grad: which outputs have a graph. touched: whether a parameter was written to, or is another one.
        placed: how outputs lie in memory. kept: which outputs somebody keeps after the caller has let go of them.
        left: attributes of modules that were written, by name; a tensor in them is a value like an output.
        drawn: what tells the state of the random number generators afterwards. hooks: which hooks of parts had an effect.
        given: what the arguments hold beside tensors afterwards. names: of gradients and buffers.
        marks: of arguments, of what modules hold, and of what was left there. written: which arguments were written to.
    """

    outputs: list[Tensor]
    form: tuple[Any, ...]
    gradients: list[Tensor | None]
    inputs: list[Tensor]
    buffers: list[Tensor]
    shared: tuple[tuple[int, int], ...]
    carries_grad: tuple[bool, ...]
    touched: bool
    placed: tuple[Placed, ...]
    kept: tuple[bool, ...]
    left: list[tuple[str, Any]]
    drawn: int
    hooks: tuple[bool, ...]
    given: tuple[Any, ...]
    names: Names
    marks: tuple[tuple[str, ...], ...]
    written: tuple[bool, ...]

    def values(self) -> list[tuple[str, Tensor]]:
        """Every tensor with a name."""
        named = [(f"output {at}", tensor) for at, tensor in enumerate(self.outputs)]
        named += [
            (name, tensor)
            for name, tensor in zip(self.names.gradients, self.gradients, strict=False)
            if tensor is not None
        ]
        named += [(f"argument {at} after the call", tensor) for at, tensor in enumerate(self.inputs)]
        named += list(zip(self.names.buffers, self.buffers, strict=True))
        return named + [(f"attribute {name} after the call", t) for name, one in self.left for t in tensors_of(one)]


def observe(subject: Subject, call: Call, state: State, *, layout: str = "contiguous", draw: int = 0) -> Observation:
    """Run a copy of the call; buffers and random numbers are put back afterwards.

    Args:
        layout: of the gradients that come from above: `contiguous`, `expanded` or `transposed`.
        draw: seed of the random numbers that the program draws.
    """
    copied = copy_call(call)
    parameters = subject.parameters()
    marks = [_mark(parameter) for parameter in parameters]
    held = [*parameters, *subject.buffers(), *(tensor for _, tensor in state.attributes())]
    hooks = _hooks_of_parts(subject)
    effects = [told(hook) for hook in hooks]
    versions = list(map(_version, tensors_of(copied)))
    seed(subject, draw)
    try:
        args, kwargs = copied
        result = subject.entry(*args, **kwargs)
        found = tensors_of(result)
        left = state.written()
        gradients: list[Tensor | None] = []
        if subject.kind == "training":
            roots = [tensor for tensor in (*found, *tensors_of([one for _, one in left])) if tensor.requires_grad]
            wanted = subject.differentiable(copied)
            if roots and wanted:
                back = cotangents(roots, layout)
                gradients = list(torch.autograd.grad(roots, wanted, back, allow_unused=True))
            del roots
        leaves = flatten(result)
        structure = str(_pytree.tree_flatten(result)[1])
        plain = tuple(leaf for leaf in leaves if not isinstance(leaf, torch.Tensor))
        buffers = [*subject.buffers(), *(tensor for _, tensor in state.attributes())]
        seen = Observation(
            outputs=[values_of(tensor) for tensor in found],
            form=(structure, tuple((t.dtype, tuple(t.shape), t.device) for t in found), plain),
            gradients=[None if tensor is None else values_of(tensor) for tensor in gradients],
            inputs=_after(copied, call),
            buffers=[values_of(tensor) for tensor in buffers],
            shared=sharing(found, [*tensors_of(copied), *held]),
            carries_grad=tuple(bool(tensor.requires_grad) for tensor in found),
            touched=marks != [_mark(parameter) for parameter in parameters],
            given=_given(copied),
            placed=tuple(map(_placed, found)),
            kept=(),
            left=[(name, map_tensors(values_of, one)) for name, one in left],
            drawn=state.generators.mark(),
            hooks=tuple(told(hook) != before for hook, before in zip(hooks, effects, strict=True)),
            names=_names(subject, state, copied),
            marks=tuple(map(_marks, (*tensors_of(copied), *held, *tensors_of([one for _, one in left])))),
            written=tuple(a != b for a, b in zip(versions, map(_version, tensors_of(copied)), strict=False)),
        )
        memories = [_memory_of(tensor) for tensor in found]
        del result, found, leaves, gradients, left, args, kwargs, copied, held, buffers
        state.restore()
        return seen._replace(kept=_still_there(memories))
    finally:
        state.restore()


def _names(subject: Subject, state: State, call: Call) -> Names:
    wanted = {id(tensor): at for at, tensor in enumerate(tensors_of(call))}
    named = {id(p): name for p, name in zip(subject.parameters(), subject.named("parameters"), strict=True)}
    gradients = [
        f"gradient of argument {wanted[id(one)]}" if id(one) in wanted else f"gradient of {named[id(one)]}"
        for one in subject.differentiable(call)
    ]
    buffers = [f"buffer {name} after the call" for name in subject.named("buffers")]
    return Names(gradients, buffers + [f"attribute {name} after the call" for name, _ in state.attributes()])


def _mark(parameter: Tensor) -> tuple[Any, ...]:
    """What shows that a parameter was written to, or is not what it was."""
    try:
        where = parameter.data_ptr()
    except (RuntimeError, NotImplementedError):
        where = 0
    return parameter._version, parameter.requires_grad, where, parameter.grad is None


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


_FLAGS = ("is_inference", "is_conj", "is_neg")


def _marks(tensor: Tensor) -> tuple[str, ...]:
    """What a tensor is marked with: by torch, and attributes that somebody has set on it."""
    flags = [name for name in _FLAGS if getattr(tensor, name)()]
    flags += ["retain_grad"] if tensor.retains_grad else []
    return (*flags, *sorted(name for name in getattr(tensor, "__dict__", ()) if not name.startswith("_")))


def _after(call: Call, before: Call) -> list[Tensor]:
    """Values of a call's tensors; those that are what they were before are not copied, as calls may be large."""
    given = tensors_of(before)
    found = tensors_of(call)
    if len(given) != len(found):
        return list(map(values_of, found))
    pairs = zip(found, given, strict=True)
    return [
        b.detach() if not a.dtype.is_complex and same_bits(a.detach(), b.detach()) else values_of(a) for a, b in pairs
    ]


def _given(call: Call) -> tuple[Any, ...]:
    """What arguments hold but for tensors' values, as far as that can be told."""
    shapes = [_shape(one) for one in flatten(call)]
    again = [_shape(one) for one in flatten(call)]
    told_of = tuple([one if one == other else None for one, other in zip(shapes, again, strict=True)])
    return str(_pytree.tree_flatten(call)[1]), told_of


def _placed(tensor: Tensor) -> Placed:
    strides = ()
    if tensor.layout is torch.strided and tensor.numel():
        strides = tuple(n for n, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    try:
        storage = int(tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError):
        storage = 0
    return Placed(type(tensor), strides, storage, _marks(tensor))


def _memory_of(tensor: Tensor) -> Any:
    """A weak reference to a tensor's memory; None where it has none of its own."""
    try:
        return _reductions.StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        return None


def _still_there(memories: Sequence[Any]) -> tuple[bool, ...]:
    """Which of them somebody still holds; what only waits for the garbage collector does not count."""

    def alive() -> tuple[bool, ...]:
        return tuple(memory is not None and not memory.expired() for memory in memories)

    # What a call has made is young: a whole collection takes a third of a second in a process with a compiler in it.
    for generation in (1, 2):
        if not any(alive()):
            break
        gc.collect(generation)
    return alive()


def _hooks_of_parts(subject: Subject) -> list[Any]:
    """Those of the root itself are called around what is exchanged."""
    roots = {id(root) for root in subject.found.modules} if subject.module is not None else set[int]()
    parts = [module for module in subject.every_module() if id(module) not in roots]
    return [hook for module in parts for name in _HOOKS for hook in vars(module).get(name, {}).values()]


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


def gradient_scale(seen: Observation) -> float:
    """Of the largest value among all gradients."""
    return max((float(one.abs().max()) for one in seen.gradients if one is not None and one.numel()), default=0.0)


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
        return "the outputs share memory with inputs, parameters or each other in another way"
    for at, (want, have) in enumerate(zip(expected.placed, found.placed, strict=True)):
        if problem := _otherwise(want, have):
            return f"output {at} {problem}"
    if any(have and not want for want, have in zip(expected.kept, found.kept, strict=True)):
        return "results are kept after the caller has let go of them: a later call may change them"
    if problem := _left_otherwise(expected, found):
        return problem
    if expected.hooks != found.hooks:
        return "hooks of parts are not called as they were"
    if expected.drawn != found.drawn:
        return "other random numbers are drawn"
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


def _otherwise(want: Placed, have: Placed) -> str:
    if want.kind is not have.kind:
        return f"is of class {have.kind.__name__}, not {want.kind.__name__}"
    if want.strides != have.strides:
        return f"lies in memory in another way: strides {list(have.strides)}, not {list(want.strides)}"
    if want.marks != have.marks:
        return f"is marked {_and(have.marks)}, not {_and(want.marks)}"
    if have.storage > max(_LARGER * want.storage, want.storage + _SMALL_BYTES):
        return f"keeps {have.storage:,} bytes alive, not {want.storage:,}"
    return ""


def _and(names: Sequence[str]) -> str:
    return ", ".join(names) or "by nothing"


def _left_otherwise(expected: Observation, found: Observation) -> str:
    want, have = dict(expected.left), dict(found.left)
    if other := [name for name in {**want, **have} if (name in want) != (name in have)]:
        return f"attribute {other[0]} is {'no longer' if other[0] in want else 'now'} written"
    for name, value in want.items():
        if [_shape(one) for one in flatten(value)] != [_shape(one) for one in flatten(have[name])]:
            return f"attribute {name} is another one after the call"
    if any(have and not want for want, have in zip(expected.written, found.written, strict=False)):
        return "arguments are written to, if only with the values that they have"
    if expected.marks != found.marks:
        want, have = next(pair for pair in zip(expected.marks, found.marks, strict=False) if pair[0] != pair[1])
        return f"what arguments or modules hold is marked {_and(have)}, not {_and(want)}"
    return "" if expected.given == found.given else "what the arguments hold beside tensors is another after the call"


def _shape(leaf: Any) -> Any:
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else told(leaf)


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
        return type(a) is type(b) and (bool(a == b) or bool(a != a and b != b))
    except Exception:
        return a is b
