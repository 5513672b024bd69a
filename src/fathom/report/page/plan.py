"""A plan as a page: ledger, front, scaling, and the assumptions that move the answer most."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

from fathom.planner.serving import Sensitivity
from fathom.planner.training import Assumption, Option, Plan
from fathom.report import units
from fathom.report.page.account import Bar, waterfall
from fathom.report.page.figure import Figure, altair
from fathom.report.page.page import rendered, write
from fathom.report.page.recording import Section, Top
from fathom.report.plan import between, facts, headline, rates, row_span
from fathom.units import GB, MS_PER_S

_COLOURS = {"compute": "#2a9d74", "communication": "#4a6fa5"}
_OTHER, _TOTAL = "#b98a2f", "#5b6470"
_TOP = 12
_FRONT = ("step_s", "memory_gb", "gpu_hours", "dollars", "megawatt_hours")


class Point(TypedDict):
    """A layout of the front."""

    gpus: int
    step: float
    cost: float
    layout: str


class Scaled(TypedDict):
    """The efficiency on a number of GPUs."""

    gpus: int
    efficiency: float
    extrapolated: bool


class Moved(TypedDict):
    """How far an assumption moves a result."""

    name: str
    moves: float
    provenance: str
    source: str


def save_plan(plan: Plan, path: Path) -> None:
    """Write the plan as one HTML file that loads nothing. Raises BadInputError if that fails."""
    top = Top(headline(plan), [facts(plan)], _tiles(plan), step=[rates(plan)], reason=" ".join(plan.notes))
    sections = [
        Section("plan-ledger", "Ledger", {}, [_ledger(plan)]),
        Section("plan-front", "Front", {}, [_front(plan)], "No other layout is both faster and cheaper."),
        Section("plan-scaling", "Scaling", {}, [_scaling(plan)]),
        Section("plan-sensitivity", "Sensitivity", {}, [_sensitivity(plan)]),
    ]
    write(rendered("Plan", top, sections), path)


def _tiles(plan: Plan) -> list[tuple[str, str]]:
    tiles = [
        (units.duration(MS_PER_S * plan.step.value), "step"),
        (f"{plan.memory.value / GB:.3g}\u00a0GB", "memory"),
    ]
    tiles += [(f"{100 * plan.mfu['model']:.1f}\u00a0%", "MFU")] if plan.mfu else []
    tiles += [(f"{100 * plan.checkpoint.goodput.value:.1f}\u00a0%", "goodput")] if plan.checkpoint else []
    return tiles + ([(f"${plan.dollars:,.0f}", "cost")] if plan.dollars else [])


def _ledger(plan: Plan) -> Figure[Bar]:
    rows: list[Bar] = []
    for part in plan.ledger:
        rows.append(bar(rows, f"{part.entry} · {part.detail}", part.ms, _COLOURS.get(part.entry, _OTHER)))
    about, total = "Parts that add up to the step.", MS_PER_S * plan.step.value
    step = [between(MS_PER_S * plan.step.low, MS_PER_S * plan.step.high, total), plan.provenance]
    known = [[row_span(row, total), row.provenance] for row in plan.ledger]
    return waterfall_of(rows, "step", total, about, [["Interval in ms", "Provenance"], *known, step])


def waterfall_of(
    rows: list[Bar], of: str, total: float, about: str, beside: list[list[str]] | None = None
) -> Figure[Bar]:
    """Return the figure of bars that add up to `total` ms; `beside` are more columns of its table."""
    rows = [*rows, bar([], of, total, _TOTAL) | {"row": len(rows)}]
    table = [["Entry", "Time"], *([row["label"], row["text"]] for row in rows)]
    table = [[*row, *more] for row, more in zip(table, beside or [[] for _ in table], strict=True)]
    return Figure("ledger", f"Where a planned {of} goes", about, rows, waterfall, table)


def bar(before: list[Bar], label: str, ms: float, colour: str = _OTHER) -> Bar:
    """Return the bar that begins where those before it end."""
    start = before[-1]["end"] if before else 0.0
    return {"row": len(before), "label": label, "start": start, "end": start + ms, "colour": colour,
            "kind": "step", "text": units.duration(ms)}  # fmt: skip


def _front(plan: Plan) -> Figure[Point]:
    rows: list[Point] = [
        {"gpus": o.gpus, "step": o.step_s, "cost": o.step_s * o.gpus, "layout": o.layout.words}
        for o in plan.front
    ]
    table = [["GPUs", "Step", "Memory", "GPU hours", "Dollars", "Energy", "Layout"]]
    table += [[str(o.gpus), *(_spanned(o, name) for name in _FRONT), o.layout.words] for o in plan.front]
    return Figure(
        "front", "Step time against GPU time", "One point for each number of GPUs.", rows, _points, table
    )


def _spanned(option: Option, name: str) -> str:
    """Return a figure of an option with its interval."""
    figure = option.figures.get(name)
    return units.spanned(figure, f" {figure.unit}") if figure else units.MISSING


def _points(rows: list[Point]) -> Any:
    alt = altair()
    chart = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("cost:Q", title="GPU seconds per step", scale=alt.Scale(zero=False)),
        y=alt.Y("step:Q", title="seconds per step", scale=alt.Scale(type="log")),
        tooltip=[alt.Tooltip("gpus:Q"), alt.Tooltip("layout:N")],
    )
    names = chart.mark_text(align="left", dx=8, style="ink").encode(text="gpus:Q")
    return (chart.mark_line(point=True) + names).properties(height=260)


def _scaling(plan: Plan) -> Figure[Scaled]:
    rows: list[Scaled] = [
        {"gpus": row.gpus, "efficiency": row.efficiency, "extrapolated": row.extrapolated}
        for row in plan.scaling
    ]
    table = [["GPUs", "Efficiency"], *([f"{r['gpus']:,}", f"{100 * r['efficiency']:.1f} %"] for r in rows)]
    about = "Efficiency of the same layout on more GPUs, with the wait for the slowest rank."
    return Figure("scaling", "Weak scaling", about, rows, _efficiency, table)


def _efficiency(rows: list[Scaled]) -> Any:
    alt = altair()
    chart = alt.Chart(alt.Data(values=rows)).mark_line(point=True)
    return chart.encode(
        x=alt.X("gpus:Q", title="GPUs", scale=alt.Scale(type="log")),
        y=alt.Y(
            "efficiency:Q", title="efficiency", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
        ),
        tooltip=[alt.Tooltip("gpus:Q"), alt.Tooltip("efficiency:Q", format=".1%")],
    ).properties(height=220)


def _sensitivity(plan: Plan) -> Figure[Moved]:
    about = "Change of the step from the low to the high end of each assumption."
    return sensitivity(plan.assumptions[:_TOP], "Which assumption moves the step most", about, "the step")


def sensitivity(
    assumptions: Iterable[Assumption | Sensitivity], title: str, about: str, what: str
) -> Figure[Moved]:
    """Return the figure of how far assumptions move a result."""
    rows: list[Moved] = [
        {"name": row.name, "moves": abs(row.moves), "provenance": row.provenance, "source": row.source}
        for row in assumptions
    ]
    table = [["Assumption", f"Moves {what} by", "Provenance", "Source"]]
    table += [[r["name"], f"{100 * r['moves']:.1f} %", r["provenance"], r["source"]] for r in rows]
    return Figure("sensitivity", title, about, rows, _bars, table)


def _bars(rows: list[Moved]) -> Any:
    alt = altair()
    chart = alt.Chart(alt.Data(values=rows)).mark_bar(height=12)
    return chart.encode(
        x=alt.X("moves:Q", title="change", axis=alt.Axis(format="%")),
        y=alt.Y("name:N", title=None, sort="-x", axis=alt.Axis(labelLimit=220)),
        color=alt.Color("provenance:N", title=None, legend=alt.Legend(orient="top")),
        tooltip=[alt.Tooltip("source:N")],
    ).properties(height=24 * max(1, len(rows)))
