"""What `lanewise watch` does in the program's process: watches from before its first line, and tells at its end."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.capture.inside import our_modules
from lanewise.capture.say import say

if TYPE_CHECKING:
    from lanewise.capture.context.watcher import Watcher

__all__ = ["start"]


def start(order: dict[str, Any]) -> None:
    """Begins in the program's process, before its first line; `order` is what `lanewise watch` was told."""
    from lanewise.capture.context.watch import watch

    def log(text: str) -> None:
        if not order["quiet"]:
            say(text)

    out, process = Path(order["out"]), os.getpid()
    watcher = watch(out, **order["options"], log=log)

    def ended() -> None:
        # A second Ctrl-C ends ours, too, and in silence.
        with contextlib.suppress(Exception, KeyboardInterrupt):
            if os.getpid() == process:
                watcher.stop()
                with our_modules():
                    _tell(watcher, out, log)

    # Before the program's own handlers, and so called after them.
    atexit.register(ended)
    watcher.start()


def _tell(watcher: Watcher, out: Path, log: Callable[[str], None]) -> None:
    from lanewise.errors import LanewiseError
    from lanewise.tree.watching.watched_text import watched_lines

    try:
        tree = watcher.tree
    except LanewiseError as error:
        if not watcher.problem:
            log(str(error))
        return
    if tree.info.watched is not None:
        for line in watched_lines(tree.info.watched):
            log(line)
    if watcher.out is not None and watcher.out.exists():
        log(f"{out}: {len(tree):,} contexts, {watcher.out.stat().st_size / 1000:,.0f} kB; next: lanewise explain {out}")
