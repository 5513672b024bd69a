"""The rates that bound each kind of work, from a machine's ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fathom.machine import datasheet
from fathom.machine.ceilings import Ceiling, from_machine
from fathom.machine.model import Gpu, Machine

MEASURED, DATASHEET = "measured", "datasheet"
MISSING, DOUBTFUL = "missing", "doubtful"  # states of ceilings that bound nothing
MATRIX = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
_MIXED = ("hbm.read", "hbm.copy", "hbm.triad")  # which access pattern is fastest differs between chips
_WRITTEN = {"hbm.read": 0.0, "hbm.triad": 1 / 3, "hbm.copy": 0.5, "hbm.write": 1.0}  # share of the traffic
_COPIES = {  # pageable copies use the pinned ceiling too, so that their extra cost shows as headroom
    "HtoD pinned": "copy.h2d.pinned",
    "HtoD pageable": "copy.h2d.pinned",
    "DtoH pinned": "copy.d2h.pinned",
    "DtoH pageable": "copy.d2h.pinned",
    "PtoP": "copy.peer",
}
_PATHS = {"h2d": "pcie", "d2h": "pcie", "peer": "link"}  # the datasheet's figure of each copy


@dataclass(frozen=True)
class Limits:
    """Rates in FLOP/s and B/s; None or absent if unknown. `source` is "measured" or "datasheet".

    `arithmetic` has `matmul.DTYPE`, which bounds matrix products, convolutions and attention, and
    `vector.fp32` and `vector.fp64`, which bound all other work. `memory` is the fastest of read, copy and
    triad; `writes` is the fastest of these and memset. `cache` bounds work whose tensors fit into
    `cache_bytes`. `mixed` maps the share of writes in the traffic to the memory rate, because switching
    between reads and writes costs time. `copies` is keyed by direction. `link` is the highest bus bandwidth
    of any collective. `launch_s` is the shortest time per kernel in a CUDA graph, in seconds.
    """

    arithmetic: dict[str, float] = field(default_factory=dict)
    memory: float | None = None
    writes: float | None = None
    mixed: dict[float, float] = field(default_factory=dict)
    cache: float | None = None
    cache_bytes: int = 0
    copies: dict[str, float] = field(default_factory=dict)
    link: float | None = None
    launch_s: float | None = None
    memory_name: str = "hbm"
    cache_name: str = "l2"
    source: str = MEASURED

    @property
    def measured(self) -> bool:
        """Whether the rates were measured on the machine."""
        return self.source == MEASURED

    def moving(self, written: float | None) -> float | None:
        """Return the memory rate in B/s if the share `written` (0 to 1) of the traffic is writes.

        Interpolates between the measured shares; without a share, returns `memory`.
        """
        if written is None or not self.mixed:
            return self.memory
        shares, rates = zip(*sorted(self.mixed.items()), strict=True)
        return float(np.interp(written, shares, rates))


def limits_of(machine: Machine, index: int | None) -> Limits | None:
    """Return the rates that bound work on GPU `index`, or on the processor if `index` is None.

    None if memory or matrix rates were not measured, or if others used many of the processors at the time;
    `why_no_limits` returns the reason.
    """
    return _host(machine) if index is None else _device(machine, index)


def bounds_of(machine: Machine, index: int | None) -> Limits | None:
    """Return `limits_of`, or the datasheet's peaks of a GPU whose rates were not measured.

    Programs hardly reach peaks, so no gain is predicted from them. Work in the L2 cache has no bound.
    """
    limits = limits_of(machine, index)
    return _published(machine, index) if limits is None and index is not None else limits


def lack_of_limits(machine: Machine, index: int | None) -> str:
    """Return DOUBTFUL if `limits_of` returns None because the machine was busy, else MISSING."""
    return DOUBTFUL if _busy(machine, index) else MISSING


def _busy(machine: Machine, index: int | None) -> list[Ceiling]:
    """Return the ceilings that were measured while others used many of the processors."""
    return [c for c in from_machine(machine) if c.device == index and not c.is_bound]


def why_no_limits(machine: Machine, index: int | None) -> str:
    """Return the reason why `limits_of` returns None, in one clause with the remedy."""
    busy = _busy(machine, index)
    if not busy:
        return "the ceilings of the recorded machine were not measured; run `fathom machine measure` on it"
    others = max(ceiling.conditions["others"] for ceiling in busy)
    return (
        f"others used {100 * others:.0f} % of the processors while its ceilings were measured; "
        "`fathom machine measure` measures them again"
    )


def peaks_of(machine: Machine, index: int | None) -> dict[str, float]:
    """Return the datasheet's dense matrix rates of GPU `index` in FLOP/s by ceiling; {} if there is none."""
    sheet = None if index is None else datasheet.find(_gpu(machine, index))
    figures = sheet.figures if sheet else {}
    return {name: figure.value for name, figure in figures.items() if name.startswith("matmul.")}


