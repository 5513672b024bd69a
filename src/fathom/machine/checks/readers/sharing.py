"""Other users of the GPUs, and this user's permissions."""

from __future__ import annotations

import os
import re

from fathom.machine.checks.gpu import Gpu, each, gpu_reader, gpus, how_many, on_off, switched
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.files import NotOfferedError
from fathom.machine.nvml import visible

MODES = {0: "shared", 1: "one thread", 2: "prohibited", 3: "one process"}
PROHIBITED = 2
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@gpu_reader("gpu.mig")
def mig(gpu: Gpu) -> Observation:
    current, pending = gpu.ask("MigMode")
    return switched("MIG", current, pending) or judged(not current, f"MIG is {on_off(current)}")


def _others(gpu: Gpu) -> list[int]:
    return [process.pid for process in gpu.ask("ComputeRunningProcesses") if process.pid != os.getpid()]


@gpu_reader("gpu.other_processes")
def other_processes(gpu: Gpu) -> Observation:
    pids = _others(gpu)
    return judged(not pids, f"in use by process {', '.join(map(str, pids))}" if pids else "free")


@reader("gpu.mps")
def mps(host: Host, check: Check) -> Answer:
    share = host.environment.get(PERCENTAGE, "")
    if _below(share, 100):
        gpus(host)
        return failed(f"{PERCENTAGE} leaves programs {share} % of the multiprocessors")

    def look(gpu: Gpu) -> Observation:
        pids, served = _others(gpu), _served(gpu)
        words = f"{len(pids)} processes, {served} through MPS"
        return judged(len(pids) < 2 or served > 0, words)

    return each(gpus(host), look)


def _below(text: str, limit: float) -> bool:
    return bool(re.fullmatch(r"\d+(\.\d*)?", text)) and float(text) < limit


def _served(gpu: Gpu) -> int:
    try:
        return len(gpu.ask("MPSComputeRunningProcesses"))
    except NotOfferedError:
        return 0


@gpu_reader("gpu.compute_mode")
def compute_mode(gpu: Gpu) -> Observation:
    mode = gpu.ask("ComputeMode")
    return judged(mode != PROHIBITED, f"compute mode: {MODES.get(mode, mode)}")


@reader("gpu.counters")
def counters(host: Host, check: Check) -> Observation:
    gpus(host)
    restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d)", host.text("proc/driver/nvidia/params"), re.M)
    if not restricted or restricted.group(1) == "0":
        return passed("every user may read hardware counters")
    may = capabilities(host, "CapEff") >> CAP_SYS_ADMIN & 1 or capabilities(host, "CapEff") >> CAP_PERFMON & 1
    words = "only administrators may read hardware counters"
    return passed(f"{words}, as this process may") if may else failed(words)


def capabilities(host: Host, which: str) -> int:
    """Read this process's capabilities as bits. Raises NotOfferedError if the kernel hides them."""
    mask = re.search(rf"^{which}:\s*([0-9a-fA-F]+)$", host.text("proc/self/status"), re.M)
    if not mask:
        raise NotOfferedError(f"the kernel does not show {which}")
    return int(mask.group(1), 16)


@reader("libraries.visible_devices")
def visible_devices(host: Host, check: Check) -> Observation:
    count = how_many(host)
    gpus(host)
    wanted = host.environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return passed(f"all {count} GPUs are visible")
    seen = len(visible(host.nvml, host.environment))
    return judged(seen == count, f"CUDA_VISIBLE_DEVICES={wanted} shows {seen} of {count} GPUs")
