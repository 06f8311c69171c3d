"""Times the planted kernels and their mended twins on a card, and how fast its memory is with few bytes on their way.

    python -m benchmarks.machine_code.measure OUT.json --planted A.cubin --in-flight B.cubin --ladder C.cubin

It needs torch alone. `nvcc -cubin -lineinfo -arch=sm_90a -o A.cubin tests/machine_code/planted.cu` and the like make the
cubins, without a card (`benchmarks/machine_code/in_flight.cu`, `examples/gemm_ladder.cu`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine_code.driver import Module, seconds_of
from benchmarks.machine_code.problems import PROBLEMS, SAME
from tests.machine_code.planted_cuda import DEFECTS, Plant


def launches(module: Module, plant: Plant) -> tuple[Callable[[], None], Callable[[], None], torch.Tensor, torch.Tensor]:
    """What launches a planted kernel, and its twin, and what they write."""
    arguments, mended_arguments, out, mended_out = PROBLEMS[plant.name]()
    block, grid = plant.mended_block or plant.block, plant.mended_grid or plant.grid
    slow = module.launcher(plant.name, plant.grid, plant.block, arguments)
    return slow, module.launcher(f"{plant.name}_mended", grid, block, mended_arguments), out, mended_out


def _pair(module: Module, plant: Plant) -> dict[str, Any]:
    slow, mended, out, mended_out = launches(module, plant)
    seconds, mended_seconds = seconds_of(slow), seconds_of(mended)
    same = plant.name not in SAME or torch.allclose(out.float(), mended_out.float(), rtol=1e-2, atol=1e-3)
    return {"seconds": seconds, "mended_seconds": mended_seconds, "gain": seconds / mended_seconds, "same": bool(same)}


def _in_flight(module: Module) -> list[dict[str, Any]]:
    """Bytes per second read, by bytes on their way on a multiprocessor."""
    x = torch.rand(128 << 20, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.zeros(sms * 8 * 256, device="cuda")
    found: list[dict[str, Any]] = []
    for size in (4, 8, 16):
        for loads in (1, 4):
            # Shared memory keeps all but so many blocks out.
            for blocks, shared in ((8, 0), (4, 50 << 10), (2, 100 << 10), (1, 200 << 10)):
                number = x.numel() * 4 // size
                read = module.launcher(
                    f"read_{size}_{loads}", (sms * blocks, 1, 1), (256, 1, 1), [x, out, number], shared
                )
                on_their_way = size * loads * 256 * blocks
                found.append({"bytes": size, "loads": loads, "blocks": blocks, "on_their_way": on_their_way})
                found[-1]["bytes_per_second"] = x.numel() * 4 / seconds_of(read, times=5)
    return found


def _plain(module: Module) -> dict[str, float]:
    """What the plainest kernels reach: bytes per second of copies, additions of a warp per second."""
    x, out = torch.rand(64 << 20, device="cuda"), torch.empty(64 << 20, device="cuda")
    found: dict[str, float] = {}
    for size in (4, 16):
        number = x.numel() * 4 // size
        copy = module.launcher(f"copy_{size}", (-(-number // 256), 1, 1), (256, 1, 1), [x, out, number])
        found[f"copy_{size}_bytes_per_second"] = 8 * x.numel() / seconds_of(copy)
    for name in ("add_one_line", "add_own_lines"):
        add = module.launcher(name, (1056, 1, 1), (256, 1, 1), [out, 64])
        found[f"{name}_warps_per_second"] = 1056 * 8 * 64 / seconds_of(add, times=5)
    return found


def _ladder(module: Module) -> dict[str, dict[str, float]]:
    """Seconds, and the largest error, of each step of `examples/gemm_ladder.cu` on a side of 4096."""
    n = 4096
    a, b = (torch.rand(n, n, device="cuda") for _ in range(2))
    right = a.double() @ b.double()
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    steps = {
        "step1_naive": ((n // 16, n // 16, 1), 256),
        "step2_coalesced": ((n // 32, n // 8, 1), 256),
        "step3_shared": ((n // 32, n // 32, 1), 1024),
        "step4_registers": ((n // 64, n // 64, 1), 256),
        "step5_vectorised": ((n // 64, n // 64, 1), 256),
        "step6_tensor_cores": ((n // 128, n // 128, 1), 256),
        "step7_async": ((n // 128, n // 128, 1), 256),
        "step8_persistent": ((2 * sms, 1, 1), 256),
    }
    found: dict[str, dict[str, float]] = {}
    for name, (grid, threads) in steps.items():
        c = torch.zeros(n, n, device="cuda")
        seconds = seconds_of(module.launcher(name, grid, (threads, 1, 1), [a, b, c, n]), times=5)
        found[name] = {"seconds": seconds, "error": float(((c - right).abs() / right).max())}
        print(name, found[name], flush=True)
    for how in ("highest", "high"):
        torch.set_float32_matmul_precision(how)
        found[f"torch, {how}"] = {"seconds": seconds_of(lambda: torch.mm(a, b), times=5), "error": 0.0}
    return found


def main() -> None:
    """Measure, and write as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--planted", type=Path, required=True)
    parser.add_argument("--in-flight", type=Path, help="without it, what memory reaches is not measured")
    parser.add_argument("--ladder", type=Path, help="the cubin of examples/gemm_ladder.cu")
    parser.add_argument("--once", action="store_true", help="launch each once, for a profiler; nothing is timed")
    asked = parser.parse_args()
    card = torch.cuda.get_device_properties(0)
    result: dict[str, Any] = {"card": card.name, "sms": card.multi_processor_count, "torch": torch.__version__}
    result["pairs"], result["failed"] = {}, {}
    planted = Module(asked.planted)
    if asked.once:
        for plant in DEFECTS:
            slow, mended, *_ = launches(planted, plant)
            slow()
            mended()
            torch.cuda.synchronize()
        return
    for plant in DEFECTS:
        try:
            result["pairs"][plant.name] = _pair(planted, plant)
        except RuntimeError as error:
            result["failed"][plant.name] = str(error).splitlines()[0]
        print(plant.name, result["pairs"].get(plant.name) or result["failed"].get(plant.name), flush=True)
        torch.cuda.empty_cache()
    if asked.in_flight is not None:
        plain = Module(asked.in_flight)
        result["in_flight"], result["plain"] = _in_flight(plain), _plain(plain)
    if asked.ladder is not None:
        result["ladder"] = _ladder(Module(asked.ladder))
    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    print(asked.out)


if __name__ == "__main__":
    main()
