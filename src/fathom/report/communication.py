"""Communication: its overlap with compute, a table of collectives, and ranks that arrive late."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis import CPU
from fathom.analysis.communication import (
    ON_HOST,
    Collective,
    Communication,
    ExpertLoad,
    Jitter,
    LateRank,
    Pipeline,
    steadily_late,
)
from fathom.analysis.entries import Entry
from fathom.analysis.results import CriticalPart, Device, Examination
from fathom.report import units
from fathom.report.screen import LEAST, columns_within, paragraph
from fathom.units import GB

SLOWED = 0.01  # of compute: less is not shown
ROWS, FEW = 8, 3
CAUSES = 2  # entries named for a late rank
COSTLY = 0.03  # of the step: a straggler or jitter that costs less is not shown
ON_PATH = 0.01  # of the step: shorter parts of the critical path are not shown
HANDED_OVER = 0.05  # of the waits for collectives of a host: less is not explained
CELL = 9  # columns of a number on the critical path
LATE = 0.05  # of all time lost to late ranks: ranks that lose less are not named
_SPREAD = {"p50": 8, "p99": 9, "p99.9": 9, "late p99": 10, "transfer p99": 14}
_COLUMNS = {"per step": 9, "median ms": 11, "waits ms": 10, "exposed ms": 12, "overlap": 9, "bus GB/s": 10,
            "of ceiling": 12}  # fmt: skip


def collectives(device: Device, width: int, top: int | None) -> Iterator[Text]:
    """Yield the table of a device's collectives; with `top` None, all of them."""
    communication = device.communication
    if communication is None:
        return
    columns = columns_within(_columns(communication), width)
    name = width - sum(columns.values())
    head = "".join(f"{title:>{room}}" for title, room in columns.items())
    yield Text(f"{'collectives':<{name}}{head}", "dim underline")
    shown = communication.collectives if top is None else communication.collectives[: min(top, ROWS)]
    digits = units.decimals(communication.total_ms)
    for row in shown:
        cells = "".join(f"{_cell(row, title, digits):>{room}}" for title, room in columns.items())
        yield Text(f"{units.shorten('  ' + named(row), name - 1):<{name}}{cells}")
    left = len(communication.collectives) - len(shown)
    if left:
        yield Text(f"  {left} more with --all", "dim")
    yield from paragraph("  ", _sum(communication) + _handed_over(device, communication), width, "dim")


def _handed_over(device: Device, communication: Communication) -> str:
    """Return how much longer the program waits than its backend communicates; "" unless that is long.

    Threads of the backend carry out collectives on a host. The ledger's times are those of the thread that
    waits for them, with the time to start them and to wake up.
    """
    waited = sum(row.ms for row in device.profiled_ledger if row.entry in ON_HOST)
    longer = waited - communication.exposed_ms
    if device.device != CPU or longer < HANDED_OVER * waited:
        return ""
    return (
        f"; the program waits {units.duration(waited)} in the profiled step, because handing collectives to "
        "the backend's threads and back takes time too"
    )


def _columns(communication: Communication) -> dict[str, int]:
    """Return the columns with their widths, without those that would be empty."""
    rows = communication.collectives
    known = {
        "waits ms": any(row.waiting_ms is not None for row in rows),
        "bus GB/s": any(row.bus_bytes_per_s for row in rows),
        "of ceiling": any(row.ceiling_bytes_per_s for row in rows),
    }
    return {title: room for title, room in _COLUMNS.items() if known.get(title, True)}


def named(row: Collective) -> str:
    """Return operation, size and dtype, like `all_reduce 17.6 MB bf16`, and the library if it is not NCCL."""
    size = "" if row.bytes is None else units.scaled(row.bytes, "B")
    library = "" if row.library in ("NCCL", "RCCL") else row.library
    return " ".join(filter(None, (library, row.operation, size, row.dtype)))


def _cell(row: Collective, title: str, digits: int) -> str:
    bus, ceiling, waiting = row.bus_bytes_per_s, row.ceiling_bytes_per_s, row.waiting_ms
    return {
        "per step": f"{row.count:.3g}",
        "median ms": f"{row.median_ms:.{digits}f}",
        "waits ms": units.MISSING if waiting is None else f"{waiting:.{digits}f}",
        "bus GB/s": units.MISSING if bus is None else units.rate(bus, GB) or "0",
        "of ceiling": f"{units.share(bus, ceiling)} %" if bus and ceiling else units.MISSING,
        "exposed ms": f"{row.exposed_ms:.{digits}f}",
        "overlap": f"{100 * row.overlap:.0f} %",
    }[title]


def _sum(communication: Communication) -> str:
    """Return the totals; concurrent collectives count once."""
    total, exposed = (units.duration(ms) for ms in (communication.total_ms, communication.exposed_ms))
    sources = dict.fromkeys(row.ceiling for row in communication.collectives if row.ceiling)
    ceilings = f"; ceilings of the links: {', '.join(sources)}" if sources else ""
    slowed = communication.slowed_ms
    beside = f"; compute takes {units.duration(slowed)} longer beside it than alone"
    return (
        f"{total} of communication per profiled step, {units.duration(communication.overlapped_ms)} "
        f"({100 * communication.overlap:.0f} %) overlaps with compute, {exposed} is exposed"
        f"{beside if slowed >= SLOWED * communication.compute_ms else ''}{ceilings}"
    )


