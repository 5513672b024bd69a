"""Names of the calls, regions and frames that show the cause of idle time."""

from __future__ import annotations

import re
from functools import lru_cache

import polars as pl

from fathom.analysis.entries import Entry

# Runtime and driver calls of CUDA and HIP.
APIS = {
    Entry.SYNCHRONISATION.cause: re.compile(
        r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|^(cuda|hip)Memcpy(|2D|3D|ToSymbol|FromSymbol|WithStream)$"
        r"|^(cuMemcpy|hipMemcpy)(HtoD|DtoH|DtoD)(_v2)?$"
    ),
    Entry.ALLOCATOR.cause: re.compile(
        r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostRegister|HostUnregister|HostFree|ExtMalloc)"
        r"|^cu(MemAlloc|MemFree|MemHostAlloc|MemCreate|MemRelease|MemMap|MemUnmap|MemSetAccess|MemAddress)"
        r"|^hipMem(Create|Release|Map|Unmap|SetAccess|Address)"
    ),
    Entry.COMPILATION.cause: re.compile(r"^(cu|hip)Link|^(nvrtc|hiprtc)"),
    Entry.FIRST_USE.cause: re.compile(r"^(cu|hip)(ModuleLoad|LibraryLoad|LibraryGet)"),
}
FREES = r"^(cuda|hip)Free(Async)?$|^cu(MemFree|MemRelease|MemUnmap)"

# Annotated regions and Python frames, by the names that profilers give them.
REGIONS = {
    Entry.INPUT.cause: re.compile(r"^enumerate\(DataLoader\)#|train_dataloader_next|val_next|^DataPipe"),
    Entry.COMPILATION.cause: re.compile(
        r"\(dynamo_timed\)|^torch/_dynamo/convert_frame\.py\(\d+\): (_compile|compile_inner)$"
        r"|^triton/(runtime/jit\.py\(\d+\): _do_compile|compiler/compiler\.py\(\d+\): compile)$"
        r"|^torch/_inductor/compile_fx\.py\(\d+\): compile_fx"
    ),
    Entry.CHECKPOINT.cause: re.compile(
        r"^torch/serialization\.py\(\d+\): (save|load)$"
        r"|^torch/distributed/checkpoint/state_dict_(saver|loader)\.py\(\d+\): (async_)?(save|load)$"
        r"|^safetensors/torch\.py\(\d+\): (save|load)_file$"
    ),
}

IN_PROCESS = "_SingleProcessDataLoaderIter"  # in the name of an input region: a loader without workers
STEPS = r"^(ProfilerStep#|execute_(\d+_)?context_)"  # regions with a number in the name
OPTIMIZER_REGION = "Optimizer."  # begins the names of the regions of torch's optimizers
OPTIMIZER_STEP, ZEROING = f"{OPTIMIZER_REGION}step#", f"{OPTIMIZER_REGION}zero_grad#"
AUTOGRAD = "autograd::engine::evaluate_function"  # only the engine's threads open ops of this name
# The engine's ops by the start of their names; before torch 1.9, profilers recorded only the second.
ENGINE = (AUTOGRAD, "torch::autograd::AccumulateGrad")


def of_engine() -> pl.Expr:
    """Return whether an op is one of autograd's engine, by its name."""
    return pl.any_horizontal(pl.col("name").str.starts_with(name) for name in ENGINE)


NATIVE_REGION = re.compile(r"^(nccl|gloo|mpi|ucc):|^fathom\.")  # annotations that no Python frame opened
# Without `\w`, because polars takes milliseconds to compile all letters of Unicode.
LAUNCH = r"^(cuda|hip|cu)[A-Za-z0-9_]*(LaunchKernel|GraphLaunch|LaunchCooperative|MemcpyAsync|MemsetAsync)"
COPIES = r"^(cuda|hip|cu)Memcpy"
RECEIVE = re.compile(r"recv", re.IGNORECASE)  # a point-to-point receive, by its kernel's name


@lru_cache(1 << 12)  # there are few different names
def api_cause(api: str) -> str | None:
    """Return the cause of idle time that the name of a runtime call indicates, or None."""
    return _first(APIS, api)


@lru_cache(1 << 12)
def region_cause(name: str) -> str | None:
    """Return the cause of idle time that the name of a region or frame indicates, or None."""
    return _first(REGIONS, name)


def _first(table: dict[str, re.Pattern[str]], name: str) -> str | None:
    return next((cause for cause, known in table.items() if known.search(name)), None)
