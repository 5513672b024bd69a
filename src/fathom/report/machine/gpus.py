"""GPUs and their links as text; equal GPUs share lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.machine.model import Gpu, Links, Machine
from fathom.report.machine.words import block, known, labelled, size, spans
from fathom.report.screen import grouped, joined

_MEANING = {
    "NV": "NV#: # NVLinks",
    "PIX": "PIX: one PCIe switch",
    "PXB": "PXB: several PCIe switches",
    "PHB": "PHB: the PCIe host bridge",
    "NODE": "NODE: host bridges of one NUMA node",
    "SYS": "SYS: from one NUMA node to another",
}


def lines(machine: Machine, cells: int) -> Iterator[Text]:
    """Yield a paragraph for each kind of GPU, the matrix of links, and readings that the driver refused."""
    gpus = machine.get("gpus") or []
    if not gpus:
        yield from labelled("gpus", f"none: {machine.get('why_no_gpu') or 'nothing was found'}", cells)
    alike = grouped((_facts(gpu), gpu) for gpu in gpus)
    for number, group in enumerate(alike.values()):
        yield from block("gpus" if number == 0 else "", _group(group, len(gpus)))
    yield from block("links", _matrix(machine.get("links") or {}))
    yield from labelled("not read", "; ".join(_refused(gpus)), cells, "dim")


def _group(group: list[Gpu], of: int) -> Iterator[Text]:
    first = group[0]
    count = f"{len(group)} × " if len(group) > 1 else ""
    indices = f"   GPU {spans(gpu['index'] for gpu in group)}" if len(group) < of else ""
    yield Text.assemble((f"{count}{first.get('name') or 'unknown GPU'}", "bold green"), (indices, "dim"))
    yield from (Text(fact) for fact in _facts(first)[1:] if fact)
    for part in first.get("mig_devices") or []:
        memory = size(part.get("memory_bytes"))
        yield Text(joined(str(part.get("name") or "MIG device"), known(part, _SMS), memory), "dim")


def _facts(gpu: Gpu) -> tuple[str, ...]:
    """Yield name, chip, clocks and power, links and switches."""
    family = " ".join(str(gpu[key]) for key in ("architecture", "compute_capability") if gpu.get(key))
    chip = joined(family, known(gpu, _SMS, "{memory_bytes:size}", "L2 {l2_bytes:size}"))
    clocks = known(gpu, "{sm_clock_max_mhz} MHz", "memory {memory_clock_max_mhz} MHz")
    between = f"{_POWER} ({{power_limit_min_w:.0f}} to {{power_limit_max_w:.0f}})"
    power = known(gpu, between) or known(gpu, _POWER)
    nvlink = gpu.get("nvlink") or {}
    links = known(nvlink, "NVLink {version} ×{links}") or known(nvlink, "NVLink ×{links}")
    switches = (
        f"{name} {_SWITCH[state]}"
        for name, state in (
            ("ECC", gpu.get("ecc")),
            ("MIG", gpu.get("mig")),
            ("persistence", gpu.get("persistence")),
        )
    )
    limits = joined(f"at most {clocks}" if clocks else None, power)
    return str(gpu.get("name")), chip, limits, joined(_pcie(gpu), links, *switches)


_SMS, _POWER = "{multiprocessors} SMs", "power limit {power_limit_w:.0f} W"
_SWITCH = {True: "on", False: "off", None: "unknown"}


def _pcie(gpu: Gpu) -> str:
    now = known(gpu, "PCIe {pcie_generation}.0 ×{pcie_width}")
    most = known(gpu, "PCIe {pcie_generation_max}.0 ×{pcie_width_max}")
    return f"{now} (at most {most.removeprefix('PCIe ')})" if now and most and most != now else now


def _matrix(links: Links) -> Iterator[Text]:
    """Yield the matrix with a legend of its abbreviations; nothing for a single device."""
    names, matrix = links.get("names") or [], links.get("matrix") or []
    if len(names) < 2:
        return
    wide = max(6, *(len(name) + 2 for name in names))
    yield Text(f"{'':<{wide}}" + "".join(f"{name:<{wide}}" for name in names), "dim")
    for name, row in zip(names, matrix, strict=False):
        line = Text(f"{name:<{wide}}", "dim")
        for cell in row:
            line.append(f"{cell or '?':<{wide}}", "green" if str(cell).startswith("NV") else "")
        yield line
    used = {str(cell)[:2] if str(cell).startswith("NV") else cell for row in matrix for cell in row}
    yield Text(joined(*(words for name, words in _MEANING.items() if name in used)), "dim")


def _refused(gpus: list[Gpu]) -> Iterator[str]:
    """Yield the readings that GPUs refused, grouped by reason."""
    reasons: dict[str, dict[str, set[int]]] = {}
    for gpu in gpus:
        for what, why in (gpu.get("abstained") or {}).items():
            reasons.setdefault(why, {}).setdefault(what, set()).add(gpu["index"])
    for why, readings in reasons.items():
        everywhere = all(len(indices) == len(gpus) for indices in readings.values())
        where = "" if everywhere else f"GPU {spans(set().union(*readings.values()))}, "
        yield f"{where}{', '.join(readings)}: {why}"
