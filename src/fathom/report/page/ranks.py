"""Ranks: a heat map of their entries against the median rank, late ranks, collectives."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any, TypedDict

from fathom.analysis.communication import Collective, Jitter
from fathom.analysis.results import Device, Examination
from fathom.report import communication, units
from fathom.report.ledger import by_entry, step_ms
from fathom.report.page.figure import Figure, altair
from fathom.report.page.recording import WIDTH, Recording, Section

ENTRIES = 8
COLLECTIVES = 40
TINY = 1e-9  # ms
LABELLED = 24  # ranks: more have cells too small for text


class Cell(TypedDict):
    """An entry of a rank in the heat map."""

    rank: str
    entry: str
    ms: float
    more: float  # than the median rank's, ms


def section(recording: Recording) -> Section | None:
    """Return the heat map and collectives; None for one device that does not communicate."""
    result = recording.examination
    devices = [device for device in result.devices if device.ledger]
    shared = [device.communication for device in devices if device.communication]
    if len(devices) < 2 and not shared:
        return None
    lost_ms = sum(r.cost_ms for r in result.late)
    late = [
        {"rank": r.rank, "last": f"{r.last} of {r.of}", "behind": units.duration(r.behind_ms),
         "cost": units.duration(r.cost_ms), "share": f"{100 * r.cost_ms / max(lost_ms, TINY):.0f} %",
         "where": communication.lost_in(r).removeprefix("; ")}
        for r in result.late
    ]  # fmt: skip
    rows = [_collective(row) for row in shared[0].collectives[:COLLECTIVES]] if shared else []
    figures = [_heat(devices)] if len(devices) > 1 else []
    first = f"Collectives of rank {devices[0].rank}" if devices else ""
    jitter = communication.varying(result.jitter, result.step.timeline_ms)[: communication.ROWS]
    content: dict[str, Any] = {"jitter": list(map(_jitter, jitter))}
    content["over"] = communication.over(jitter[0]) if jitter else ""
    content |= {"late": late, "notes": list(_notes(result)), "collectives": rows, "first": first}
    return Section("ranks", "Ranks", content, figures)


def _notes(result: Examination) -> Iterator[str]:
    """Yield the terminal's sentences about the pipeline and experts."""
    lines = (
        *communication.pipeline(result.pipeline, WIDTH),
        *communication.experts(result.experts, WIDTH),
    )
    return (" ".join(line.plain.split()) for line in lines)


def _jitter(row: Jitter) -> list[str]:
    figures = (row.total_p50_ms, row.total_p99_ms, row.total_p999_ms, row.late_p99_ms, row.transfer_p99_ms)
    return [communication.nth(row), *map(units.duration, figures)]


def _collective(row: Collective) -> dict[str, str]:
    bus, ceiling = row.bus_bytes_per_s, row.ceiling_bytes_per_s
    return {
        "name": communication.named(row), "count": f"{row.count:.3g}",
        "median": units.duration(row.median_ms),
        "waits": units.duration(row.waiting_ms), "exposed": units.duration(row.exposed_ms),
        "overlap": f"{100 * row.overlap:.0f} %", "bus": units.scaled(bus, "B/s"),
        "ceiling": f"{units.share(bus, ceiling)} %" if bus and ceiling else units.MISSING,
    }  # fmt: skip


def _heat(devices: list[Device]) -> Figure[Cell]:
    sums = [by_entry(device.ledger) for device in devices]
    totals: dict[str, float] = {}
    for entries_ms in sums:
        for entry, ms in entries_ms.items():
            totals[entry] = totals.get(entry, 0.0) + ms
    entries = sorted(totals, key=lambda entry: -totals[entry])[:ENTRIES]
    rows: list[Cell] = []
    for device, mine in zip(devices, sums, strict=True):
        for entry in [*entries, "step"]:
            every = [s.get(entry, 0.0) for s in sums] if entry != "step" else [step_ms(d) for d in devices]
            ms = mine.get(entry, 0.0) if entry != "step" else step_ms(device)
            rows.append(
                {
                    "rank": f"{device.rank} {device.label}",
                    "entry": entry,
                    "ms": ms,
                    "more": ms - median(every),
                }
            )
    table = [["Rank", "Entry", "ms", "Against the median, ms"]]
    table += [[r["rank"], r["entry"], f"{r['ms']:.3f}", f"{r['more']:+.3f}"] for r in rows[:400]]
    title = "Time by rank and entry, against the median rank"
    return Figure(
        "ranks", title, f"Heat map of {len(devices)} ranks and {len(entries)} entries.", rows, _draw, table
    )


def _draw(rows: list[Cell]) -> Any:
    alt = altair()
    ranks = list(dict.fromkeys(row["rank"] for row in rows))
    entries = list(dict.fromkeys(row["entry"] for row in rows))
    most = max((abs(row["more"]) for row in rows), default=0.0) or 1.0
    scale = alt.Scale(domain=[-most, 0, most], range=["#3b7dc4", "#eceae4", "#d9622b"], interpolate="rgb")
    base = alt.Chart(alt.Data(values=[row | {"text": units.significant(row["ms"])} for row in rows])).encode(
        x=alt.X(
            "entry:N", sort=entries, title=None, axis=alt.Axis(orient="top", labelAngle=-35, labelLimit=130)
        ),
        y=alt.Y("rank:N", sort=ranks, title="rank", axis=alt.Axis(labelLimit=90, labelOverlap=True)),
    )
    hover = ["rank:N", "entry:N", alt.Tooltip("ms:Q", format=".4~f"), alt.Tooltip("more:Q", format="+.4~f")]
    legend = alt.Legend(title="ms against the median", orient="bottom", gradientLength=140)
    cells = base.mark_rect().encode(color=alt.Color("more:Q", scale=scale, legend=legend), tooltip=hover)
    chart = cells
    if len(ranks) <= LABELLED:
        dark = alt.value("#1c2430")
        chart = cells + base.mark_text(fontSize=10).encode(text="text:N", color=dark).properties(name="wide")
    return chart.properties(height=len(ranks) * (24 if len(ranks) <= LABELLED else max(600 // len(ranks), 3)))
