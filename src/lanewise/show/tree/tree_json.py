"""Trees and flat views as versioned JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from lanewise.measure.columns import Columns
from lanewise.tree.forest import preorder, subtree_sums
from lanewise.tree.model import COMBINE, KIND_NAMES, METRICS, PHASES, Tree

__all__ = ["SCHEMA", "flat_json", "tree_json"]

SCHEMA = "lanewise.tree/1"


def tree_json(tree: Tree, metric: str = "device", *, view: str = "top-down") -> str:
    """All nodes, the costliest first, parents before children; `parent` is a position in `nodes`, or null.

    Metrics are exclusive; `total_device` and `total_host` and the total of the chosen metric are inclusive. Times in
    ns.
    """
    inclusive = subtree_sums(tree.parent, tree.value(metric))
    order = preorder(tree.parent, np.abs(inclusive))
    position = np.empty(len(tree), dtype=np.int64)
    position[order] = np.arange(len(tree))
    totals = {f"total_{name}": tree.inclusive(name).tolist() for name in ("device", "host")}
    if metric not in COMBINE:
        totals[f"total_{metric}"] = inclusive.tolist()
    stored = {name: values.tolist() for name, values in tree.metrics.items()}
    nodes: list[dict[str, Any]] = []
    for node in order.tolist():
        parent = int(tree.parent[node])
        nodes.append({
            "parent": int(position[parent]) if parent >= 0 else None,
            "kind": KIND_NAMES[int(tree.kind[node])],
            "phase": PHASES[int(tree.phase[node])],
            "name": tree.label(node),
            "detail": tree.strings[int(tree.detail[node])],
            **{name: values[node] for name, values in totals.items()},
            **{name: values[node] for name, values in stored.items()},
        })  # fmt: skip
    return _text({"schema": SCHEMA, "view": view, "metric": metric, "info": _info(tree), "units": _units(),
                  "nodes": nodes})  # fmt: skip


def flat_json(tree: Tree, table: Columns, by: str) -> str:
    """A flat view, all rows."""
    return _text({"schema": SCHEMA, "view": "flat", "by": by, "info": _info(tree), "units": _units(),
                  "rows": table.rows()})  # fmt: skip


def _info(tree: Tree) -> dict[str, Any]:
    return asdict(tree.info) | {"nodes": len(tree)}


def _units() -> dict[str, str]:
    return {name: unit for name, (unit, _) in METRICS.items()}


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
