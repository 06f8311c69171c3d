"""What the compiler makes of the kernels, without a card: `python -m benchmarks.kernels.compiled OUT.json [--match REGEX]`.

Registers of a thread, spilled bytes, shared memory and programs that one multiprocessor of Hopper (sm 9.0) holds, for
the layouts that are used or tried. Triton compiles for a named target on any machine; ptxas reports the rest.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.gemm import matmul
from lanewise.kernels.gemm.matmul import TileBlocks
from lanewise.kernels.rows import (
    norm_backward_kernels,
    norm_cluster_kernels,
    norm_forward_kernels,
    softmax_backward_kernels,
    softmax_kernels,
)
from lanewise.kernels.rows.row_layout import Layout, split_meta

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
    pairs = zip(names, pointers, strict=False)
    signature = {name: kind if kind.startswith("tensordesc") else f"*{kind}" for name, kind in pairs}
    signature |= dict.fromkeys(names[len(pointers) : len(pointers) + scalars], "i32")
    signature |= dict.fromkeys(meta, "constexpr")
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names[: len(pointers) + scalars])
        if not signature[name].startswith("tensordesc")
    }
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


Job = tuple[str, str, Callable[[], Any], int]
"""Kernel, layout, how to compile it, warps."""
HALF = "bf16"


def _rows() -> Iterator[Job]:
    """Whole rows, with the row in fp32 across the reductions or (lean) in half precision."""
    for block, warps in ((4096, 8), (8192, 8), (16384, 8), (16384, 16), (32768, 16), (32768, 32)):
        for lean in (False, True):
            cut = {"ROWS": 1, "BLOCK": block, "LEAN": lean, "STREAM": False, "FULL": True, "EVEN": True}
            title = f"{block}, {warps} warps{', lean' if lean else ''}"
            meta = {"SCALE": 1.0, "HAS_MASK": False, "ALIGN": 1, **cut}
            yield (
                "softmax",
                title,
                lambda m=meta, w=warps: build(softmax_kernels._softmax_rows, [HALF] * 3, 4, m, w),
                warps,
            )
            back = {"SCALE": 1.0, "ALIGN": 1, **cut}
            yield (
                "softmax backward",
                title,
                lambda m=back, w=warps: build(softmax_backward_kernels._softmax_backward_rows, [HALF] * 3, 3, m, w),
                warps,
            )
            for name, flags in _norms():
                kinds = [HALF] * 6 + ["fp32", "fp32"]
                full = {**_sizes(block), **flags, **_weights_late(cut)}
                yield (
                    name,
                    title,
                    lambda m=full, w=warps, k=kinds: build(norm_forward_kernels._norm_rows, k, 1, m, w),
                    warps,
                )


def _weights_late(cut: dict[str, Any]) -> dict[str, Any]:
    """The constexpr parameters of a norm's whole rows, in the order of its signature."""
    last = ("STREAM", "FULL", "EVEN")
    first = {key: value for key, value in cut.items() if key not in last}
    return {**first, "EARLY": False, "ONCE": False, **{key: cut[key] for key in last}}


def _twice() -> Iterator[Job]:
    """Rows walked twice, block by block."""
    for rows, block, warps in ((1, 2048, 8), (1, 4096, 8), (1, 4096, 16), (1, 8192, 16), (2, 4096, 16), (1, 8192, 32)):
        cut = {"BLOCK": block, "EVEN": True}
        title = f"walked twice, {f'{rows} rows of ' if rows > 1 else ''}{block} at a time, {warps} warps"
        meta = {"SCALE": 1.0, "HAS_MASK": False, "ALIGN": 1, "TOGETHER": rows, **cut}
        yield (
            "softmax",
            title,
            lambda m=meta, w=warps: build(softmax_kernels._softmax_twice, [HALF] * 3, 4, m, w),
            warps,
        )
        back = {"SCALE": 1.0, "ALIGN": 1, "ROWS": rows, **cut}
        yield (
            "softmax backward",
            title,
            lambda m=back, w=warps: build(softmax_backward_kernels._softmax_backward_twice, [HALF] * 3, 3, m, w),
            warps,
        )
        for name, flags in _norms():
            kinds = [HALF] * 6 + ["fp32", "fp32"]
            full = {**_sizes(8 * block), **flags, "ROWS": rows, **cut}
            yield (
                name,
                title,
                lambda m=full, w=warps, k=kinds: build(norm_forward_kernels._norm_twice, k, 1, m, w),
                warps,
            )


def _sizes(cols: int) -> dict[str, int]:
    return {"COLS": cols, "X_STRIDE": cols, "R_STRIDE": cols}


def _norms() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, rms, add in (("rms_norm", True, False), ("layer_norm", False, False), ("add_rms_norm", True, True)):
        yield name, {"EPS": 1e-6, "RMS": rms, "ADD": add, "HAS_W": True, "HAS_B": not rms, "SAVE": False}


