"""Contexts of a tree as paths of text, to compare and to look for."""

from __future__ import annotations

from lanewise.tree.model import KIND_NAMES, PHASES, Tree

Step = tuple[str, str, str, str]


def paths(tree: Tree) -> dict[tuple[Step, ...], int]:
    """Every context as (kind, phase, name, detail) from its root down, with its row."""
    result: dict[tuple[Step, ...], int] = {}
    for node in range(len(tree)):
        path: list[Step] = []
        at = node
        while at >= 0:
            detail = tree.strings[int(tree.detail[at])]
            path.append((KIND_NAMES[tree.kind[at]], PHASES[tree.phase[at]], tree.label(at), detail))
            at = int(tree.parent[at])
        result[tuple(reversed(path))] = node
    return result


def names(tree: Tree) -> set[str]:
    """Names of all contexts."""
    return {tree.label(node) for node in range(len(tree))}


def calls(tree: Tree, name: str) -> int:
    """How often contexts of a name were entered."""
    return sum(int(tree.metrics["calls"][node]) for node in range(len(tree)) if tree.label(node) == name)


def above(tree: Tree, node: int) -> list[str]:
    """Names from a context up to its root."""
    result: list[str] = []
    while node >= 0:
        result.append(tree.label(node))
        node = int(tree.parent[node])
    return result


def rows(tree: Tree, name: str) -> list[int]:
    """Contexts of a name."""
    return [node for node in range(len(tree)) if tree.label(node) == name]
