"""A tree in the file format of speedscope: one profile of device time, one of host time."""

from __future__ import annotations

from typing import Any

import msgspec

from lanewise._version import __version__
from lanewise.show.safe_text import clean
from lanewise.show.tree.collapsed import stacks
from lanewise.trace.frames import frame_at
from lanewise.tree.model import NodeKind, Tree

__all__ = ["speedscope"]

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"device": "nanoseconds", "host": "nanoseconds", "bytes": "bytes", "allocated": "bytes"}
_TITLES = {"device": "device time", "host": "host time"}


def speedscope(tree: Tree, metrics: tuple[str, ...] = ("device", "host")) -> str:
    """The file's text. Contexts of equal text are one frame; weights are exclusive, as the format wants them."""
    frames: list[dict[str, Any]] = []
    frame_of_key: dict[tuple[int, int, int], int] = {}
    frame_of_node: list[int] = []
    columns = zip(tree.kind.tolist(), tree.name.tolist(), tree.detail.tolist(), strict=True)
    for kind, name, detail in columns:
        key = (kind, name, detail)
        if key not in frame_of_key:
            frame_of_key[key] = len(frames)
            frames.append(_frame(kind, tree.strings[int(name)], tree.strings[int(detail)]))
        frame_of_node.append(frame_of_key[key])
    profiles: list[dict[str, Any]] = []
    for metric in metrics:
        samples: list[list[int]] = []
        weights: list[int] = []
        for path, value in stacks(tree, metric):
            samples.append([frame_of_node[node] for node in path])
            weights.append(value)
        if samples or metric == metrics[0]:
            profiles.append({
                "type": "sampled", "name": _TITLES.get(metric, metric), "unit": _UNITS.get(metric, "none"),
                "startValue": 0, "endValue": sum(weights), "samples": samples, "weights": weights,
            })  # fmt: skip
    document = {
        "$schema": _SCHEMA, "exporter": f"lanewise@{__version__}", "name": clean(tree.info.source, 200) or "lanewise",
        "activeProfileIndex": 0, "shared": {"frames": frames}, "profiles": profiles,
    }  # fmt: skip
    return msgspec.json.encode(document).decode()


def _frame(kind: int, name: str, detail: str) -> dict[str, Any]:
    if kind == NodeKind.FRAME:
        parsed = frame_at(name, detail)
        if parsed.file:
            return {"name": parsed.function, "file": parsed.file, "line": parsed.line}
    if kind == NodeKind.MODULE and detail and detail != name:
        return {"name": f"{name} ({detail})"}
    return {"name": name}
