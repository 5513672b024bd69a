"""Readable names of kernels that torch, its libraries and compilers really launch."""

# ruff: noqa: E501

from __future__ import annotations

import polars as pl
import pytest

from fathom.sounding.families import short_name, with_families

NATIVE = "at::native::"
MUL = "at::native::binary_internal::MulFunctor<float>"
NAMES = {
    "triton_poi_fused_gelu_0": "triton_poi_fused_gelu_0",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas": (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
    ),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(cutlass_80_simt_sgemm_64x64_8x5_tn_align1::Params)": (
        "cutlass_80_simt_sgemm_64x64_8x5_tn_align1"
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)": (
        "vectorized_elementwise_kernel<CUDAFunctor_add<float>>"
    ),
    f"void {NATIVE}elementwise_kernel<128, 4, {NATIVE}gpu_kernel_impl_nocast<{NATIVE}BinaryFunctor<c10::BFloat16, "
    f"c10::BFloat16, c10::BFloat16, {MUL} > >(at::TensorIteratorBase&, float const&)::{{lambda(int)#1}}>(int, float)": (
        "elementwise_kernel<MulFunctor<bfloat16>>"
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::"
    "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)": (
        "vectorized_elementwise_kernel<GeluCUDAKernelImpl<bfloat16>>"
    ),
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, "
    "unsigned int, float, 4, 4> >(at::native::ReduceOp<float, int>)": "reduce_kernel<sum_functor<float>>",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 2, 1, 1>, "
    "std::multiplies<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<2>, float)": (
        "multi_tensor_apply_kernel<BinaryOpScalarFunctor<float>, multiplies<float>>"
    ),
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, float, int, int)": (
        "vllm::fused_add_rms_norm_kernel<bfloat16>"
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*)": (
        "softmax_warp_forward<float>"
    ),
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEvDpT1_": (
        "ck_tile::kentry<Rmsnorm2dFwd>"
    ),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    ),
    "Memcpy DtoH (Device -> Pinned)": "Memcpy DtoH",
    "Memset (Device)": "Memset",
}


@pytest.mark.parametrize("name", NAMES, ids=list(NAMES.values()))
def test_short_names(name):
    assert short_name(name) == NAMES[name]


@pytest.mark.parametrize(
    "name", ["", " ", "<", "a<", "a<b", "(", ")", ">", "a<b>(c", "_Z", "_ZN", "_ZN9x", "void ", "{lambda"]
)
def test_any_name_has_a_short_one(name):
    assert isinstance(short_name(name), str) and (short_name(name) or not name.strip())


def test_a_family_is_a_name_and_a_launch_shape():
    kernels = pl.DataFrame(
        {"name": ["k", "k", "m"], "grid": ["4x1x1", "8x1x1", None], "block": ["1x1x1", "1x1x1", None]}
    )
    assert with_families(kernels)["family"].to_list() == ["k 4x1x1·1x1x1", "k 8x1x1·1x1x1", "m"]
