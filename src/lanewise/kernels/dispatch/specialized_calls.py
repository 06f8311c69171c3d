"""Calls that were seen before, as code with everything but the addresses filled in.

What an eager call on a small tensor costs is Python: looking at shapes, dtypes, layouts, devices and modes, finding
the compiled kernel, filling in its arguments. After the first call of a kind a `Recent` holds a function generated for
exactly that kind. It asks one question, answered in C++ (`TensorGuards`, the check by which torch.compile recognises
its inputs): are these tensors of the type, dtype, device, sizes, strides and gradient requirement seen before, under
the same dispatch modes (autocast, inference mode, functorch, Python modes)? (Whether gradients are recorded is not
part of that check and is asked where a tensor requires them.) Then it allocates the outputs, reads the
addresses and calls Triton's launcher. Any other answer, an unaligned address, another current device or a profiler
inside Triton gives None, and the caller goes the long way.

Private parts of PyTorch are used where they are found; without them nothing is remembered here and calls are slower.
"""

# Private parts of torch have no types, or change them.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from triton import knobs

from lanewise.kernels.dispatch.eligibility import HITS
from lanewise.kernels.dispatch.launcher import Kernel, Remembered, current_device, raw_stream

__all__ = ["Admitted", "Recent", "Step"]

_MOST = 8
_NONE: tuple[Any, ...] = ()


