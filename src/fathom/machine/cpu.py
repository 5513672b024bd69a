"""Describe the processor: sockets, cores, caches, clocks, NUMA nodes, relevant instruction sets."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from fathom.machine import cgroup
from fathom.machine.files import ROOT, integer, names, number, parse_list, text
from fathom.machine.model import Cache, Cpu, NumaNode

# fmt: off
MATTER = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni",
    "amx_tile", "amx_bf16", "amx_int8", "amx_fp16", "asimd", "asimdhp", "asimddp", "sve", "sve2",
    "bf16", "svebf16", "i8mm", "sme",
)
# fmt: on


def read_cpu(root: Path = ROOT) -> Cpu:
    """Describe the processor; fields that the kernel hides are None."""
    info = text(root / "proc/cpuinfo")
    return {
        "model": model(root),
        "architecture": platform.machine(),
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "quota_cores": cgroup.quota(root),
        "numa_nodes": max(1, len(list((root / "sys/devices/system/node").glob("node[0-9]*")))),
        "vendor": _field(info, "vendor_id|CPU implementer"),
        "family": _integer(_field(info, "cpu family")),
        "model_number": _integer(_field(info, r"model|CPU part")),
        "stepping": _integer(_field(info, "stepping|CPU revision")),
        **_topology(root),
        **_clocks(root, info),
        "caches": _caches(root),
        "features": _features(info),
    }


def model(root: Path = ROOT) -> str:
    """Return the processor's name from the kernel, or the architecture if it has none."""
    name = _field(text(root / "proc/cpuinfo"), "model name|Model|cpu model")
    return name or platform.processor() or platform.machine()


def _field(info: str, name: str) -> str | None:
    line = re.search(rf"^(?:{name})[ \t]*:[ \t]*(\S.*)$", info, re.M)
    return line.group(1).strip() if line else None


def _integer(word: str | None) -> int | None:
    try:
        return None if word is None else int(word[:20], 0)
    except ValueError:
        return None


def _topology(root: Path) -> Cpu:
    """Return sockets, physical cores, and whether SMT is on."""
    folder = root / "sys/devices/system/cpu"
    cpus = [folder / name / "topology" for name in names(folder) if re.fullmatch(r"cpu\d+", name)]
    sockets = {number(cpu / "physical_package_id") for cpu in cpus} - {None}
    cores = {text(cpu / "thread_siblings_list").strip() for cpu in cpus} - {""}
    return {
        "sockets": len(sockets) or None,
        "physical_cores": len(cores) or None,
        "threads_per_core": max((len(parse_list(core)) for core in cores), default=None),
        "smt": {0: False, 1: True}.get(number(folder / "smt/active")),  # type: ignore[arg-type]
    }


def _clocks(root: Path, info: str) -> Cpu:
    """Return the highest clock and the nominal clock in MHz; the nominal one may come from the model name."""
    khz = number(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    base = number(root / "sys/devices/system/cpu/cpu0/cpufreq/base_frequency")
    named = re.search(r"@\s*([\d.]+)\s*GHz", _field(info, "model name") or "")
    nominal = base / 1000 if base else float(named.group(1)) * 1000 if named else None
    return {"clock_max_mhz": khz / 1000 if khz else None, "clock_nominal_mhz": nominal}


def _caches(root: Path) -> list[Cache]:
    """Return the first processor's caches."""
    folder = root / "sys/devices/system/cpu/cpu0/cache"
    return [_cache(folder / name) for name in names(folder) if name.startswith("index")]


def _cache(path: Path) -> Cache:
    size = re.fullmatch(r"(\d{1,12})([KMG]?)", text(path / "size").strip())
    kind = {"Data": "d", "Instruction": "i"}.get(text(path / "type").strip(), "")
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return {
        "name": f"L{text(path / 'level').strip()}{kind}",
        "size_bytes": int(size.group(1)) * scale[size.group(2)] if size else None,
        "shared_by": len(parse_list(text(path / "shared_cpu_list"))) or None,
    }


def _features(info: str) -> list[str]:
    flags = set((_field(info, "flags|Features") or "").split())
    return [name for name in MATTER if name in flags]


def numa_nodes(root: Path = ROOT) -> list[NumaNode]:
    """Return the NUMA nodes."""
    folder = root / "sys/devices/system/node"
    return [_node(folder / name) for name in names(folder) if re.fullmatch(r"node\d+", name)]


def _node(path: Path) -> NumaNode:
    size = re.search(r"MemTotal:\s+(\d{1,20}) kB", text(path / "meminfo"))
    return {
        "node": int(path.name.removeprefix("node")),
        "cpus": text(path / "cpulist").strip(),
        "memory_bytes": int(size.group(1)) * 1024 if size else None,
        "distances": [d for word in text(path / "distance").split() if (d := integer(word)) is not None],
    }
