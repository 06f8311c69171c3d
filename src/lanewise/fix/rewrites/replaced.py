"""How a node of the compiler's graph gives way to another, and which may."""

from __future__ import annotations

from typing import Any

__all__ = ["of_one_size", "replace"]


def of_one_size(like: Any) -> bool:
    """Whether what a node makes is a tensor whose size is known, and the same in all calls."""
    return like is not None and all(isinstance(size, int) for size in like.shape)


def replace(graph: Any, node: Any, operator: Any, args: tuple[Any, ...]) -> None:
    """Put a call of `operator` in the place of a node; it is to make the same."""
    with graph.inserting_before(node):
        new = graph.call_function(operator, args)
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
