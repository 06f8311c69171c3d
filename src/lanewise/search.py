"""Where lanewise looks for what it imports: a `click.py` of the user's is nothing to it, and stays theirs."""

import os
import sys

__all__ = ["installed_first"]


def installed_first(*last: str) -> list[str]:
    """`sys.path` with the folders of PYTHONPATH, and those given, behind what is installed."""
    added = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}
    added |= {os.path.abspath(path) for path in last}
    return sorted(sys.path, key=lambda path: os.path.abspath(path) in added)
