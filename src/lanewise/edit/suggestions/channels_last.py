"""Convolutions in NCHW, which their libraries convert to channels-last and back."""

from __future__ import annotations

import libcst as cst

from lanewise.edit.edit import Edit, text_of

__all__ = ["ChannelsLast"]


class ChannelsLast(Edit):
    """Puts a model with convolutions into channels-last where it is made; images follow its weights.

    Dropout draws its numbers in the order of memory: there other elements are dropped with the same seed.
    """

    name = "channels-last"
    needs = ("Conv2d(",)
    answers = ("KER107", "MEM104")

    def __init__(self) -> None:
        super().__init__()
        self._active = self._drops = False
        self._called: set[str] = set()

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        text = text_of(node)
        used = _Called()
        node.visit(used)
        self._active, self._drops = "Conv2d(" in text, "dropout" in text.lower()
        self._called = used.names - used.converted

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        line = original_node.body[0] if len(original_node.body) == 1 else None
        if not self._active or not isinstance(line, cst.Assign) or not isinstance(line.targets[0].target, cst.Name):
            return updated_node
        name, value = line.targets[0].target.value, text_of(line.value)
        is_model = ("Sequential(" in value or ".to(" in value or ".cuda(" in value) and "torch.rand" not in value
        if name not in self._called or not is_model or "channels_last" in value or not isinstance(line.value, cst.Call):
            return updated_node
        self._called.discard(name)
        what = f"{name} convolves in NCHW; libraries convert to channels-last and back"
        self.note(original_node, what, safe=not self._drops)
        return cst.FlattenSentinel(
            [updated_node, cst.parse_statement(f"{name} = {name}.to(memory_format=torch.channels_last)")]
        )


class _Called(cst.CSTVisitor):
    """Names that are called with arguments: a model, among others; and those that are in channels-last already."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.converted: set[str] = set()

    def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
        if isinstance(node.targets[0].target, cst.Name) and "channels_last" in text_of(node.value):
            self.converted.add(node.targets[0].target.value)

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        if isinstance(node.func, cst.Name) and node.args:
            self.names.add(node.func.value)