def _guards(tensors: Sequence[torch.Tensor]) -> Any:
    """The check for these tensors, or None if this PyTorch has none."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        guards = TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(t.shape) for t in tensors],
            dynamic_dims_strides=[list(t.stride()) for t in tensors],
        )
        return guards.check if guards.check(*tensors) else None
    except (ImportError, TypeError, ValueError, RuntimeError):
        return None


def _allocator() -> tuple[Any, str]:
    """An allocation function and the text of its call, given the names of size, stride and dtype."""
    try:
        from torch._C._dynamo.guards import _empty_strided_cuda

        return _empty_strided_cuda, "empty({0}, {1}, {2})"
    except ImportError:
        return torch.empty_strided, "empty({0}, {1}, dtype={2}, device=DEVICE)"


class Admitted:
    """Kinds of tensors that a guard has let pass, told again by the same check: for calls that record gradients."""

    def __init__(self) -> None:
        self._checks: tuple[Any, ...] = ()
        Kernel.derived.add(self)

    def clear(self) -> None:
        self._checks = ()

    def knows(self, *tensors: torch.Tensor | None) -> bool:
        for test in self._checks:  # noqa: SIM110 - a generator costs more than the check
            if test(*tensors):
                return True
        return False

    def admit(self, *tensors: torch.Tensor | None) -> None:
        first: dict[int, int] = {}
        same = [None if t is None else first.setdefault(id(t), i) for i, t in enumerate(tensors)]
        check = _guards([t for i, t in enumerate(tensors) if t is not None and same[i] == i])
        if check is not None:
            names = [f"a{i}" for i in range(len(tensors))]
            tests = [f"{names[i]} is {'None' if j is None else names[j]}" for i, j in enumerate(same) if i != j]
            tests.append(f"check({', '.join(names[i] for i, j in enumerate(same) if i == j)})")
            test = eval(f"lambda {', '.join(names)}: {' and '.join(tests)}", {"check": check})
            self._checks = (test, *self._checks[: _MOST - 1])


class Step(NamedTuple):
    """One launch: its tensors are inputs by number, outputs by the complement of theirs (~0, ~1, ...).

    Numbers beyond what the kernel takes are for a variant that takes more.
    """

    remembered: Remembered | None
    arguments: tuple[int, ...]


class Recent:
    """The generated functions of one public function, by whatever else than tensors a call is given."""

    def __init__(self, name: str, *, counted: bool = True) -> None:
        self.name = name
        self.counted = counted
        self._entries: dict[Hashable, tuple[Any, ...]] = {}
        Kernel.derived.add(self)

    def clear(self) -> None:
        self._entries.clear()

    def get(self, key: Hashable) -> tuple[Any, ...]:
        """Functions to try in turn: each takes the tensors (None where there was none) and answers None or the
        result."""
        return self._entries.get(key, _NONE)

    def keep(
        self,
        key: Hashable,
        inputs: Sequence[torch.Tensor | None],
        outputs: Sequence[torch.Tensor],
        steps: Sequence[Step],
        returned: Sequence[int | None],
    ) -> None:
        """Remember a call that has just been made on `inputs`.

        `outputs` are what it allocated and `returned` says which of them make the result: one index stands for that
        output itself, several for a tuple (None in place of an output that was not asked for).
        """
        first: dict[int, int] = {}
        same = [None if t is None else first.setdefault(id(t), i) for i, t in enumerate(inputs)]
        # The check wants each tensor once: it answers False when it is given one twice.
        check = _guards([t for i, t in enumerate(inputs) if t is not None and same[i] == i])
        if check is None or any(step.remembered is None or step.remembered.bound is None for step in steps):
            return
        needs_grad = any(t is not None and t.requires_grad for t in inputs)
        entry = _write(self.name, self.counted, check, same, needs_grad, outputs, steps, returned)
        self._entries[key] = (entry, *self._entries.get(key, _NONE)[: _MOST - 1])


def _write(
    name: str,
    counted: bool,
    check: Any,
    same: Sequence[int | None],
    needs_grad: bool,
    outputs: Sequence[torch.Tensor],
    steps: Sequence[Step],
    returned: Sequence[int | None],
) -> Any:
    empty, call = _allocator()
    device = outputs[0].device
    space: dict[str, Any] = {
        "check": check,
        "empty": empty,
        "HITS": HITS,
        "DEVICE": device,
        "runtime": knobs.runtime,
        "current_device": current_device,
        "raw_stream": raw_stream,
        "is_grad_enabled": torch.is_grad_enabled,
    }
    lines = [f"def {name}({', '.join(f'a{i}' for i in range(len(same)))}):"]
    tests = [f"a{i} is not {'None' if j is None else f'a{j}'}" for i, j in enumerate(same) if i != j]
    present = [i for i, j in enumerate(same) if i == j]
    tests.append(f"not check({', '.join(f'a{i}' for i in present)})")
    if needs_grad:
        tests.append("is_grad_enabled()")
    tests.append(f"current_device() != {device.index}")
    for hook in ("launch_enter_hook", "launch_exit_hook"):
        space[hook] = getattr(knobs.runtime, hook)
        tests.append(f"runtime.{hook} is not {hook} or {hook}.calls")
    lines += [f"    if {' or '.join(tests)}:", "        return None"]
    lines += [f"    p{i} = a{i}.data_ptr()" for i in present]
    lines += [f"    if ({' | '.join(f'p{i}' for i in present)}) & 15:", "        return None"]
    for i, output in enumerate(outputs):
        space[f"size{i}"], space[f"stride{i}"], space[f"dtype{i}"] = tuple(output.shape), output.stride(), output.dtype
        lines += [f"    o{i} = {call.format(f'size{i}', f'stride{i}', f'dtype{i}')}", f"    q{i} = o{i}.data_ptr()"]
    lines.append(f"    stream = raw_stream({device.index})")
    for number, step in enumerate(steps):
        remembered = step.remembered
        assert remembered is not None
        fixed = {f"h{number}_{i}": value for i, value in enumerate(remembered.head)}
        after = {f"t{number}_{i}": value for i, value in enumerate(remembered.tail)}
        space |= fixed | after
        space[f"launch{number}"] = remembered.bound
        pointers = [f"p{same[i]}" if i >= 0 else f"q{~i}" for i in step.arguments[: remembered.tensors]]
        grid = [str(n) for n in remembered.grid]
        lines.append(f"    launch{number}({', '.join([*grid, 'stream', *fixed, *pointers, *after])})")
    if counted:
        lines.append(f"    HITS[{name!r}] += 1")
    results = ["None" if i is None else f"o{i}" for i in returned]
    lines.append(f"    return {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}")
    exec(compile("\n".join(lines), f"<lanewise {name}>", "exec"), space)
    return space[name]
