"""A chain of pointwise operations as one kernel: each input read once, the result written once.

    swiglu = pointwise(lambda gate, up: torch.nn.functional.silu(gate) * up)
    y = swiglu(gate, up)

The expression (a function, or an fx GraphModule such as a subgraph cut from a model) is traced with torch.fx and a
Triton kernel is generated from the graph. Inputs are fp32, fp16, bf16 or bool tensors of any strides that broadcast
together, up to four dimensions after those that lie together in memory are merged; numbers in the expression become
literals. Arithmetic is fp32 from the loads to the one rounding at the end, so a half-precision chain is closer to the
exact result than eager, which rounds after each operator (class N: not bit-equal to eager). `dropout` draws from
Philox by element index and the `seed` given in the call. An operation that is not in the table raises
`UnsupportedError` when the chain is built, not at some later call.

Bytes: the distinct elements of each input plus the output; a chain of k operators moves 2/(k+1) or less of what eager
moves. Chains are for inference: a call that needs gradients runs the original expression (and is counted).
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import hashlib
import inspect
import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import triton
import triton.language as tl

from lanewise.errors import UsageError
from lanewise.kernels import activations
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.eligibility import compiling, eager, fell_back, hit, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch
from lanewise.kernels.dispatch.specialized_calls import Recent, Step

__all__ = ["Chain", "PointBlocks", "UnsupportedError", "pointwise"]


@dataclass(frozen=True, slots=True)
class PointBlocks:
    """Elements and warps of a program; `stream` marks loads and stores as not worth keeping in L2."""

    block: int
    warps: int
    stream: bool = False


class UnsupportedError(UsageError):
    """The expression holds an operation that a pointwise kernel cannot be generated for."""


# Operation -> expression over its operands. Both the function and the tensor method of that name are accepted.
_OPS: dict[str, str] = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "abs": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "reciprocal": "(1.0 / {0})",
    "square": "({0} * {0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "sigmoid": "sigmoid({0})",
    "tanh": "tanh({0})",
    "relu": "relu({0})",
    "silu": "silu({0})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "where": "tl.where({0} != 0, {1}, {2})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "float": "{0}",
    "contiguous": "{0}",
    "clone": "{0}",
}
_ALIASES = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "iadd": "add",
    "imul": "mul",
    "isub": "sub",
    "itruediv": "div",
}
_COMPUTE = {torch.float32, torch.float16, torch.bfloat16, torch.bool}
_TRITON_TYPE = {torch.float32: "tl.float32", torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16"}


def _literal(value: float | int | bool) -> str:
    number = float(value)
    if math.isnan(number):
        return "float('nan')"
    if math.isinf(number):
        return "float('inf')" if number > 0 else "float('-inf')"
    return repr(number)


class _Body:
    """The statements of the kernel between loads and store, generated from the graph once."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.inputs: list[str] = []
        self.lines: list[str] = []
        self.result = ""
        self.operations = 0
        self.draws = 0
        self._names: dict[torch.fx.Node, str] = {}
        for node in graph.nodes:
            self._visit(node)

    def _visit(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self._names[node] = f"in{len(self.inputs)}"
            self.inputs.append(node.name)
        elif node.op == "output":
            (result,) = node.args
            if not isinstance(result, torch.fx.Node):
                raise UnsupportedError("a pointwise chain returns one tensor")
            self.result = self._names[result]
        elif node.op in ("call_function", "call_method"):
            name = f"v{len(self._names)}"
            self.lines.append(f"{name} = {self._expression(node)}")
            self._names[node] = name
            self.operations += 1
        else:
            raise UnsupportedError(f"a pointwise chain has no {node.op} ({node.target})")

    def _operand(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self._names[value]
        if isinstance(value, int | float):
            return _literal(value)
        raise UnsupportedError(f"{value!r} is neither a tensor nor a number")

    def _expression(self, node: torch.fx.Node) -> str:
        target = node.target
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        name = name.strip("_")
        name = _ALIASES.get(name, name)
        args, kwargs = list(node.args), dict(node.kwargs)
        if name == "gelu":
            kind = kwargs.pop("approximate", args[1] if len(args) > 1 else "none")
            self._only(name, kwargs)
            return f"{'gelu_tanh' if kind == 'tanh' else 'exact_gelu'}({self._operand(args[0])})"
        if name == "dropout":
            return self._dropout(args, kwargs)
        if name in ("to", "type"):
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
            if dtype not in _TRITON_TYPE:
                raise UnsupportedError(f"to({dtype}) inside a pointwise chain")
            return f"{self._operand(args[0])}.to({_TRITON_TYPE[dtype]}).to(tl.float32)"
        if name in ("half", "bfloat16"):
            kind = "tl.float16" if name == "half" else "tl.bfloat16"
            return f"{self._operand(args[0])}.to({kind}).to(tl.float32)"
        if name == "pow":
            return self._power(args)
        if name == "rsub":
            args, name = [args[1], args[0]], "sub"
        if name == "clamp":
            return self._clamp(args, kwargs)
        if name in ("add", "sub") and "alpha" in kwargs:
            alpha = kwargs.pop("alpha")
            sign = "+" if name == "add" else "-"
            return f"({self._operand(args[0])} {sign} {self._operand(alpha)} * {self._operand(args[1])})"
        if name in ("relu", "silu"):
            kwargs.pop("inplace", None)
            args = args[:1]
        if name not in _OPS:
            raise UnsupportedError(f"{name} is not a pointwise operation that a kernel can be generated for")
        self._only(name, kwargs)
        template = _OPS[name]
        wanted = (template.count("{1}") and (3 if "{2}" in template else 2)) or 1
        if len(args) != wanted:
            raise UnsupportedError(f"{name} with {len(args)} operands")
        operands = [self._operand(arg) for arg in args]
        if not any(isinstance(arg, torch.fx.Node) for arg in args):
            raise UnsupportedError(f"{name} of numbers only")
        return template.format(*operands)

    def _only(self, name: str, kwargs: dict[str, Any]) -> None:
        if any(value is not None for value in kwargs.values()):
            raise UnsupportedError(f"{name} with {', '.join(kwargs)}")

    def _power(self, args: list[Any]) -> str:
        base, exponent = args
        x = self._operand(base)
        if isinstance(exponent, int | float) and float(exponent) == int(exponent) and 1 <= abs(exponent) <= 8:
            product = "(" + " * ".join([x] * int(abs(exponent))) + ")"
            return product if exponent > 0 else f"(1.0 / {product})"
        if exponent == 0.5:
            return f"tl.sqrt({x})"
        raise UnsupportedError(f"pow with exponent {exponent!r}")

    def _clamp(self, args: list[Any], kwargs: dict[str, Any]) -> str:
        x = self._operand(args[0])
        low = kwargs.get("min", args[1] if len(args) > 1 else None)
        high = kwargs.get("max", args[2] if len(args) > 2 else None)
        # NaN compares false both times and stays.
        if low is not None:
            x = f"tl.where({x} < {self._operand(low)}, {self._operand(low)}, {x})"
        if high is not None:
            x = f"tl.where({x} > {self._operand(high)}, {self._operand(high)}, {x})"
        return f"({x})"

    def _dropout(self, args: list[Any], kwargs: dict[str, Any]) -> str:
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        x = self._operand(args[0])
        if not training or p == 0:
            return x
        if not 0 < p < 1:
            raise UnsupportedError(f"dropout with p={p}")
        keep = f"(tl.rand(seed + {self.draws}, index.to(tl.uint32)) >= {_literal(p)})"
        self.draws += 1
        return f"tl.where({keep}, {x} * {_literal(1.0 / (1.0 - p))}, 0.0)"


def _merged(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Merge neighbouring dimensions that every operand steps through as one. Returns sizes and strides per operand."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(step[-1] == stride[axis] * size for step, stride in zip(steps, strides, strict=True)):
            sizes[-1] *= size
            for step, stride in zip(steps, strides, strict=True):
                step[-1] = stride[axis]
        else:
            sizes.append(size)
            for step, stride in zip(steps, strides, strict=True):
                step.append(stride[axis])
    return sizes, steps


def _source(body: _Body, sizes: list[int], steps: list[list[int]], out: str, wide: bool, kinds: list[bool]) -> str:
    """Python source of the kernel for one geometry. Inner sizes and strides are literals: they belong to the model."""
    lines = ["@triton.jit", "def lanewise_chain("]
    lines += [f"    p{i}," for i in range(len(steps))]
    lines += ["    out_ptr,", "    n,", "    seed,", "    BLOCK: tl.constexpr,", "    POLICY: tl.constexpr,", "):"]
    start = "tl.program_id(0).to(tl.int64)" if wide else "tl.program_id(0)"
    lines += [f"    index = {start} * BLOCK + tl.arange(0, BLOCK)", "    inside = index < n"]
    dense: list[int] = []
    step = 1
    for size in reversed(sizes):
        dense.insert(0, step)
        step *= size
    needs_axes = any(s not in (dense, [0] * len(sizes)) for s in steps)
    if needs_axes:
        rest = "index"
        for axis in range(len(sizes) - 1, 0, -1):
            lines.append(f"    i{axis} = {rest} % {sizes[axis]}")
            lines.append(f"    r{axis} = {rest} // {sizes[axis]}")
            rest = f"r{axis}"
        lines.append(f"    i0 = {rest}")
    for number, strides in enumerate(steps):
        convert = " != 0" if kinds[number] else ".to(tl.float32)"
        if not any(strides):
            lines.append(f"    in{number} = tl.load(p{number}){convert}")
            continue
        if strides == dense:
            at, hint = "index", ", eviction_policy=POLICY"
        else:
            at = " + ".join(f"i{axis} * {stride}" for axis, stride in enumerate(strides) if stride)
            hint = ""
        lines.append(f"    in{number} = tl.load(p{number} + ({at}), mask=inside, other=0{hint}){convert}")
    lines += [f"    {line}" for line in body.lines]
    lines.append(f"    result = {body.result}")
    if any(any(strides) for strides in steps):
        lines.append(f"    tl.store(out_ptr + index, result.to({out}), mask=inside, eviction_policy=POLICY)")
    else:
        lines.append(f"    tl.store(out_ptr + index, (result + index * 0).to({out}), mask=inside)")
    return "\n".join(lines) + "\n"


_KERNELS: dict[str, Kernel] = {}


def _kernel(source: str) -> Kernel:
    """The kernel of that source; Triton reads the source of a function back through `linecache`."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    if digest not in _KERNELS:
        filename = f"<lanewise chain {digest}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        space: dict[str, Any] = {
            "triton": triton,
            "tl": tl,
            "__name__": f"lanewise_chain_{digest}",
            **{
                name: getattr(activations, name)
                for name in ("sigmoid", "tanh", "relu", "silu", "exact_gelu", "gelu_tanh")
            },
        }
        exec(compile(source, filename, "exec"), space)
        _KERNELS[digest] = Kernel(space["lanewise_chain"])
    return _KERNELS[digest]


class Chain:
    """A pointwise expression and the kernels generated for the geometries it was called with."""

    def __init__(self, expression: Callable[..., torch.Tensor] | torch.fx.GraphModule) -> None:
        if not isinstance(expression, torch.nn.Module) and not inspect.isfunction(expression):
            raise UnsupportedError(f"a chain is traced from a Python function: lambda x: {expression}(x)")
        self.expression = expression
        module = expression if isinstance(expression, torch.fx.GraphModule) else torch.fx.symbolic_trace(expression)
        self._body = _Body(module.graph)
        self.inputs = list(self._body.inputs)
        self.operations = self._body.operations
        self.name = getattr(expression, "__name__", "chain")
        self._prepared: dict[tuple[Any, ...], tuple[Kernel, torch.Size, torch.dtype, Callable[[], Launch]]] = {}
        self._generation = tuning.generation
        self._recent = Recent("pointwise")

    def __repr__(self) -> str:
        return f"<Chain of {self.operations} operations over {', '.join(self.inputs)}>"

    def __call__(self, *tensors: torch.Tensor, seed: int = 0) -> torch.Tensor:
        """Evaluate on the tensors; `seed` feeds dropout (same seed, same mask, whatever the launch)."""
        if not compiling() and len(tensors) == len(self.inputs):
            for quick in self._recent.get(None):
                again = quick(*tensors)
                if again is not None:
                    return again
        key = tuple([(t.shape, t.is_contiguous() or t.stride(), t.dtype, t.device, type(t)) for t in tensors])
        if self._generation != tuning.generation:
            self._prepared.clear()
            self._generation = tuning.generation
        prepared = self._prepared.get(key)
        if prepared is None or not eager() or (torch.is_grad_enabled() and wants_grad(*tensors)):
            refused = self._refuse(tensors)
            if refused is not None:
                fell_back("pointwise", refused)
                return self.expression(*tensors)
            prepared = self._prepare(tensors)
            self._prepared[key] = prepared
        kernel, shape, dtype, launch = prepared
        hit("pointwise")
        out = torch.empty(shape, dtype=dtype, device=tensors[0].device)
        if out.numel():
            if self._body.draws:
                what = launch()
                scalars = (what.scalars[0], seed)
                kernel((key, seed), (*tensors, out), lambda: Launch(what.grid, scalars, what.meta, what.num_warps))
            else:
                remembered = kernel(key, (*tensors, out), launch)
                order = (*range(len(tensors)), ~0)
                self._recent.keep(None, tensors, (out,), [Step(remembered, order)], (0,))
        return out

    def _refuse(self, tensors: tuple[torch.Tensor, ...]) -> str | None:
        if len(tensors) != len(self.inputs):
            raise UsageError(
                f"the chain takes {', '.join(self.inputs)}: {len(self.inputs)} tensors, got {len(tensors)}"
            )
        if not eager():
            return "traced: the compiler fuses the expression itself"
        if wants_grad(*tensors):
            return "needs gradients"
        device = tensors[0].device
        for tensor in tensors:
            if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
                return "tensor subclass"
            if tensor.dtype not in _COMPUTE:
                return "dtype"
            if tensor.device != device:
                return "several devices"
        if device.type != "cuda" and not INTERPRETED:
            return "cpu tensor"
        shape = torch.broadcast_shapes(*[t.shape for t in tensors])
        if len(_merged(shape, [t.expand(shape).stride() for t in tensors])[0]) > 4:
            return "more than four dimensions that do not lie together"
        return None

    def _prepare(
        self, tensors: tuple[torch.Tensor, ...]
    ) -> tuple[Kernel, torch.Size, torch.dtype, Callable[[], Launch]]:
        with torch.device("meta"):
            result = self.expression(*[torch.empty(t.shape, dtype=t.dtype) for t in tensors])
        shape, dtype = result.shape, result.dtype
        if dtype not in _TRITON_TYPE and dtype != torch.bool:
            raise UnsupportedError(f"a pointwise chain with a result of {dtype}")
        strides = [t.expand(shape).stride() for t in tensors]
        sizes, steps = _merged(tuple(shape), strides)
        extent = max([shape.numel(), *(sum((n - 1) * s for n, s in zip(sizes, step, strict=True)) for step in steps)])
        kinds = [t.dtype == torch.bool for t in tensors]
        out = _TRITON_TYPE.get(dtype, "tl.int1")
        source = _source(self._body, sizes, steps, out, extent >= 2**31 - 65536, kinds)
        kernel = _kernel(source)
        n = shape.numel()
        default = PointBlocks(2048 if self.operations > 16 else 1024, 4)
        cut = tuning.pick("pointwise", (max(t.element_size() for t in tensors), len(tensors)), default)
        launch = Launch(
            (-(-n // cut.block),),
            (n, 0),
            {"BLOCK": cut.block, "POLICY": "evict_first" if cut.stream else ""},
            cut.warps,
        )
        return kernel, shape, dtype, lambda: launch


def pointwise(expression: Callable[..., torch.Tensor] | torch.fx.GraphModule) -> Chain:
    """Build a chain from an expression over tensors or from an fx graph; usable as a decorator."""
    return Chain(expression)
