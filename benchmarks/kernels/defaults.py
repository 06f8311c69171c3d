"""How far what ships untuned is from the fastest candidate: `python -m benchmarks.kernels.defaults`.

For each case of the result files the configuration that is used without a tuner is found among the tuner's candidates.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lanewise.kernels.gemm.batched_linear import batched_blocks
from lanewise.kernels.gemm.dual_gemm import gated_blocks
from lanewise.kernels.gemm.fused_mlp import default_blocks
from lanewise.kernels.gemm.gemm_epilogue import skinny_blocks, tile_blocks
from lanewise.kernels.rows.norm_backward import backward_layout
from lanewise.kernels.rows.row_layout import Layout, layout

__all__ = ["behind", "shipped"]


def shipped(case: dict[str, Any]) -> Any:
    """The default configuration for a case of a result file, or None where there is none to choose."""
    group, shape = case["group"], case["shape"]
    if group.endswith("norm_backward"):
        return backward_layout(shape["cols"], 2, group.startswith("rms"))
    if "cols" in shape and group != "pointwise":
        return layout(shape["cols"], "add_norm" if group == "add_rms_norm" else group)
    if group in ("gemm", "gated_linear"):
        m, n, k = (shape[name] for name in ("m", "n", "k"))
        dual = group == "gated_linear"
        if m <= 64:
            return skinny_blocks(m, n, k, dual)
        return gated_blocks(m, n) if dual else tile_blocks(m, n)
    if group == "batched_linear":
        return batched_blocks(shape["m"], shape["n"])
    if group == "mlp":
        return default_blocks(shape["d"], shape["h"], shape["d"], shape["m"])
    return None


def behind(case: dict[str, Any]) -> float | None:
    """Time of the default over that of the fastest candidate; None if the default was no candidate."""
    chosen = shipped(case)
    timed = [row for row in case.get("tuning", ()) if "us" in row]
    if chosen is None or not timed:
        return None
    wanted = asdict(chosen)
    if isinstance(chosen, Layout):
        # Hints that a kernel does not read, or that files of before do not have.
        del wanted["stream"]
        if chosen.parts != 0 or case["group"] != "softmax":
            del wanted["stages"]
        if not case["group"].endswith("norm_backward"):
            wanted = {name: value for name, value in wanted.items() if name != "persistent"}
    here = [row["us"] for row in timed if all(row["config"].get(k, v) == v for k, v in wanted.items())]
    return min(here) / min(row["us"] for row in timed) if here else None


def main() -> None:
    from benchmarks.kernels.report import measured

    for name, (run, case) in measured().items():
        ratio = behind(case)
        print(f"{name:42} {'' if ratio is None else f'{ratio:.3f}'} {run}")


if __name__ == "__main__":
    main()
