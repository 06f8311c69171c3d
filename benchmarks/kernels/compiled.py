"""What the compiler makes of the kernels, without a card: `python -m benchmarks.kernels.compiled [--match REGEX]`.

Registers of a thread, spilled bytes, shared memory and programs that one multiprocessor of Hopper (sm 9.0) holds, for
the layouts that are used or tried. Triton compiles for a named target on any machine; ptxas reports the rest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lanewise.kernels import norm_kernels, softmaxes
from lanewise.kernels.rowwise import Layout, split_meta

HOPPER = GPUTarget("cuda", 90, 32)


def build(
    fn: Any,
    pointers: Sequence[str],
    scalars: int,
    meta: Mapping[str, Any],
    warps: int,
    stages: int = 1,
    registers: int = 0,
) -> Any:
    """Compile for Hopper: `pointers` are element types, all pointers and scalars multiples of 16."""
    names = fn.arg_names
    signature = {name: f"*{kind}" for name, kind in zip(names, pointers, strict=False)}
    signature |= dict.fromkeys(names[len(pointers) : len(pointers) + scalars], "i32")
    signature |= dict.fromkeys(meta, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers) + scalars)}
    source = ASTSource(fn, signature, {(names.index(k),): v for k, v in meta.items()}, aligned)
    options: dict[str, Any] = {"num_warps": warps, "num_stages": stages}
    if registers:
        options["maxnreg"] = registers
    return triton.compile(source, target=HOPPER, options=options)


def report(compiled: Any, warps: int) -> dict[str, int]:
    """Registers, spilled bytes, shared memory, resident programs."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as directory:
        ptx = Path(directory, "kernel.ptx")
        ptx.write_text(compiled.asm["ptx"])
        log = subprocess.run(
            [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", str(ptx), "-o", str(Path(directory, "kernel.cubin"))],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = int(re.search(r"Used (\d+) registers", log)[1])
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", log))
    shared = compiled.metadata.shared
    per_warp = -(-registers * 32 // 256) * 256
    held = min(4 * (16384 // per_warp) // warps, 64 // warps, 232448 // (shared + 1024), 32)
    return {"registers": registers, "spilled": spills, "shared": shared, "programs": held}


def jobs() -> Iterator[tuple[str, Any, int]]:
    half = "bf16"
    splits = ((8192, 8, 8), (16384, 8, 16), (16384, 8, 8), (32768, 8, 32), (32768, 8, 16), (65536, 16, 32))
    for block, parts, warps in splits:
        for stages in (1, 2):
            shape = Layout(1, block, parts, warps, 0, stages)
            meta = {"SCALE": 1.0, "HAS_MASK": False, **split_meta(shape), "PHASE": 0}
            name = f"{block} x{parts} {warps} warps{' ahead' if stages > 1 else ''}"
            yield f"softmax {name}", lambda m=meta, w=warps: build(softmaxes._softmax_split, [half] * 4, 4, m, w), warps
            for rms, add in ((True, False), (False, False), (True, True)):
                flags = {"EPS": 1e-6, "RMS": rms, "ADD": add, "HAS_W": True, "HAS_B": not rms, "SAVE": False}
                meta = {**flags, **split_meta(shape), "PHASE": 0}
                kinds = [half] * 6 + ["fp32", "fp32", half]
                title = ("add " if add else "") + ("rms" if rms else "layer")
                yield (
                    f"{title} {name}",
                    lambda m=meta, w=warps, k=kinds: build(norm_kernels._norm_split, k, 4, m, w),
                    warps,
                )
            meta = {"SCALE": 1.0, **split_meta(shape), "PHASE": 0}
            yield (
                f"softmax backward {name}",
                lambda m=meta, w=warps: build(softmaxes._softmax_backward_split, [half] * 4, 3, m, w),
                warps,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="")
    options = parser.parse_args()
    for name, make, warps in jobs():
        if re.search(options.match, name):
            print(f"{name:44}", report(make(), warps), flush=True)


if __name__ == "__main__":
    main()
