"""What `torch.compile` says about itself: graph breaks, graphs it could not capture, the limit of compilations."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

__all__ = ["compiler_counts", "compiler_notes"]

_LONGEST = 160


def compiler_counts() -> Counter[tuple[str, str]]:
    """The compiler's own counters of what went less than well; empty where no compiler was loaded."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return Counter()
    found: Counter[tuple[str, str]] = Counter()
    for reason, count in utils.counters.get("graph_break", {}).items():
        found["graph break", str(reason)] = int(count)
    for name in ("recompile_limit", "unimplemented"):
        for reason, count in utils.counters.get(name, {}).items():
            found[name.replace("_", " "), str(reason)] = int(count)
    skips = utils.counters.get("inductor", {}).get("cudagraph_skips", 0)
    if skips:
        found["CUDA graph not captured", ""] = int(skips)
    return found


def compiler_notes(before: Counter[tuple[str, str]]) -> list[str]:
    """One line for each thing that was counted since."""
    new = compiler_counts() - before
    return [
        f"{count} times: {what}" + (f" ({' '.join(reason.split())[:_LONGEST]})" if reason else "")
        for (what, reason), count in new.items()
    ]
