"""How long warps were in the scopes of a program's Triton kernels, in a terminal and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from lanewise._version import __version__
from lanewise.machine_code.sampled.scopes import ScopedKernel, ScopeTime
from lanewise.show.safe_text import clean

__all__ = ["SCOPES_SCHEMA", "render_scopes", "scopes_json"]

SCOPES_SCHEMA = "lanewise.scopes/1"
_MOST, _UNEVEN = 8, 1.1


def render_scopes(kernels: Sequence[ScopedKernel]) -> RenderableType:
    """One paragraph for each kernel."""
    parts: list[RenderableType] = []
    for kernel in kernels:
        blocks = "1 block" if kernel.blocks == 1 else f"{kernel.blocks:,} blocks"
        parts += [
            Text.assemble((clean(kernel.name, 80), "bold"), f"  {blocks}"),
            Padding(Group(*(Text(_line(scope)) for scope in kernel.scopes[:_MOST])), (0, 0, 1, 2)),
        ]
    return Group(*parts)


def _line(scope: ScopeTime) -> str:
    text = (
        f"{round(100 * scope.share):>3} %  {clean(scope.name, 60)}: {scope.clocks:,.0f} clocks on average, "
        f"{scope.longest:,.0f} at most, {scope.spans:,} times"
    )
    slow, fast = (pick(scope.warps, key=lambda warp: scope.warps[warp]) for pick in (max, min))
    if scope.warps[slow] > _UNEVEN * scope.warps[fast]:
        text += f"; {scope.warps[slow]:,.0f} in warp {slow}, {scope.warps[fast]:,.0f} in warp {fast}"
    return text


def scopes_json(kernels: Sequence[ScopedKernel]) -> str:
    """The same as versioned data; `warps` are mean clocks by number of the warp."""
    data = {
        "schema": SCOPES_SCHEMA,
        "version": __version__,
        "kernels": [
            {"name": one.name, "blocks": one.blocks, "scopes": [asdict(scope) for scope in one.scopes]}
            for one in kernels
        ],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
