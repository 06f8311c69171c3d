"""Compiles a Triton kernel of a Python file for a card that need not be there.

A process of its own imports the file, as Python would; nothing is launched.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lanewise.errors import InputError, MissingDependencyError, UsageError

__all__ = ["capability_of", "compiled"]

_LONGEST_S = 300
_TARGET = re.compile(r"^(?:sm_?)?(\d+)[af]?$")
_TYPE = re.compile(r"^\*?(?:fp16|fp32|fp64|fp8e\w+|bf16|[iu](?:1|8|16|32|64))(?::16)?$")

# Run by the other process. What it is to do comes as JSON: its words are of a user, and of a shell.
_COMPILE = """
import importlib.util, json, pathlib, sys
asked = json.loads(sys.argv[1])
path = pathlib.Path(asked["file"]).resolve()
sys.path.insert(0, str(path.parent))
spec = importlib.util.spec_from_file_location(path.stem, path)
module = importlib.util.module_from_spec(spec)
sys.modules[path.stem] = module
spec.loader.exec_module(module)
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
kernel = getattr(module, asked["kernel"], None)
while type(kernel).__name__ != "JITFunction" and hasattr(kernel, "fn"):
    kernel = kernel.fn
if not hasattr(kernel, "arg_names"):
    names = [name for name, value in vars(module).items() if hasattr(value, "arg_names")]
    print("no kernel " + asked["kernel"] + " in the file; it has " + (", ".join(names) or "none"))
    sys.exit(3)
names = list(kernel.arg_names)
told = {**asked["types"], **asked["constants"]}
missing = [name for name in names if name not in told]
unknown = [name for name in told if name not in names]
if missing or unknown:
    print("of each argument say its type or value: --arg NAME=TYPE, --arg NAME=VALUE; "
          + ("missing: " + ", ".join(missing) if missing else "the kernel has no " + ", ".join(unknown)
          + ", only " + ", ".join(names)))
    sys.exit(3)
signature, attributes = {}, {}
for at, name in enumerate(names):
    if name in asked["constants"]:
        signature[name] = "constexpr"
        continue
    kind, _, multiple = asked["types"][name].partition(":")
    signature[name] = kind
    # Memory that torch allocates begins at a multiple of 16 bytes and more.
    if multiple or kind.startswith("*"):
        attributes[(at,)] = [["tt.divisibility", 16]]
source = ASTSource(kernel, signature=signature, constexprs=asked["constants"], attrs=attributes)
target = GPUTarget("cuda", asked["capability"], 32)
done = triton.compile(source, target=target, options={"num_warps": asked["warps"], "num_stages": asked["stages"]})
out = pathlib.Path(asked["out"])
out.write_text(done.asm["ptx"])
out.with_suffix(".json").write_text(json.dumps({"shared": done.metadata.shared, "num_warps": done.metadata.num_warps}))
"""


def capability_of(target: str) -> tuple[int, int]:
    """Compute capability of `90`, `sm_90` or `sm90a`. Raises UsageError for something else."""
    match = _TARGET.match(target.strip().lower())
    if match is None or len(match[1]) < 2:
        raise UsageError(f"--target is a compute capability such as 80, 90 or 100, not {target!r}")
    return int(match[1][:-1]), int(match[1][-1])


def compiled(
    file: Path,
    kernel: str,
    arguments: Sequence[str],
    capability: tuple[int, int],
    warps: int,
    stages: int,
    folder: Path,
) -> Path:
    """The PTX of a kernel, in a folder, with what a launch asks for beside it.

    Raises:
        UsageError: the kernel is not in the file, or something is not said of an argument. InputError: the file is not
            there, or fails when it is imported or compiled. MissingDependencyError: triton is not installed.
    """
    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    if importlib.util.find_spec("triton") is None:
        raise MissingDependencyError(
            "triton is not installed, which compiles the kernel: pip install triton (no GPU is needed)"
        )
    types, constants = _told(arguments)
    out = folder / f"{kernel}.ptx"
    asked = {
        "file": str(file),
        "kernel": kernel,
        "types": types,
        "constants": constants,
        "capability": capability[0] * 10 + capability[1],
        "warps": warps,
        "stages": stages,
        "out": str(out),
    }
    words = [sys.executable, "-c", _COMPILE, json.dumps(asked)]
    # Triton's interpreter, which this asks for, compiles nothing.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", env=environment, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{file}::{kernel} was still being compiled after {_LONGEST_S} s") from None
    if done.returncode == 3:
        raise UsageError(f"{file}::{kernel}: {done.stdout.strip().splitlines()[-1][:400]}")
    if done.returncode != 0 or not out.exists():
        said = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise InputError(f"{file}::{kernel} cannot be compiled" + (f": {said[-1].strip()[:300]}" if said else ""))
    return out


def _told(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, int | float | bool | str]]:
    """Types and constants by name."""
    types: dict[str, str] = {}
    constants: dict[str, int | float | bool | str] = {}
    for one in arguments:
        name, separator, value = one.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--arg {one}: say NAME=TYPE (x=*fp32) or NAME=VALUE (TILE=1024)")
        if _TYPE.match(value):
            types[name] = value
        else:
            constants[name] = _constant(value)
    return types, constants


def _constant(value: str) -> int | float | bool | str:
    if value in ("True", "False"):
        return value == "True"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
