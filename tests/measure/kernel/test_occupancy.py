"""Occupancy from registers, shared memory and block: by hand, and against the profiler where the profiler is right."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.facts import Facts
from lanewise.measure.kernel.occupancy import occupancy
from lanewise.trace.reader import read
from tests.support.builder import H100, TraceBuilder
from tests.support.corpus import CORPUS


def one(device: dict[str, object] | None = None, **launch: object) -> tuple[int, float, str]:
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    with b.step():
        b.launch("k", **launch)  # type: ignore[arg-type]
    found = occupancy(Facts(b.build()))
    return int(found.resident[0]), float(found.waves[0]), str(found.limit[0])


def test_registers_limit() -> None:
    # 128 registers x 32 threads = 4096 per warp; 16 warps fit in 65,536; 4 warps per block.
    assert one(registers=128, block=(128, 1, 1), grid=(528, 1, 1)) == (4, 1.0, "registers")


def test_shared_memory_above_48_kib_limits_and_is_not_zero() -> None:
    # 100 KB and the reserved KiB: two blocks in 228 KiB. The profiler says 0 % here.
    resident, _, limit = one(shared=102_400, registers=32, block=(256, 1, 1), occupancy=0.0)
    assert (resident, limit) == (2, "shared")


def test_the_block_count_limits_small_blocks() -> None:
    assert one(registers=16, block=(32, 1, 1))[::2] == (32, "blocks")


def test_warps_limit_large_blocks() -> None:
    assert one(registers=16, block=(1024, 1, 1)) == (2, 1.0, "warps")


def test_without_limits_of_the_device_nothing_is_claimed() -> None:
    resident, waves, limit = one(device={"name": "NVIDIA X", "warpSize": 32, "numSms": 132})
    assert (resident, limit) == (-1, "")
    assert waves != waves


def test_amd_is_not_computed_by_nvidias_rules() -> None:
    assert one(device=H100 | {"name": "AMD Instinct MI300X", "warpSize": 64})[0] == -1


def test_a_block_that_cannot_fit_is_not_claimed() -> None:
    assert one(registers=255, block=(1024, 1, 1))[0] == -1


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded corpus is not beside this checkout")
def test_agrees_with_the_profiler_where_that_is_right() -> None:
    compared = 0
    for path in (
        "h100/05_llama_train",
        "h100/04_resnet50_infer",
        "h100/03_mnist_train_stack",
        "h100/08_ddp_good_rank0",
        "public/TraceLens/b200/eager_trace",
    ):
        facts = Facts(read(CORPUS / f"{path}.json.gz", cache=False))
        args, found = facts.trace["kernel_args"], occupancy(facts)
        threads = args["block_x"].astype(np.int64) * args["block_y"] * args["block_z"]
        most = facts.device.threads_per_sm / facts.device.warp
        # What the profiler calls achieved: no more than the grid brings.
        blocks = np.minimum(found.resident, found.blocks / facts.device.sms)
        expected = blocks * -(-threads // 32) / most * 100
        right = (args["shared_memory"] <= 49152) & (found.blocks >= facts.device.sms) & (found.resident > 0)
        assert np.abs(expected - args["occupancy"])[right].max() <= 1.0
        compared += int(right.sum())
    assert compared > 3000