def _parts() -> Iterator[Job]:
    """Rows in parts, exchanged in a cluster."""
    for block, parts, warps in ((8192, 8, 8), (8192, 8, 16), (16384, 8, 16), (32768, 8, 32)):
        shape = Layout(1, block, parts, warps)
        cut = split_meta(shape)
        title = f"{parts} parts of {block}, {warps} warps"
        meta = {"SCALE": 1.0, "HAS_MASK": False, "ALIGN": 1, **cut, "PHASE": 0}
        yield (
            "softmax",
            title,
            lambda m=meta, w=warps: build(softmax_kernels._softmax_split, [HALF] * 4, 4, m, w),
            warps,
        )
        back = {"SCALE": 1.0, "ALIGN": 1, **cut, "PHASE": 0}
        yield (
            "softmax backward",
            title,
            lambda m=back, w=warps: build(softmax_backward_kernels._softmax_backward_split, [HALF] * 4, 3, m, w),
            warps,
        )
        for name, flags in _norms():
            kinds = [HALF] * 6 + ["fp32", "fp32", HALF]
            full = {**flags, "ALIGN": 1, **cut, "PHASE": 0}
            yield (
                name,
                title,
                lambda m=full, w=warps, k=kinds: build(norm_cluster_kernels._norm_split, k, 4, m, w),
                warps,
            )
    for block, inner, warps in ((16384, 4096, 8), (32768, 8192, 16)):
        cut = split_meta(Layout(1, block, 8, warps, inner=inner), 8 * block)
        title = f"8 parts of {block} walked twice, {inner} at a time, {warps} warps"
        meta = {"SCALE": 1.0, "HAS_MASK": False, "ALIGN": 1, **cut, "PHASE": 0}
        yield (
            "softmax",
            title,
            lambda m=meta, w=warps: build(softmax_kernels._softmax_parts, [HALF] * 4, 4, m, w),
            warps,
        )
        for name, flags in _norms():
            kinds = [HALF] * 6 + ["fp32", "fp32", HALF]
            full = {**flags, "ALIGN": 1, **cut, "PHASE": 0}
            yield (
                name,
                title,
                lambda m=full, w=warps, k=kinds: build(norm_cluster_kernels._norm_parts, k, 4, m, w),
                warps,
            )
    for block, parts, warps in ((2048, 4, 8), (4096, 8, 8), (8192, 8, 16)):
        cut = split_meta(Layout(1, block, parts, warps, 2))
        for rms in (True, False):
            sizes = {"COLS": parts * block, "DY_STRIDE": parts * block, "DS_STRIDE": parts * block}
            flags = {**sizes, "RMS": rms, "HAS_W": True, "NEED_W": True, "NEED_B": not rms, "ADD": False, **cut}
            kinds = [HALF] * 4 + ["fp32"] * 2 + [HALF] + ["fp32"] * 2
            yield (
                f"{'rms' if rms else 'layer'}_norm backward",
                f"{parts} parts of {block}, {warps} warps",
                lambda m=flags, w=warps, k=kinds: build(norm_backward_kernels._norm_backward_split, k, 1, m, w),
                warps,
            )


def _products() -> Iterator[Job]:
    """Products through tensor-memory copies: one, or gate and up."""
    single = (
        TileBlocks(128, 256, 64, 8, 3, 16, 2, True),
        TileBlocks(128, 256, 64, 8, 4, 8, 2, True),
        TileBlocks(128, 128, 64, 4, 3, 8, 2, True, False, 2),
    )
    double = (
        TileBlocks(128, 128, 64, 8, 3),
        TileBlocks(128, 128, 64, 8, 4, 8, 1, True, True),
        TileBlocks(128, 64, 64, 4, 3, 8, 1, True, True, 2),
    )
    for name, cuts in (("linear + gelu", single), ("gated linear", double)):
        for cut in cuts:
            dual = cuts is double
            meta = {
                "ACTIVATION": ACTIVATIONS["silu" if dual else "gelu"],
                "HAS_BIAS": not dual,
                "HAS_RESIDUAL": False,
                "DUAL": dual,
                "FAST": True,
                "PRECISION": "ieee",
                "BM": cut.bm,
                "BN": cut.bn,
                "BK": cut.bk,
                "GROUP": cut.group,
                "HALVES": cut.halves,
                "FLATTEN": cut.flatten,
                "PAIR": int(cut.pair),
            }
            weight = [2, cut.bn, cut.bk] if cut.pair else [cut.bn, cut.bk]
            tiles = ([cut.bm, cut.bk], weight, weight, [cut.bm, cut.bn // cut.halves])
            kinds = [f"tensordesc<bf16[{','.join(str(n) for n in tile)}]>" for tile in tiles] + [HALF] * 2
            title = f"{cut.bm}x{cut.bn}x{cut.bk}, {cut.warps} warps, {cut.stages} stages"
            title += f"{', one operand' if cut.pair else ''}{', flattened' if cut.flatten else ''}"
            yield (
                name,
                title,
                lambda m=meta, k=kinds, c=cut: build(matmul._tiles, k, 3, m, c.warps, c.stages),
                cut.warps,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--match", default="")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for kernel, layout, make, warps in (*_rows(), *_twice(), *_parts(), *_products()):
        if re.search(options.match, f"{kernel} {layout}"):
            rows.append({"kernel": kernel, "layout": layout, **report(make(), warps)})
            print(rows[-1], flush=True)
    document = {"target": "sm_90", "triton": triton.__version__, "dtype": HALF, "kernels": rows}
    options.out.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
