"""A tree as a Hatchet literal: a JSON list that `GraphFrame.from_literal` takes.

    graph = hatchet.GraphFrame.from_literal(json.load(open("tree.json")))

`time` is exclusive device time and `time (inc)` inclusive, in ns, as Hatchet names them.
"""

from __future__ import annotations

import msgspec

from lanewise.tree.forest import preorder
from lanewise.tree.model import COMBINE, KIND_NAMES, METRICS, PHASES, Tree

__all__ = ["hatchet"]


def hatchet(tree: Tree) -> str:
    """The literal's text. Written without recursion: contexts nest as deeply as the program does."""
    inclusive = {name: tree.inclusive(name).tolist() for name in ("device", "host")}
    exclusive = {name: tree.metrics[name].tolist() for name in METRICS if name not in COMBINE and name != "squares"}
    order = preorder(tree.parent, tree.inclusive("device")).tolist()
    depth = tree.depth.tolist()
    out: list[str] = ["["]
    open_ = -1
    for node in order:
        if depth[node] <= open_:
            out.append("]}" * (open_ - depth[node] + 1) + ",")
        metrics = {
            "time": exclusive["device"][node],
            "time (inc)": inclusive["device"][node],
            "host (inc)": inclusive["host"][node],
            **{name: values[node] for name, values in exclusive.items() if name != "device"},
        }
        frame = {
            "name": tree.label(node), "type": KIND_NAMES[int(tree.kind[node])], "phase": PHASES[int(tree.phase[node])],
        }  # fmt: skip
        out.append(
            f'{{"frame": {msgspec.json.encode(frame).decode()}, "metrics": {msgspec.json.encode(metrics).decode()}, '
            '"children": ['
        )
        open_ = depth[node]
    out.append("]}" * (open_ + 1) + "]")
    return "".join(out)
