"""The ledger of every device: groups that unfold to entries, of the clean and of the profiled step."""

from __future__ import annotations

from typing import Any, TypedDict

from fathom.analysis.entries import meaning_of
from fathom.analysis.results import Device, LedgerRow
from fathom.report import units
from fathom.report.ledger import fold, groups, name, ran_ms, step_ms
from fathom.report.page.colours import of_entry
from fathom.report.page.figure import Figure, altair, coloured
from fathom.report.page.recording import Recording, Section
from fathom.report.table import LEGEND, as_profiled, speed_of_light

DEVICES = 8  # with a table each
ENTRIES = 40  # of a group
TABLE = 400  # rows of the data beneath the figure


class Entry(TypedDict):
    """An entry of one device, in the figure."""

    device: str
    entry: str
    ms: float
    place: int


def section(recording: Recording) -> Section | None:
    """Return the ledgers; None if no device has one."""
    devices = [device for device in recording.examination.devices if device.ledger]
    if not devices:
        return None
    tables = [_tables(device, len(devices) > 1, recording.noun) for device in devices[:DEVICES]]
    left = len(devices) - len(tables)
    more = f"{left} more devices are in the figure." if left > 0 else ""
    inferred = any(entry.inferred for device in devices[:DEVICES] for entry in device.ledger)
    return Section(
        "ledger",
        f"Where a {recording.noun} goes",
        {"devices": tables, "more": more, "inferred": inferred, "legend": LEGEND},
        [_figure(devices, recording.noun)],
        brief="Ledger",
    )


def _tables(device: Device, several: bool, noun: str) -> dict[str, object]:
    """Return the device's ledger of the clean step and, if it differs, of the profiled one."""
    both = device.observer_ms is not None and bool(device.profiled_ledger)
    views = [("clean" if device.observer_ms is not None else "as profiled", device)]
    views += [("profiled", as_profiled(device))] if both else []
    label = f"rank {device.rank} · {device.label}" if several else device.label
    least = device.at_ceiling_ms
    facts = [] if least is None else [(speed_of_light(device), units.duration(least))]
    shares = device.utilisation
    if shares is not None and shares.mfu is not None:
        facts.append(("MFU, of the measured ceiling", f"{units.share(shares.mfu, 1)} %"))
    if shares is not None and shares.mfu_datasheet is not None:
        facts.append(("MFU, of the datasheet peak", f"{units.share(shares.mfu_datasheet, 1)} %"))
    return {
        "key": f"r{device.rank}-{device.device.replace(':', '-')}",
        "label": f"{label} {device.name}".rstrip(),
        "views": [_view(title, shown, noun) for title, shown in views],
        "facts": facts,
    }


def _view(title: str, device: Device, noun: str) -> dict[str, object]:
    total = step_ms(device)
    digits = units.decimals(total)
    listed = []
    by_kernel = groups(device, by_launch=False)
    most = max((group.ms for group in by_kernel), default=0.0)
    for group in by_kernel:
        entries, rest = fold(group, total, ENTRIES)
        lines = [_line(entry, total, digits) for entry in entries]
        if rest:
            ms = sum(entry.ms for entry in rest)
            more = f"{len(rest)} {'other ' if entries else ''}{group.kind.members}"
            colour = of_entry(group.kind.name)
            lines.append(_empty(more, colour) | _amount(ms, total, digits))
        listed.append({
            "name": group.kind.title or group.kind.name, "colour": of_entry(group.kind.name),
            "members": group.kind.members, "largest": group.ms == most, "entries": lines,
            **_amount(group.ms, total, digits),
        })  # fmt: skip
    negative = [_line(entry, total, digits) for entry in device.ledger if entry.ms < 0]
    return {
        "title": title, "groups": listed, "negative": negative, "noun": noun, "total": f"{total:.{digits}f}",
        "whole": f"{noun} {title}" if title.startswith("as ") else f"{title} {noun}",
    }  # fmt: skip


def _empty(name: str, colour: str) -> dict[str, object]:
    return {"name": name, "full": name, "colour": colour, "meaning": "", "inferred": False, "facts": []}


def _amount(ms: float, total: float, digits: int) -> dict[str, object]:
    return {
        "ms": f"{ms:.{digits}f}",
        "share": units.signed_share(ms, total),
        "width": round(max(min(100 * ms / total, 100.0), 0.0), 2) if total else 0.0,
    }


def _line(entry: LedgerRow, total: float, digits: int) -> dict[str, object]:
    facts = []
    if entry.count is not None:
        facts.append(f"{entry.count:.3g} {'run' if entry.count == 1 else 'runs'}")
    facts += [units.scaled(entry.flops_per_s, "FLOP/s")] if entry.flops_per_s else []
    facts += [units.scaled(entry.bytes_per_s, "B/s")] if entry.bytes_per_s else []
    if entry.at_ceiling_ms and entry.bound and ran_ms(entry) and not entry.is_too_short:
        facts.append(f"{units.share(entry.at_ceiling_ms, ran_ms(entry))} % of {entry.bound}")
    facts += [f"impossible: {entry.problem}"] if entry.problem else []
    return {
        "name": name(entry), "full": f"{entry.entry} {entry.detail}".strip(), "colour": of_entry(entry.entry),
        "meaning": meaning_of(entry.entry), "inferred": entry.inferred, "facts": facts,
        **_amount(entry.ms, total, digits),
    }  # fmt: skip


def _figure(devices: list[Device], noun: str) -> Figure[Entry]:
    rows: list[Entry] = []
    table = [["Device", "Entry", "ms"]]
    for device in devices:
        label = f"rank {device.rank} {device.label}" if len(devices) > 1 else device.label
        for place, group in enumerate(groups(device)):
            rows.append({"device": label, "entry": str(group.kind.name), "ms": group.ms, "place": place})
            table.append([label, str(group.kind.name), f"{group.ms:.{units.decimals(step_ms(device))}f}"])
    return Figure(
        "ledger",
        f"Time of a {noun} by device",
        f"Stacked bars of {len(devices)} devices: compute, communication, copies and idle time in ms.",
        rows,
        _draw,
        table[:TABLE],
    )


def _draw(rows: list[Entry]) -> Any:
    alt = altair()
    colours = {entry: of_entry(entry) for entry in dict.fromkeys(row["entry"] for row in rows)}
    devices = list(dict.fromkeys(row["device"] for row in rows))
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="ms", stack="zero"),
            y=alt.Y("device:N", title=None, sort=devices, axis=alt.Axis(labelLimit=110)),
            color=coloured(alt, "entry", colours),
            order="place:Q",
            tooltip=["device:N", "entry:N", alt.Tooltip("ms:Q", format=".4~f")],
        )
        .properties(height=len(devices) * (26 if len(devices) < 32 else 10))
    )
