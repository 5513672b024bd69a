"""The roofline: kernel families against the ceilings of the machine."""

from __future__ import annotations

from math import log10
from typing import Any, TypedDict, final

from fathom.analysis.results import Device, LedgerRow
from fathom.machine import Limits, bounds_of, why_no_limits
from fathom.report import units
from fathom.report.ledger import name, ran_ms
from fathom.report.page.colours import SERIES
from fathom.report.page.figure import Figure, altair, coloured
from fathom.report.page.recording import Recording, Section

MOST = 120  # families
ROOM = 3.0  # times the smallest and largest intensity, at both ends of the axis
COUNTERS = 4  # in a point's tooltip


@final
class Point(TypedDict):
    """A kernel family: `y` FLOP/s at `x` FLOP/B."""

    kernel: str
    x: float
    y: float
    ms: float
    time: str
    rate: str
    traffic: str
    reaches: str
    bound: str
    counters: str


@final
class RoofEnd(TypedDict):
    """An end of a roof."""

    roof: str
    level: bool
    x: float
    y: float


def section(recording: Recording) -> Section | None:
    """Return the roofline of the first device; None if no family's FLOPs and bytes are known."""
    device = next((d for d in recording.examination.devices if d.ledger), None)
    if device is None:
        return None
    points = _points(device, _counters(recording, device))
    if not points:
        return None
    limits = bounds_of(recording.machine, _index(device))
    roofs = [] if limits is None else _roofs(limits, points)
    table = [["Kernel", "ms", "FLOP/B", "FLOP/s", "% of ceiling", "Bound"]]
    table += [
        [p["kernel"], p["time"], units.significant(p["x"]), p["rate"], p["reaches"], p["bound"]]
        for p in points
    ]
    ceilings = {roof["roof"]: "" for roof in roofs}
    drawn: list[Point | RoofEnd] = [*points, *roofs]
    figure = Figure(
        "roofline",
        f"Achieved rate by arithmetic intensity, with {device.ceilings or 'unknown'} ceilings",
        f"{len(points)} kernel families on logarithmic axes. Ceilings: {', '.join(ceilings) or 'unknown'}.",
        drawn,
        _draw,
        table,
    )
    note = "" if roofs else f"No ceiling applies: {why_no_limits(recording.machine, _index(device))}."
    return Section("roofline", "Roofline", {}, [figure], note)


def _index(device: Device) -> int | None:
    place = device.device.rpartition(":")[2]
    return int(place) if place.isdigit() else None


def _counters(recording: Recording, device: Device) -> dict[str, str]:
    """Return the most used resources of each family as text."""
    counters = {}
    for portrait in recording.portraits:
        if (portrait.rank, portrait.device) == (device.rank, device.device):
            used = sorted((m for m in portrait.measures if m.resource), key=lambda m: -m.value)[:COUNTERS]
            counters[portrait.family] = ", ".join(f"{m.title} {m.value:.0f} {m.unit}" for m in used)
    return counters


def _points(device: Device, counters: dict[str, str]) -> list[Point]:
    known = [row for row in device.ledger if row.flops and row.bytes and row.flops_per_s and row.ms > 0]
    known = sorted(known, key=lambda row: -row.ms)[:MOST]
    return [_point(row, counters.get(row.detail, "")) for row in known]


def _point(row: LedgerRow, counters: str) -> Point:
    assert row.flops and row.bytes and row.flops_per_s
    share = (
        units.share(row.at_ceiling_ms, ran_ms(row)) if row.at_ceiling_ms and ran_ms(row) else units.MISSING
    )
    return {
        "kernel": name(row), "x": row.flops / row.bytes, "y": row.flops_per_s, "ms": row.ms,
        "time": units.duration(row.ms), "rate": units.scaled(row.flops_per_s, "FLOP/s"),
        "traffic": units.scaled(row.bytes_per_s, "B/s"), "reaches": share,
        "bound": row.bound or "unknown", "counters": counters or "not recorded",
    }  # fmt: skip


