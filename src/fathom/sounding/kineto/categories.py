"""Categories of trace events. Older profilers and other vendors' runtimes use different names for some."""

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
# Not read: annotations mirrored on the device, flows, the profiler's own overhead and spans.
IGNORED = (
    "gpu_user_annotation", "cpu_instant_event", "cuda_sync", "collective_comm", "overhead", "Trace",
    "ac2g", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "forward_backward",
)  # fmt: skip

ALLOCATOR = "[memory]"  # name of the allocator's instant events
