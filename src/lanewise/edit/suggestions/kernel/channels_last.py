"""Convolutions in NCHW, which their libraries convert to channels-last and back."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from lanewise.edit.analysis.imported_names import text_of
from lanewise.edit.analysis.known_value import Value
from lanewise.edit.analysis.whole_file import TWICE
from lanewise.edit.edit import Edit
from lanewise.edit.torch_names import ELEMENTWISE, KEEP_RANK, LAYERS, MAKERS, RANDOM, REDUCTIONS, words

__all__ = ["ChannelsLast"]

_CONV = "torch.nn.Conv2d"
_OTHER_RANKS = (
    "Conv1d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv3d",
    "conv1d",
    "conv3d",
)
_LAYOUT = (
    "view", "view_as", "stride", "is_contiguous", "as_strided", "data_ptr", "numpy", "storage", "untyped_storage",
    "storage_offset", "set_", "resize_", "ravel", "view_as_complex", "view_as_real", "tobytes", "LBFGS", "Unfold",
    "parameters_to_vector", "vector_to_parameters", "spectral_norm", "weight_norm", "prune", "jit", "export", "onnx",
    "contiguous_format", "preserve_format", "init", "is_non_overlapping_and_dense", "share_memory_", "named_buffers",
)  # fmt: skip
"""Words of programs that may notice how tensors are laid out, or fail for it."""
_DRAWS = ("xavier", "kaiming", "orthogonal", "normal_", "uniform_", "bernoulli_", "trunc_normal_", "RReLU")
_LAYERS = LAYERS | {"torch.nn.Sequential", "torch.nn.ModuleList"}


class ChannelsLast(Edit):
    """Puts a model with convolutions into channels-last where it is made; images follow its weights.

    Results are laid out in the same way: `.view` fails on them. What draws random numbers in the order of memory, such as
    dropout, draws others for each element. Weights of five dimensions cannot be laid out so at all.
    """

    name = "channels-last"
    needs = ("Conv2d",)
    answers = ("KER107", "MEM104")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        line = original_node.body[0] if len(original_node.body) == 1 else None
        if not isinstance(line, cst.Assign) or len(line.targets) != 1 or not isinstance(line.value, cst.Call):
            return updated_node
        target = line.targets[0].target
        if not isinstance(target, cst.Name) or not self._is_called(target):
            return updated_node
        model = self.values.of(line.value)
        if model.what != "module" or not self._convolves(model) or self._laid_out(target):
            return updated_node
        if self.program.says(("Conv3d", "ConvTranspose3d", "LazyConv3d", "conv3d")):
            return updated_node
        layout = self.written("torch.channels_last", original_node)
        what = f"{target.value} convolves in NCHW; libraries convert to channels-last and back"
        if not layout or not self.offer(original_node, what, safe=self._blind(model)):
            return updated_node
        to = cst.parse_statement(f"{target.value} = {target.value}.to(memory_format={layout})")
        return cst.FlattenSentinel([updated_node, to])

    def _is_called(self, name: cst.Name) -> bool:
        calls = [self.names.parent(read) for read in self.names.reads(name)]
        return any(isinstance(one, cst.Call) and isinstance(one.func, cst.Name) and one.args for one in calls)

    def _laid_out(self, name: cst.Name) -> bool:
        """Whether a statement for this name alone puts it in channels-last already."""
        writes = [one.node for one in self.names.writes(name) or []]
        return any(
            "channels_last" in text_of(one.value)
            for one in writes
            if isinstance(one, cst.Assign) and isinstance(one.targets[0].target, cst.Name)
        )

    def _convolves(self, model: Value) -> bool:
        """Whether a convolution is among what a module is made of, or in a class that it may be made of."""
        if model.own is not None or self._stars(model):
            return any(self.names.full(one) == _CONV for one in m.findall(self.names.module, m.Call()))
        return model.made is not None and any(self.names.full(one) == _CONV for one in m.findall(model.made, m.Call()))

    def _stars(self, model: Value) -> bool:
        return model.made is not None and any(arg.star or isinstance(arg.value, cst.Name) for arg in model.made.args)

    def _blind(self, model: Value) -> bool:
        """Whether nothing in the file can tell how results are laid out."""
        if not self.program.closed or self.program.says(_LAYOUT, *_DRAWS, "ropout", "hook"):
            return False
        if self.program.says((*_OTHER_RANKS, *TWICE)) or self.program.writes_in_place():
            return False
        calls = [one for one in m.findall(self.names.module, m.Call()) if isinstance(one, cst.Call)]
        return all(self._common(one) for one in calls)

    def _common(self, call: cst.Call) -> bool:
        """Whether a call of torch is one of layers, of operations that do not draw, or of what holds no tensor."""
        full = self.names.full(call)
        last = full.rpartition(".")[2]
        if not full.startswith("torch."):
            return last not in RANDOM
        if full in MAKERS:
            # What is as large as something else is drawn in the order of that.
            return not (last.endswith("_like") and last.startswith("rand"))
        if last in RANDOM:
            return False
        layer = full in _LAYERS or full.startswith(("torch.optim.", "torch.cuda.", "torch.utils."))
        return layer or full in ELEMENTWISE | KEEP_RANK | REDUCTIONS or last in _HARMLESS


_HARMLESS = words(
    "manual_seed no_grad inference_mode enable_grad device Parameter compile set_num_threads device_count autocast "
    "set_float32_matmul_precision synchronize allclose equal save isnan all any"
)