def _device(machine: Machine, index: int) -> Limits | None:
    known = _rates(from_machine(machine), index)
    matrix, vector = _by_dtype(known, "matmul.", MATRIX), _by_dtype(known, "vector.", ("fp32", "fp64"))
    memory = _fastest(known, _MIXED)
    if memory is None or not matrix:
        return None
    copies = {direction: known[name] for direction, name in _COPIES.items() if known.get(name)}
    return Limits(
        arithmetic=_named("matmul", matrix) | _named("vector", vector),
        memory=memory,
        writes=_fastest(known, _WRITTEN),
        mixed={share: known[name] for name, share in _WRITTEN.items() if known.get(name)},
        cache=known.get("l2.read"),
        cache_bytes=_cache_bytes(machine, index),
        copies=copies | {"DtoD": memory},
        link=_fastest(known, [name for name in known if name.startswith("collective.")]),
        launch_s=known.get("latency.graph_node"),
    )


def _published(machine: Machine, index: int) -> Limits | None:
    sheet = datasheet.find(_gpu(machine, index))
    if sheet is None:
        return None
    known = {name: figure.value for name, figure in sheet.figures.items()}
    matrix, vector = _by_dtype(known, "matmul.", MATRIX), _by_dtype(known, "vector.", ("fp32", "fp64"))
    if not known.get("hbm") or not matrix:
        return None
    paths = {direction: known.get(_PATHS[name.split(".")[1]]) for direction, name in _COPIES.items()}
    return Limits(
        arithmetic=_named("matmul", matrix) | _named("vector", vector),
        memory=known["hbm"],
        writes=known["hbm"],
        cache_bytes=_cache_bytes(machine, index),
        copies={direction: rate for direction, rate in paths.items() if rate} | {"DtoD": known["hbm"]},
        link=known.get("link"),
        source=DATASHEET,
    )


def _host(machine: Machine) -> Limits | None:
    """Return the processor's limits; its matrix rates bound all arithmetic, as its vector units do both."""
    known = _rates([c for c in from_machine(machine) if c.is_bound], None)
    matrix = _by_dtype(known, "host.matmul.", MATRIX)
    memory = _fastest(known, ("host.read", "host.copy", "host.triad"))
    if memory is None or not matrix:
        return None
    caches = (machine.get("host") or {}).get("cpu", {}).get("caches") or []
    return Limits(
        arithmetic=_named("matmul", matrix) | _named("vector", matrix),
        memory=memory,
        cache_bytes=max((cache.get("size_bytes") or 0 for cache in caches), default=0),
        memory_name="host memory",
        cache_name="cache",
    )


def _rates(ceilings: Sequence[Ceiling], device: int | None) -> dict[str, float]:
    """Return the rate of each ceiling by id: that of `device`, else the first one."""
    first = {ceiling.id: ceiling.value for ceiling in reversed(ceilings)}
    return first | {ceiling.id: ceiling.value for ceiling in reversed(ceilings) if ceiling.device == device}


def _by_dtype(known: dict[str, float], prefix: str, dtypes: Sequence[str]) -> dict[str, float]:
    return {dtype: known[prefix + dtype] for dtype in dtypes if known.get(prefix + dtype)}


def _fastest(known: dict[str, float], names: Iterable[str]) -> float | None:
    return max((known[name] for name in names if known.get(name)), default=None)


def _named(unit: str, rates: dict[str, float]) -> dict[str, float]:
    named = {f"{unit}.{dtype}": rate for dtype, rate in rates.items()}
    if "int8" in rates:
        named[f"{unit}.uint8"] = rates["int8"]  # the same instructions
    return named


def _cache_bytes(machine: Machine, index: int) -> int:
    gpu = _gpu(machine, index)
    sheet = datasheet.find(gpu)
    published = sheet.figure("l2") if sheet else None
    return int(gpu.get("l2_bytes") or (published.value if published else 0))


def _gpu(machine: Machine, index: int) -> Gpu:
    gpus = machine.get("gpus") or []
    first: Gpu = gpus[0] if gpus else {}
    return next((gpu for gpu in gpus if gpu.get("index") == index), first)
