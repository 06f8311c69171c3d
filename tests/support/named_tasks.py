"""Tasks for executors: what is asked of them is in the name."""

from __future__ import annotations

import os
import sys


def echo(name: str, cache: bool) -> bytes:
    """The name, and whether copies are kept; ends the process over some names."""
    if name.startswith("dies"):
        os._exit(9)
    if name.startswith("prints"):
        print("a line that is no answer")
        sys.stdout.flush()
    return f"{name} {cache}".encode()
