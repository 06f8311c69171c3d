"""What the diagnoses must and must not say about each trace of the recorded H100 corpus.

One row per file. `regime` is that of the run, re-based on the un-profiled step time where it is known. `must` codes are
among the findings, in whatever rank. `must_not` codes are absent, or at least cost nothing: off the bottleneck, owned
by another finding, or a note below 1 % of the step. `off` codes fire, and only off the bottleneck. `EVERYWHERE_NOT`
holds for every file that does not name the code in `must` or `off`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EVERYWHERE_NOT", "EXPECTED", "Expected"]


@dataclass(frozen=True)
class Expected:
    """One row of the table; codes are separated by spaces."""

    regime: str
    must: str = ""
    must_not: str = ""
    off: str = ""


EVERYWHERE_NOT = (
    "MEA101 MEA102 MEA103 MEA104 MEA105 MEA106 MEA107 MEA108 MEA109 MEA110 MEA111 MEA112 MEA113 LAU104 LAU105 LAU107 "
    "LAU108 LAU109 LAU110 CMP101 CMP102 CMP103 CMP104 CMP105 CMP107 CMP108 SYN102 SYN104 SYN105 SYN107 SYN108 MEM101 "
    "MEM102 MEM105 KER105 KER108 KER109 OPT101 OPT102 OPT103 OPT104 OPT105 DIS101 DIS104"
)

_ALL_LAU = "LAU101 LAU102 LAU103 LAU104 LAU105 LAU106 LAU107 LAU108 LAU109 LAU110"

_TINY_HOST = Expected("host", "REG101 MEA101 MEA105", f"{_ALL_LAU} KER104 OPT104 MEA103 MEA104 MEA106 MEA110 MEA111")
_STALLED = Expected("host", "REG101 MEA101 MEA103 MEA104 MEA105 MEA110", f"{_ALL_LAU} MEA106 MEA111")
_GEMM_4096 = Expected("compute", "REG102 KER101 MEA101", f"{_ALL_LAU} MEA103 MEA105 MEA110 MEA111 KER106")

EXPECTED: dict[str, Expected] = {
    # matmul + add. The cold and the warm run are not separable from the trace: neither is called a cold start.
    "01_matmul_add_64_cold_eager": Expected(
        "host", "REG101 MEA101", f"{_ALL_LAU} KER104 OPT104 MEA103 MEA104 MEA105 MEA106 MEA110 MEA111"
    ),
    "01_matmul_add_64_warm_eager": _TINY_HOST,
    "01_bmm_add_64_warm_eager": _TINY_HOST,
    "01_matmul_add_64_nowait": _STALLED,
    "01_matmul_add_64_active20": _STALLED,
    "01_matmul_add_4096_cold_eager": _GEMM_4096,
    "01_matmul_add_4096_warm_eager": _GEMM_4096,
    "01_matmul_add_4096_fp32_warm": Expected(
        "compute", "REG102 KER101 KER104 MEA101 MEA111", f"{_ALL_LAU} MEA103 MEA105 MEA110"
    ),
    "01_matmul_add_64_warm_compile": Expected(
        "host", "REG101 CMP103 CMP106 MEA105", "MEA101 MEA106 MEA110 CMP102 CMP105 CMP108 LAU101 LAU102"
    ),
    "01_matmul_add_4096_warm_compile": Expected(
        "compute", "REG102 CMP106", "MEA101 MEA105 MEA106 MEA110 CMP102 CMP103 CMP105 CMP108"
    ),
    "01_matmul_add_64_warm_compile_reduce_overhead": Expected(
        "host", "REG101 LAU107 CMP103 CMP106 MEA101 MEA105 MEA113", "LAU101 LAU106 MEA106 CMP102 CMP105 CMP108"
    ),
    "01_matmul_add_4096_warm_compile_reduce_overhead": Expected(
        "compute", "REG102 LAU107 CMP106 MEA101 MEA113 KER101", "LAU101 LAU106 MEA105 MEA106 CMP102 CMP103 CMP105"
    ),
    # linear and MLP
    "02_linear_warm_eager": Expected(
        "host", "REG101 MEA101 MEA105 MEA110", "CMP106 KER104 LAU101 LAU102 LAU106 OPT104"
    ),
    "02_mlp_256_1024_b32_eager": Expected("host", "REG101 MEA101 MEA105 MEA110", "LAU101 LAU102 LAU106 OPT104"),
    "02_mlp_256_1024_b32_eager_stack": Expected("host", "REG101 MEA101 MEA105", "LAU101 LAU102 LAU106 LAU110 OPT104"),
    "02_mlp_256_1024_b32_compile": Expected(
        "host", "REG101 CMP103 MEA105", "MEA101 MEA106 CMP102 CMP106 CMP108 LAU101 LAU106"
    ),
    "02_mlp_4096_16384_b4096_eager": Expected(
        "compute", "REG102 KER101 KER102 KER103 MEA101 MEA111", f"{_ALL_LAU} MEA105 MEA110"
    ),
    "02_mlp_4096_16384_b4096_compile": Expected(
        "compute", "REG102 KER101 KER102 KER103 MEA111", f"{_ALL_LAU} CMP102 CMP103 CMP108 MEA101 MEA105 MEA110"
    ),
    "02_swiglu_256_1024_b32_eager": Expected("host", "REG101 MEA101 MEA105 MEA110", "LAU101 LAU106 OPT104"),
    "02_swiglu_4096_16384_b4096_eager": Expected(
        "compute", "REG102 KER101 KER102 KER103 LAU102 MEA101 MEA111", "LAU101 LAU106 KER104 KER106 MEA105 MEA110"
    ),
    # training, vision
    "03_mnist_train_stack": Expected(
        "host",
        "REG101 LAU101 SYN103 KER107 MEA105",
        "LAU110 SYN101 OPT102 OPT104 MEA101 MEA110 MEA111",
        "KER104 KER106 KER113",
    ),
    "04_resnet50_infer": Expected(
        "compute", "REG102 SYN103 LAU102 KER107 MEA105", "KER104 KER112 OPT104 LAU101 LAU106 MEA101 MEA110"
    ),
    "04_resnet50_model_to_device_each_step": Expected(
        "transfer", "REG103 SYN109", "KER107 LAU103 MEA101 MEA105 MEA110 SYN103 SYN108"
    ),
    # language models: two recorded steps are too few to compare
    "05_llama_generate": Expected(
        "host", "REG101 MEA110 LAU101 LAU102 KER111 MEM106 SYN101", "MEA105 OPT104 SYN103 KER104 KER110"
    ),
    "05_llama_prefill_stack": Expected(
        "host", "REG101 MEA105 MEA110 LAU101 LAU102 LAU106 KER111 MEM106 OPT104", "SYN101"
    ),
    "05_llama_train": Expected(
        "host", "REG101 MEA105 MEA110 LAU101 LAU102 LAU106 KER111 MEM103 MEM106", "LAU110 OPT102 OPT104"
    ),
    "06_cuda_graph_replay": Expected(
        "mixed", "REG105 MEA101 MEA105 MEA110 MEA113", "LAU101 LAU106 LAU107 CMP103 CMP106"
    ),
    # one fault each, and the good twins
    "07_bad_conv_nchw_half": Expected(
        "host", "REG101 MEA105 LAU101 LAU102 LAU106 KER107 KER112", "KER104 MEA101 MEA110"
    ),
    "07_bad_host_stall": Expected("host", "REG101 LAU110", "LAU101 LAU106 MEA101 MEA105 MEA110", "KER104"),
    "07_bad_item_loop": Expected("host", "REG101 MEA105 SYN101", "SYN103 LAU103 LAU106 OPT104 MEA101 MEA110"),
    "07_bad_pageable_copy": Expected("transfer", "REG103 SYN103", "REG102 MEA101 MEA105 MEA110 LAU106"),
    "07_good_pinned_copy": Expected("transfer", "REG103 MEA101 MEA111", "REG102 SYN103 SYN104 MEA105 MEA110 LAU106"),
    "07_bad_recompile_each_step": Expected(
        "host", "REG101 CMP102 MEA105", "MEA101 MEA106 MEA110 CMP103 LAU101 LAU106 LAU110"
    ),
    "07_bad_unfused_pointwise_chain": Expected(
        "host", "REG101 MEA105 LAU101 LAU102 LAU103 LAU106", "OPT104 MEA101 MEA110"
    ),
    # two ranks; no un-profiled step time
    "08_ddp_good_rank0": Expected(
        "host", "REG101 LAU101 DIS106 MEA105", "REG104 DIS103 MEA101 MEA103 MEA110 LAU110 OPT102 MEA111", "KER104"
    ),
    "08_ddp_good_rank1": Expected(
        "communication",
        "REG104 DIS106 SYN106",
        "REG101 DIS103 MEA101 MEA103 MEA110 LAU110 OPT102 MEA111",
        "KER104 DIS105",
    ),
    "08_ddp_straggler_rank1_8ms_rank0": Expected(
        "communication", "REG104 DIS106 MEA110 MEA111", "REG102 MEA101 LAU110 OPT102", "KER104 DIS105"
    ),
    "08_ddp_straggler_rank1_8ms_rank1": Expected(
        "host", "REG101 DIS106 LAU101 LAU110 MEA105 MEA110", "MEA101 MEA111 OPT102", "KER104"
    ),
    "08_fsdp2_rank0": Expected(
        "communication", "REG104 OPT102 MEA105 MEA110", "SYN101 DIS103 MEA101 LAU110 LAU103", "KER104 DIS105"
    ),
    "08_fsdp2_rank1": Expected(
        "host", "REG101 OPT102 LAU101 MEA105 MEA110", "SYN101 DIS103 MEA101 LAU110 LAU103", "KER104"
    ),
    "08_manual_allreduce_no_overlap_rank0": Expected(
        "host", "REG101 DIS103 LAU101 MEA105", "LAU103 LAU110 DIS105 MEA101 MEA110 MEA111", "KER104"
    ),
    "08_manual_allreduce_no_overlap_rank1": Expected(
        "communication", "REG104 DIS103 KER104 MEA105 MEA111", "LAU103 LAU110 DIS105 MEA101 MEA110"
    ),
}
