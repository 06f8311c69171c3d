"""Callbacks that do nothing, compiled as the collector is: the floor under everything that looks at operators."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lanewise.capture.context import native_build as build

__all__ = ["compiled", "load"]

_NAME = "lanewise_empty"


def compiled() -> Path:
    """The module's file, built on first use (half a minute)."""
    recipe = build.make_recipe()
    path = Path(tempfile.gettempdir()) / f"{_NAME}-{recipe.key}.so"
    if not path.exists():
        include = [word for folder in recipe.include for word in ("-isystem", folder)]
        link = [word for folder in recipe.link for word in ("-L", folder)]
        source = str(Path(__file__).with_name("empty.cpp"))
        words = [
            recipe.compiler,
            "-std=c++17",
            "-shared",
            *recipe.flags,
            *include,
            source,
            *link,
            "-ltorch_cpu",
            "-lc10",
        ]
        partial = path.with_suffix(f".{os.getpid()}")
        subprocess.run([*words, "-o", str(partial)], check=True)
        partial.replace(path)
    return path


def load() -> Any:
    """With `on` and `off`."""
    path = str(compiled())
    loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
