"""What a kernel's name says: its family, and whether it used tensor cores."""

from __future__ import annotations

import pytest

from lanewise.measure.kernel_names import family, tensor_cores


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("void deep_ep::internode::dispatch<false, 8>(int4*)", "communication"),
        ("void deep_ep::internode_ll::combine<true, 7168, 9>", "communication"),
        ("void deep_ep::intranode::notify_dispatch<8>", "communication"),
        ("void pplx::a2a_kernels::a2a_dispatch_send_kernel", "communication"),
        ("nvshmemi_proxy_barrier_kernel", "communication"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport", "communication"),
        ("one_shot_all_reduce_kernel<float>", "communication"),
        ("void cutlass::device_kernel<grouped_gemm_fp8>()", "gemm"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>", "attention"),
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm80", "attention"),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>", "layout"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>", "gemm helper"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckcrs", "convolution"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, "
            "FusedAdamMathFunctor<float>>",
            "optimizer",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
            "UnaryOpFunctor<float>>",
            "foreach",
        ),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x64x128", "gemm"),
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>", "normalisation"),
        ("triton_poi_fused_gelu_0", "triton"),
        ("void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>", "pointwise"),
        (
            "void split_embedding_codegen_forward_weighted_kernel<c10::Half>(fbgemm_gpu::FixedDivisor)",
            "embedding and indexing",
        ),
        ("void fbgemm_gpu::permute_2D_data_kernel<true, int, int, float>(int, int, int const*)", "other"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>", "communication"),
        ("nvshmem_quiet_kernel", "communication"),
        ("mystery", "other"),
    ],
)
def test_family(name: str, label: str) -> None:
    assert family(name) == label


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_aligna4", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x5_nn_align1>", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_tensor16x8x8", True),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI32x32x8", True),
        ("sm80_xmma_gemm_bf16bf16", None),
        ("vectorized_elementwise_kernel", None),
    ],
)
def test_tensor_cores(name: str, answer: bool | None) -> None:
    assert tensor_cores(name) is answer
