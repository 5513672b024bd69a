"""GPUs and their links as text; equal GPUs share lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from fathom.report.machine.words import block, labelled, size, spans
from fathom.report.screen import joined

Gpu = dict[str, Any]
_MEANING = {
    "NV": "NV#: # NVLinks",
    "PIX": "PIX: one PCIe switch",
    "PXB": "PXB: several PCIe switches",
    "PHB": "PHB: the PCIe host bridge",
    "NODE": "NODE: host bridges of one NUMA node",
    "SYS": "SYS: from one NUMA node to another",
}


def lines(machine: Gpu, cells: int) -> Iterator[Text]:
    """A paragraph for each kind of GPU, the matrix of links, and readings that the driver refused."""
    gpus = machine.get("gpus") or []
    if not gpus:
        yield from labelled("gpus", f"none: {machine.get('why_no_gpu') or 'nothing was found'}", cells)
    for number, group in enumerate(_alike(gpus)):
        yield from block("gpus" if number == 0 else "", _group(group, len(gpus)))
    yield from block("links", _matrix(machine.get("links") or {}))
    yield from labelled("not read", "; ".join(_refused(gpus)), cells, "dim")


def _alike(gpus: list[Gpu]) -> list[list[Gpu]]:
    """Groups of GPUs with the same facts."""
    groups: dict[tuple[str, ...], list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(_facts(gpu), []).append(gpu)
    return list(groups.values())


def _group(group: list[Gpu], of: int) -> Iterator[Text]:
    first = group[0]
    count = f"{len(group)} × " if len(group) > 1 else ""
    indices = f"   GPU {spans(gpu['index'] for gpu in group)}" if len(group) < of else ""
    yield Text.assemble((f"{count}{first.get('name') or 'unknown GPU'}", "bold green"), (indices, "dim"))
    yield from (Text(fact) for fact in _facts(first)[1:] if fact)
    for part in first.get("mig_devices") or []:
        memory = size(part.get("memory_bytes"))
        yield Text(joined(str(part.get("name") or "MIG device"), _sms(part), memory), "dim")


def _facts(gpu: Gpu) -> tuple[str, ...]:
    family = " ".join(str(gpu[key]) for key in ("architecture", "compute_capability") if gpu.get(key))
    l2 = gpu.get("l2_bytes")
    chip = joined(
        family,
        _sms(gpu),
        size(gpu["memory_bytes"]) if gpu.get("memory_bytes") else None,
        f"L2 {size(l2)}" if l2 else None,
    )
    clocks = joined(_clock(gpu), _power(gpu))
    switches = joined(
        *(f"{name.upper() if len(name) == 3 else name} {_switch(gpu.get(name))}" for name in _SWITCHES)
    )
    return str(gpu.get("name")), chip, clocks, joined(_pcie(gpu), _nvlink(gpu), switches)


_SWITCHES = ("ecc", "mig", "persistence")


def _sms(gpu: Gpu) -> str | None:
    return f"{gpu['multiprocessors']} SMs" if gpu.get("multiprocessors") else None


def _clock(gpu: Gpu) -> str | None:
    sm, memory = gpu.get("sm_clock_max_mhz"), gpu.get("memory_clock_max_mhz")
    both = joined(f"{sm} MHz" if sm else None, f"memory {memory} MHz" if memory else None)
    return f"at most {both}" if both else None


def _power(gpu: Gpu) -> str | None:
    now, least, most = (gpu.get(f"power_limit{end}_w") for end in ("", "_min", "_max"))
    if now is None:
        return None
    return f"power limit {now:.0f} W" + (f" ({least:.0f} to {most:.0f})" if least and most else "")


def _pcie(gpu: Gpu) -> str | None:
    now = (gpu.get("pcie_generation"), gpu.get("pcie_width"))
    most = (gpu.get("pcie_generation_max"), gpu.get("pcie_width_max"))
    if None in now:
        return None
    return f"PCIe {now[0]}.0 ×{now[1]}" + (
        f" (at most {most[0]}.0 ×{most[1]})" if None not in most and most != now else ""
    )


def _nvlink(gpu: Gpu) -> str | None:
    nvlink = gpu.get("nvlink")
    if not nvlink or not nvlink.get("links"):
        return None
    return f"NVLink {nvlink.get('version') or ''}".strip() + f" ×{nvlink['links']}"


def _switch(value: bool | None) -> str:
    return {True: "on", False: "off", None: "unknown"}[value]


def _matrix(links: dict[str, Any]) -> Iterator[Text]:
    """The matrix with a legend of its abbreviations; nothing for a single device."""
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
    """Readings that GPUs refused, grouped by reason."""
    reasons: dict[str, dict[str, set[int]]] = {}
    for gpu in gpus:
        for what, why in (gpu.get("abstained") or {}).items():
            reasons.setdefault(why, {}).setdefault(what, set()).add(gpu["index"])
    for why, what in reasons.items():
        everywhere = all(len(indices) == len(gpus) for indices in what.values())
        where = "" if everywhere else f"GPU {spans(set().union(*what.values()))}, "
        yield f"{where}{', '.join(what)}: {why}"