def _roofs(limits: Limits, points: list[Point]) -> list[RoofEnd]:
    """Return the ends of each roof: bandwidth rises with intensity, arithmetic is level."""
    left, right = min(p["x"] for p in points) / ROOM, max(max(p["x"] for p in points) * ROOM, 1000.0)
    used = {point["bound"] for point in points}
    level = {n: rate for n, rate in limits.arithmetic.items() if n in used or n == "vector.fp32"}
    level = level or dict(sorted(limits.arithmetic.items(), key=lambda item: -item[1])[:1])
    highest = max(level.values(), default=0.0)
    slopes = {limits.memory_name: limits.memory, limits.cache_name: limits.cache}
    rows: list[RoofEnd] = []
    for roof, bandwidth in slopes.items():
        if bandwidth:
            end = min(highest / bandwidth, right) if highest else right
            label = f"{roof} {units.scaled(bandwidth, 'B/s')}"
            rows += [{"roof": label, "level": False, "x": x, "y": x * bandwidth} for x in (left, end)]
    for rate in dict.fromkeys(level.values()):
        roof = ", ".join(name for name, other in level.items() if other == rate)
        label = f"{roof} {units.scaled(rate, 'FLOP/s')}"
        rows += [{"roof": label, "level": True, "x": x, "y": rate} for x in (left, right)]
    return rows


def _draw(rows: list[Point | RoofEnd]) -> Any:
    alt = altair()
    points, roofs = [r for r in rows if "kernel" in r], [r for r in rows if "roof" in r]
    bounds = dict(zip(dict.fromkeys(p["bound"] for p in points), SERIES * 4, strict=False))
    low = 10 ** int(log10(min(r["y"] for r in points)) - 0.5)
    high = 3 * max(r["y"] for r in rows)
    wide = [min(r["x"] for r in rows), max(r["x"] for r in rows)]
    wide = wide if roofs else [wide[0] / ROOM, wide[1] * ROOM]  # a large dot at an edge would be cut
    axis = {"format": "~s", "tickCount": 6, "gridOpacity": 0.6}
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", domain=wide, nice=False),
        title="arithmetic intensity (FLOP/B)",
        axis=alt.Axis(**axis | {"format": "~g"}),
    )
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y("y:Q", scale=scale, title="FLOP/s", axis=alt.Axis(**axis))
    hover = [
        "kernel:N",
        "time:N",
        "rate:N",
        "traffic:N",
        "bound:N",
        alt.Tooltip("reaches:N", title="% of ceiling"),
    ]
    dots = alt.Chart(alt.Data(values=points)).mark_circle(
        opacity=0.75, stroke="white", strokeWidth=0.5, clip=True
    )
    dots = dots.encode(
        x=x,
        y=y,
        size=alt.Size("ms:Q", scale=alt.Scale(range=[20, 700]), legend=None),
        color=coloured(alt, "bound", bounds),
        tooltip=[*hover, "counters:N"],
    )
    if not roofs:
        return dots.properties(height=360)
    lines = alt.Chart(alt.Data(values=roofs)).mark_line(
        strokeWidth=1.2, strokeDash=[5, 3], color="#8a8f98", clip=True
    )
    lines = lines.encode(x=x, y=y, detail="roof:N", tooltip="roof:N")
    left = roofs[0]["x"]
    levels = [row for row in roofs if row["level"] and row["x"] > left]
    named = alt.Chart(alt.Data(values=levels)).mark_text(
        align="right", dx=-4, dy=-7, fontSize=11, style="ink"
    )
    names = named.encode(x=x, y=y, text="roof:N")
    slopes = [row for row in roofs if not row["level"] and row["x"] == left]
    for row, below in zip(sorted(slopes, key=lambda row: row["y"]), (14, -24), strict=False):
        named = alt.Chart(alt.Data(values=[row])).mark_text(
            align="left", dx=2, dy=below, fontSize=11, style="ink"
        )
        names += named.encode(x=x, y=y, text="roof:N")
    return (lines + dots + names).properties(height=380)
