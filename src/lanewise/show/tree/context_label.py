"""How a context of the tree is written in one line. All text is untrusted and comes out clean."""

from __future__ import annotations

from lanewise.measure.kernel_names import short_name
from lanewise.show.safe_text import clean, shorten
from lanewise.trace.frames import frame_at
from lanewise.trace.schema import ENGINE_PREFIX
from lanewise.tree.model import NodeKind, Tree

__all__ = ["context_label"]


def context_label(tree: Tree, node: int, limit: int = 120) -> str:
    """`mnist (train.py:102)`, `layer3.0.conv2 (Conv2d)`, `aten::mm`, a short kernel name."""
    name, detail = tree.label(node), tree.strings[int(tree.detail[node])]
    kind = int(tree.kind[node])
    if kind == NodeKind.FRAME:
        frame = frame_at(name, detail)
        if not frame.file:
            return clean(name, limit)
        where = f"{clean(frame.file, 200)}:{frame.line}"
        function = clean(frame.function, 60)
        return f"{function} ({shorten(where, max(limit - len(function) - 3, 12))})"
    if kind == NodeKind.MODULE and detail and detail != name:
        return clean(f"{name} ({detail})", limit)
    if kind == NodeKind.KERNEL:
        return clean(short_name(name, limit), limit)
    if kind == NodeKind.OPERATOR:
        name = name.removeprefix(ENGINE_PREFIX)
        return clean(f"{name} [{detail}]" if detail else name, limit)
    return clean(name, limit)
