"""Kernels that communicate, by name: those of each library, and names that only resemble them."""

from __future__ import annotations

import re

import pytest

from fathom.sounding import identify_collective
from fathom.sounding.communication import kernel_names, libraries

NAMES = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("NCCL", "all_reduce"),
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": ("NCCL", "other"),
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": ("NCCL", "send_recv"),
    "rcclDevKernel_ReduceScatter_Sum_f32": ("RCCL", "reduce_scatter"),
    "void deep_ep::internode_ll::combine<true, 7168>(void*)": ("DeepEP", "combine"),
    "void dpsk::ep::internode::cached_notify<false>(int, int)": ("DeepEP", "notify"),
    "void deep_ep::intranode::dispatch<8, 768>(int4*)": ("DeepEP", "dispatch"),
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)": ("custom all-reduce", "all_reduce"),
    "void sglang::cross_device_reduce_2stage<half, 4>()": ("custom all-reduce", "all_reduce"),
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()": (
        "custom all-reduce",
        "all_reduce",
    ),
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>()": (
        "symmetric memory",
        "all_reduce",
    ),
    "void c10d::symmetric_memory::barrier_kernel(uint32_t**)": ("symmetric memory", "barrier"),
    "void mscclpp::allreduce6<__half>(void*)": ("MSCCL++", "all_reduce"),
    "nvshmemi_alltoall_on_stream_kernel": ("NVSHMEM", "all_to_all"),
}
COMPUTES = (
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>()",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>()",
    "triton_red_fused_sum_0",
)


@pytest.mark.parametrize("name", NAMES)
def test_library_and_operation_follow_from_the_name(name: str) -> None:
    assert re.search(kernel_names(), name)
    assert identify_collective(name) == NAMES[name]


@pytest.mark.parametrize("name", COMPUTES)
def test_kernels_that_compute_are_not_communication(name: str) -> None:
    assert not re.search(kernel_names(), name)


def test_every_library_is_listed_once() -> None:
    names = [library.library for library in libraries()]
    assert len(names) == len(set(names))
