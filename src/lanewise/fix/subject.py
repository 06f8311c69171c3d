"""`Subject`: the program to optimize, with everything needed to run it again and again without leaving a mark."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from lanewise.errors import UsageError
from lanewise.fix.guard.program_parts import Found, find_parts, refuse_distributed
from lanewise.fix.tensors import Call, tensors_of, why_not_comparable
from lanewise.fix.typed_torch import torch

__all__ = ["Entry", "Kind", "Subject", "make_subject"]


Kind = Literal["inference", "training", "step"]


class Entry:
    """What `plan` hands out for a function: a callable whose implementation can be exchanged.

    Attributes:
        modules: that the function uses.
    """

    def __init__(self, original: Callable[..., Any], modules: Sequence[Any] = ()) -> None:
        functools.update_wrapper(self, original, updated=())
        self.original = original
        self.modules = list(modules)
        self.implementation = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.implementation(*args, **kwargs)


class Subject:
    """One program.

    Attributes:
        name: class or function name.
        entry: what is called: the module itself, or an `Entry` around a function.
        module: the root module; None for a function.
        found: modules, optimizers and what steps along with them that it uses.
        calls: the recorded calls, at least one.
        kind: `inference` (outputs matter), `training` (outputs and gradients), `step` (what it does to the parameters).
        device: of its work.
        random: whether it draws random numbers. mutates: whether it writes to its arguments. Both are set by the
            correctness gate.
        compiled: what the compiler has been given already, so that the same thing is not compiled twice.
    """

    def __init__(self, entry: Any, module: Any, found: Found, calls: Sequence[Call], kind: Kind) -> None:
        self.entry = entry
        self.module = module
        self.found = found
        self.calls = list(calls)
        self.kind: Kind = kind
        self.random = False
        self.mutates = False
        self.compiled: dict[Any, Any] = {}
        self.device: Any = self._device()

    @property
    def name(self) -> str:
        """Class or function name."""
        return (
            type(self.module).__name__ if self.module is not None else str(getattr(self.entry, "__name__", "callable"))
        )

    @property
    def cuda(self) -> bool:
        """Whether its work is on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def root(self) -> Any:
        """The module that optimizing is about: the root, or the only one that a function uses; None otherwise."""
        if self.module is not None:
            return self.module
        return self.found.modules[0] if len(self.found.modules) == 1 else None

    def every_module(self) -> list[Any]:
        """All modules of all roots, each once."""
        return [module for _, module in self.named_modules()]

    def named_modules(self) -> list[tuple[str, Any]]:
        """All modules of all roots, each once, by the path from its root."""
        # As torch walks them, which takes ten times as long: this is asked for around every call that is checked.
        found: list[tuple[str, Any]] = []
        seen: set[int] = set()
        waiting = [("", root) for root in reversed(self.found.modules)]
        while waiting:
            path, module = waiting.pop()
            if module is None or id(module) in seen:
                continue
            seen.add(id(module))
            found.append((path, module))
            start = f"{path}." if path else ""
            waiting += [(start + name, part) for name, part in reversed(module._modules.items())]
        return found

    def named(self, kind: Literal["parameters", "buffers"]) -> list[str]:
        """Names of all parameters or buffers, in their order."""
        return [name for name, _ in self._held(kind)]

    def parameters(self) -> list[Any]:
        """All parameters, each once."""
        return [tensor for _, tensor in self._held("parameters")]

    def single_precision(self) -> bool:
        """Whether its first parameters or its calls hold tensors of single precision."""
        return any(t.dtype is torch.float32 for t in (*self.parameters()[:50], *tensors_of(self.calls)))

    def buffers(self) -> list[Any]:
        """All buffers, each once."""
        return [tensor for _, tensor in self._held("buffers")]

    def _held(self, kind: Literal["parameters", "buffers"]) -> list[tuple[str, Any]]:
        seen: dict[int, tuple[str, Any]] = {}
        for path, module in self.named_modules():
            start = f"{path}." if path else ""
            for name, tensor in (module._parameters if kind == "parameters" else module._buffers).items():
                if tensor is not None and id(tensor) not in seen:
                    seen[id(tensor)] = start + name, tensor
        return list(seen.values())

    def run(self, call: Call, weights: Sequence[Any] | None = None) -> tuple[Any, list[Any]]:
        """One unit of work: the call and, when training, its gradients.

        Args:
            call: not copied here.
            weights: gradient of each output that has one; ones if None.

        Returns:
            The outputs, and the gradients of inputs and parameters (None where there is none).
        """
        args, kwargs = call
        outputs = self.entry(*args, **kwargs)
        if self.kind != "training":
            return outputs, []
        roots = [tensor for tensor in tensors_of(outputs) if tensor.requires_grad]
        wanted = self.differentiable(call)
        if not roots or not wanted:
            return outputs, []
        back = list(weights) if weights is not None else [torch.ones_like(root) for root in roots]
        return outputs, list(torch.autograd.grad(roots, wanted, back, allow_unused=True))

    def differentiable(self, call: Call) -> list[Any]:
        """What gradients are taken of: inputs, then parameters."""
        inputs = [tensor for tensor in tensors_of(call) if tensor.requires_grad and tensor.is_leaf]
        return inputs + [parameter for parameter in self.parameters() if parameter.requires_grad]

    def wait(self) -> None:
        """Until the device has done everything, on every stream."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def _device(self) -> Any:
        tensors = [*self.parameters()[:1], *tensors_of(self.calls)]
        on_card = [tensor.device for tensor in tensors if tensor.device.type == "cuda"]
        return on_card[0] if on_card else tensors[0].device if tensors else torch.device("cpu")


def make_subject(target: Any, example_inputs: Any) -> Subject:
    """The program that a user handed over.

    Args:
        target: a module or a function.
        example_inputs: arguments of a real call: a tensor, a tuple of positional or a dict of keyword arguments; or a list
            of these for several calls.

    Raises:
        UsageError: the target cannot be called, is wrapped for distributed training, or the inputs do not fit or cannot
            be compared.
    """
    if not callable(target) or isinstance(target, type):
        what = f"the class {target.__name__}: make one" if isinstance(target, type) else type(target).__name__
        raise UsageError(f"optimize() takes a module or a function, not {what}")
    module: Any = target if isinstance(target, torch.nn.Module) else None
    found = Found([target], [], []) if module is not None else find_parts(target)
    refuse_distributed(found)
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(
            "optimize() exchanges forward, which a TorchScript module does not let: optimize the module that it was made "
            "from, or a function that calls it"
        )
    calls = _calls(example_inputs)
    _fits(module.forward if module is not None else target, calls[0], several=isinstance(example_inputs, list))
    held = [tensor for root in found.modules for tensor in (*root.parameters(), *root.buffers())]
    if problem := why_not_comparable([*tensors_of(calls), *held]):
        raise UsageError(f"optimize() compares results: {problem}")
    if any(tensor.is_inference() for tensor in held):
        raise UsageError("weights made under torch.inference_mode() cannot be put back: make the module outside of it")
    entry = module if module is not None else target if isinstance(target, Entry) else Entry(target, found.modules)
    return Subject(entry, module, found, calls, _kind(module, found, calls))


def _kind(module: Any, found: Found, calls: Sequence[Call]) -> Kind:
    if module is None and found.optimizers:
        return "step"
    wants = any(tensor.requires_grad for tensor in tensors_of(calls))
    trains = any(root.training and any(p.requires_grad for p in root.parameters()) for root in found.modules)
    return "training" if torch.is_grad_enabled() and (wants or trains) else "inference"


def _calls(example_inputs: Any) -> list[Call]:
    many = example_inputs if isinstance(example_inputs, list) else [example_inputs]
    if not many:
        raise UsageError("optimize() needs the arguments of at least one real call")
    calls: list[Call] = []
    for one in many:
        if isinstance(one, Mapping):
            calls.append(((), dict(one)))
        else:
            calls.append((tuple(one) if isinstance(one, tuple) else (one,), {}))
    return calls


def _fits(function: Any, call: Call, *, several: bool) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*call[0], **call[1])
    except TypeError as error:
        hint = "; a list stands for several calls: give the arguments of one as a tuple" if several else ""
        raise UsageError(f"example_inputs do not fit the call: {error}{hint}") from None
