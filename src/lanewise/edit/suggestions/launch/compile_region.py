"""A function that is a chain of small operations: each reads and writes memory, and is launched by itself."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.analysis.whole_file import TWICE
from lanewise.edit.edit import Edit
from lanewise.edit.only_torch import Operations

__all__ = ["CompileRegion"]

_LEAST, _LEAST_REPEATED = 3, 12
_NOT_COMPILED = (
    "jit", "script", "trace", "export", "onnx", "pickle", "Pool", "Process", "multiprocessing", "DataLoader", "Thread",
    "ThreadPoolExecutor", "ProcessPoolExecutor", "checkpoint", "saved_tensors_hooks", "detect_anomaly",
    "set_detect_anomaly", "TorchDispatchMode", "TorchFunctionMode", "set_default_device", "CUDAGraph", "__torch_function__",
    "sparse", "to_sparse", "view_as_complex", "complex64", "complex128", "cfloat",
)  # fmt: skip
"""What a compiled function cannot do, or not in the same way: to be pickled, traced, differentiated by others."""


class CompileRegion(Edit):
    """Compiles the function: one kernel instead of many.

    Safe where all its calls are in sight and hand over tensors and numbers; not offered where gradients are taken of
    gradients, or a graph is used twice: what is compiled refuses.
    """

    name = "compile-region"
    needs = ("torch",)
    answers = ("LAU101", "LAU102", "LAU103")

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        around = self.names.parents(original_node)
        owner = self.names.owner(original_node)
        in_class = any(isinstance(one, cst.ClassDef) for one in around)
        layer = owner is not None and self.values.is_module_class(owner) and original_node.name.value == "forward"
        if (in_class and not layer) or original_node.decorators or original_node.asynchronous is not None:
            return updated_node
        counted = Operations(self.program)
        original_node.body.visit(counted)
        # Inside of another function there are only single calls to gain from: it has to repeat many.
        nested = any(isinstance(one, cst.FunctionDef) for one in around)
        least = _LEAST_REPEATED if nested else _LEAST
        few = counted.pointwise < least or (counted.products and counted.most == 1)
        if counted.other or not counted.torch or few or self.program.says(TWICE):
            return updated_node
        safe = not layer and counted.unproven == 0 and counted.jumps == 0 and self._is_known(original_node)
        compile_ = self.written("torch.compile", original_node)
        name = owner.name.value if owner is not None else original_node.name.value
        what = f"{name} is a chain of small operations, each launched by itself"
        if not compile_ or not self.offer(original_node, what, safe=safe):
            return updated_node
        return updated_node.with_changes(decorators=[cst.Decorator(decorator=cst.parse_expression(compile_))])

    def _is_known(self, function: cst.FunctionDef) -> bool:
        """Whether everybody who calls the function is in this file, and gives it tensors and numbers."""
        calls = self.names.calls_of(function)
        if not calls or not self.program.closed or self.program.says(_NOT_COMPILED, "hook"):
            return False
        if any(self.tried(call) for call in calls):  # what is compiled says something else in its errors
            return False
        params = [*function.params.posonly_params, *function.params.params, *function.params.kwonly_params]
        given = [self.values.argument(function, call, one.name.value) for call in calls for one in params]
        plain = function.params.star_kwarg is None and not isinstance(function.params.star_arg, cst.Param)
        return plain and all(one is not None and self.values.of(one).what in ("tensor", "number") for one in given)
