"""Lays what was sampled inside of kernels under them: the loops and lines that their time is spent at, and what for.

Samples name a kernel and do not say who launched it, as kernels run side by side while they are taken. So the parts of a
kernel have the same shares of its time in every context that launched it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lanewise.tree.model import KIND_NAMES, METRICS, NodeKind, Tree

__all__ = ["Inside", "Part", "Path", "share_of", "with_insides"]

Part = tuple[str, str]
"""What it is (`loop`, `line` or `stall`, as `KIND_NAMES` has it) and its text, which is untrusted."""
Path = tuple[Part, ...]
Inside = Mapping[Path, float]
"""Shares of a kernel's time by where in it and what for, from the outside in. They add up to at most 1."""


@dataclass(frozen=True, slots=True)
class _Node:
    parent: int
    kernel: int
    part: Part
    device: int


def share_of(tree: Tree, insides: Mapping[str, Inside]) -> float:
    """Share of the device time that is in kernels whose inside is known."""
    known = np.array([text in insides for text in tree.strings], dtype=bool)[tree.name] & (tree.kind == NodeKind.KERNEL)
    return float(tree.metrics["device"][known].sum()) / max(abs(tree.total("device")), 1)


def with_insides(tree: Tree, insides: Mapping[str, Inside]) -> Tree:
    """The tree with parts below its kernels.

    Args:
        tree: of a program.
        insides: by name of a kernel, as the tree has it.

    Returns:
        A tree with the same device time in sum: that of a part lies on it, and what no part has stays on the kernel.
    """
    device = tree.metrics["device"].copy()
    made: list[_Node] = []
    for kernel in np.flatnonzero((tree.kind == NodeKind.KERNEL) & (device != 0)).tolist():
        inside = insides.get(tree.label(kernel))
        if inside:
            parts = _parts(kernel, inside, int(device[kernel]), len(tree) + len(made))
            device[kernel] -= sum(part.device for part in parts)
            made += parts
    return _appended(tree, device, made) if made else tree


def _parts(kernel: int, inside: Inside, whole: int, first: int) -> list[_Node]:
    made: list[_Node] = []
    row_of: dict[Path, int] = {}
    for path, share in inside.items():
        at = kernel
        for level in range(1, len(path) + 1):
            here = path[:level]
            if here not in row_of:
                row_of[here] = first + len(made)
                # Rounded down: what is left over stays on the kernel.
                made.append(_Node(at, kernel, path[level - 1], int(share * whole) if level == len(path) else 0))
            at = row_of[here]
    return made


def _appended(tree: Tree, device: np.ndarray, made: list[_Node]) -> Tree:
    strings = list(tree.strings)
    row_of = {text: row for row, text in enumerate(strings)}
    for node in made:
        text = node.part[1]
        if text not in row_of:
            row_of[text] = len(strings)
            strings.append(text)
    more = {name: np.zeros(len(made), dtype=tree.metrics[name].dtype) for name in METRICS}
    more["device"] = np.array([node.device for node in made], dtype=np.int64)
    return Tree(
        parent=np.append(tree.parent, [node.parent for node in made]),
        kind=np.append(tree.kind, [KIND_NAMES.index(node.part[0]) for node in made]),
        phase=np.append(tree.phase, tree.phase[[node.kernel for node in made]]),
        name=np.append(tree.name, [row_of[node.part[1]] for node in made]),
        detail=np.append(tree.detail, np.zeros(len(made), dtype=np.int64)),
        forward=np.append(tree.forward, np.full(len(made), -1)),
        strings=strings,
        metrics={
            name: np.append(device if name == "device" else values, more[name]) for name, values in tree.metrics.items()
        },
        info=tree.info,
    )
