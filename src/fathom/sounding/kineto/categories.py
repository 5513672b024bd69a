"""What the categories of a trace mean. Older profilers and other vendors' runtimes spell some differently."""

OPS = ("cpu_op", "Operator", "operator")
ANNOTATIONS = ("user_annotation",)
FRAMES = ("python_function",)
CALLS = (
    "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver",
    "privateuse1_runtime", "privateuse1_driver", "mtia_runtime", "Runtime", "runtime",
)  # fmt: skip
KERNELS = ("kernel", "Kernel")
COPIES = ("gpu_memcpy", "Memcpy")
SETS = ("gpu_memset", "Memset")
# Read by no table: the device's image of an annotation, flows, the profiler's own time and spans.
IGNORED = (
    "gpu_user_annotation", "cpu_instant_event", "cuda_sync", "collective_comm", "overhead", "Trace",
    "ac2g", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "forward_backward",
)  # fmt: skip

ALLOCATOR = "[memory]"  # name of the instants at which the framework's allocator gave or took memory

# Phases of events that are no intervals: metadata, instants, counters, flows, asynchronous ones.
NO_INTERVALS = frozenset("MiICstfbenNDOPRcv(),")

# Kernels that move data between ranks, by name.
COLLECTIVES = (
    r"(?i)nccl|rccl|msccl|nvshmem|symm_mem|symmetric_memory|multimem|one_shot_all_reduce|two_shot_all_reduce"
    r"|cross_device_reduce|all_?reduce_(?:kernel|twoshot|oneshot)|lamport"
)
GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
# Work of these may overlap with what is in front of it on the stream: programmatic dependent launch allows
# it, and the branches of a graph are shown on one stream.
OVERLAPPING_LAUNCHES = ("cuLaunchKernelEx", "cudaLaunchKernelEx", *GRAPH_LAUNCHES)