def late(ranks: list[LateRank], width: int) -> Iterator[Text]:
    """Yield a line for each rank that others wait for, costliest first."""
    lost = [rank for rank in ranks if rank.score >= LATE and rank.cost_ms > 0]
    for number, rank in enumerate(lost[:ROWS]):
        at = ", ".join(f"{count} {name}" for name, count in rank.operations.items())
        text = (
            f"rank {rank.rank} arrives last at {rank.last} of {rank.of} collectives ({at}); all others "
            f"wait {units.duration(rank.cost_ms)} per step for it{lost_in(rank)}"
        )
        yield from paragraph("late      " if number == 0 else " " * 10, text, width)


def lost_in(rank: LateRank) -> str:
    """Return where a late rank spends more time than the median rank; empty if that is unknown."""
    entries = [f"{row.entry} +{units.duration(row.ms)}" for row in rank.entries[:CAUSES]]
    return f"; more time than on the median rank: {', '.join(entries)}" if entries else ""


def straggler(examination: Examination) -> str:
    """Return a sentence that names a rank that is steadily late and costs COSTLY of the step; else empty."""
    worst, step = next(iter(examination.late), None), examination.step
    step_ms = min(filter(None, (step.basis_ms, step.timeline_ms)), default=0.0)
    if worst is None or not step_ms or worst.cost_ms < COSTLY * step_ms or not steadily_late(worst):
        return ""
    host = f" on {worst.host}" if worst.host else ""
    share = f"{100 * worst.cost_ms / step_ms:.0f} %"
    return (
        f"Rank {worst.rank}{host} is late: all others wait {units.duration(worst.cost_ms)} per step for it "
        f"({share}){lost_in(worst)}."
    )


def jitter(rows: list[Jitter], step_ms: float | None, width: int, top: int | None = None) -> Iterator[Text]:
    """Yield a row for each collective that varies over steps by at least COSTLY of the step."""
    wide = varying(rows, step_ms)
    shown = wide if top is None else wide[:FEW]
    if not shown:
        return
    columns = columns_within(_SPREAD, width)
    name, digits = width - sum(columns.values()), units.decimals(step_ms or 0.0)
    head = "".join(f"{title:>{room}}" for title, room in columns.items())
    yield Text(f"{'jitter of collectives, ms':<{name}}{head}", "dim underline")
    for row in shown:
        figures = (
            row.total_p50_ms,
            row.total_p99_ms,
            row.total_p999_ms,
            row.late_p99_ms,
            row.transfer_p99_ms,
        )
        cells = "".join(
            f"{ms:>{room}.{digits}f}" for ms, room in zip(figures, columns.values(), strict=False)
        )
        yield Text(f"{units.shorten(f'  {nth(row)}', name - 1):<{name}}{cells}")
    left = f"; {len(wide) - len(shown)} more with --all" if top is not None and len(wide) > len(shown) else ""
    yield from paragraph("  ", f"{over(shown[0])}{left}", width, "dim")


def varying(rows: list[Jitter], step_ms: float | None) -> list[Jitter]:
    """Return the collectives whose p99 exceeds their median by at least COSTLY of the step."""
    return [row for row in rows if step_ms and row.total_p99_ms - row.total_p50_ms >= COSTLY * step_ms]


def nth(row: Jitter) -> str:
    """Return the operation and its place in the step, like `all_reduce, no. 30 in the step`."""
    return f"{row.operation}, no. {row.place + 1} in the step"


def over(row: Jitter) -> str:
    """Return the meaning of the figures of jitter."""
    return f"over {row.n} steps, since the median rank arrived: until the last rank arrived, then transfer"


def pipeline(line: Pipeline | None, width: int) -> Iterator[Text]:
    """Yield a line about the pipeline and one for each of its stages."""
    if line is None:
        return
    text = (
        f"{len(line.stages)} stages, {line.micro_batches} micro-batches per step, {line.schedule}; bubble "
        f"of equal stages {100 * line.expected:.0f} %; longest stage {100 * line.imbalance:.0f} % of mean"
    )
    yield from paragraph("pipeline  ", text, width)
    for stage in line.stages[:ROWS]:
        figures = f"compute {units.duration(stage.compute_ms)}, bubble {units.duration(stage.bubble_ms)}"
        yield Text(
            f"          stage {stage.place} on rank {stage.rank}: {figures} ({100 * stage.share:.0f} %)"
        )


def experts(loads: list[ExpertLoad], width: int) -> Iterator[Text]:
    """Yield a line about the tokens that each rank's experts get, most first."""
    if loads:
        most = sorted(loads, key=lambda load: -load.load)[:ROWS]
        text = ", ".join(f"rank {load.rank} {100 * load.load:.0f} %" for load in most)
        yield from paragraph("experts   ", f"tokens relative to the mean rank: {text}", width)


def critical(parts: list[CriticalPart], width: int) -> Iterator[Text]:
    """Yield a table of the work that determines the step, over ranks and streams."""
    shown = [part for part in parts if part.share >= ON_PATH]
    if not shown:
        return
    columns = "".join(f"{title:>{CELL}}" for title in ("rank", "stream", "ms", "of step"))
    name = max(width - len(columns), LEAST)
    yield Text(f"{'critical path through ranks and streams':<{name}}{columns}", "dim underline")
    digits = units.decimals(sum(part.ms for part in parts))
    for part in shown:
        between = part.entry in (Entry.DEVICE_GAP.cause, Entry.LAUNCH_LATENCY.cause)
        stream = units.MISSING if between else "host" if part.stream is None else str(part.stream)
        cells = (str(part.rank), stream, f"{part.ms:.{digits}f}", f"{100 * part.share:.0f} %")
        work = units.shorten(f"  {part.entry} {part.detail}".rstrip(), name - 1)
        yield Text(f"{work:<{name}}" + "".join(f"{cell:>{CELL}}" for cell in cells))
