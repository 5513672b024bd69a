"""A plan of a training job on the terminal: verdict, ledger, memory, front, scaling, assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from fathom.planner.training import Checked, CheckedRow, Plan
from fathom.report import units
from fathom.report.screen import show
from fathom.units import GB, MS_PER_S

BAR, NAME, TOP = 10, 46, 6


def print_plan(plan: Plan, console: Console | None = None, all_rows: bool = False) -> None:
    """Print a plan."""
    show(lambda width: _lines(plan, width, all_rows), console)


def _lines(plan: Plan, width: int, all_rows: bool) -> Iterator[Text]:
    yield Text(headline(plan), "bold")
    yield Text(facts(plan), "dim")
    yield from (Text(f"! {note}", "yellow") for note in plan.notes)
    yield Text("")
    yield from _ledger(plan)
    yield Text("")
    yield from _memory(plan)
    yield Text("")
    yield from _front(plan)
    if all_rows:
        yield Text("")
        yield from _scaling(plan)
    yield Text("")
    yield from _assumptions(plan, width, len(plan.assumptions) if all_rows else TOP)


def headline(plan: Plan) -> str:
    """Return the sentence that states the step, its interval, and the layout."""
    step = plan.step
    low, high = (units.duration(MS_PER_S * value) for value in (step.low, step.high))
    return f"Step {units.duration(MS_PER_S * step.value)} ({low} to {high}) with {layout_words(plan.layout)}."


def layout_words(layout: dict[str, Any]) -> str:
    """Return a layout in words: degrees above one, micro-batch, sharding, recomputation."""
    degrees = [f"{k}={layout[k]}" for k in ("dp", "shard", "tp", "pp", "vpp", "cp", "ep") if layout[k] > 1]
    again = [] if layout["recompute"] == "none" else [f"recompute={layout['recompute']}"]
    return " ".join([*degrees, f"micro={layout['micro']}", layout["sharding"], *again])


def facts(plan: Plan) -> str:
    """Return the line below the headline: what was planned, rates and costs."""
    parts = [
        f"{plan.model} on {plan.gpus} {plan.system}, {plan.precision}, {plan.stack}",
        f"{units.scaled(plan.tokens_per_s_per_gpu, 'tokens/s')} per GPU",
        f"MFU {100 * plan.mfu['model']:.1f} %",
        f"{plan.watts_per_gpu:.0f} W per GPU" if plan.watts_per_gpu else "",
        f"{plan.hours / 24:.3g} days" if plan.hours else "",
        f"${plan.dollars:,.0f}" if plan.dollars else "",
        f"{plan.megawatt_hours:,.3g} MWh" if plan.megawatt_hours else "",
        f"{plan.searched:,} layouts searched",
        plan.provenance,
    ]
    return " · ".join(part for part in parts if part)


def _ledger(plan: Plan) -> Iterator[Text]:
    total = MS_PER_S * plan.step.value
    yield Text(f"{'where a step goes':<{NAME}}{'ms':>12}{'%':>8}", "dim underline")
    for row in sorted(plan.ledger, key=lambda row: -row.ms):
        name = f"{row.entry} · {row.detail}"
        figures = f"{row.ms:>12.{units.decimals(total)}f}{100 * row.ms / total:>8.1f}"
        line = f"{units.shorten(name, NAME):<{NAME}}{figures}"
        yield Text(f"{line}  ").append(
            units.bar(row.ms / total, BAR), "green" if row.entry == "compute" else "yellow"
        )
    yield Text(f"{'step':<{NAME}}{total:>12.{units.decimals(total)}f}{100:>8.1f}", "bold")


def _memory(plan: Plan) -> Iterator[Text]:
    peak, limit = plan.memory, plan.memory_limit
    parts = sorted(plan.memory_parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {size / GB:.3g}" for name, size in parts)
    span = f"{peak.low / GB:.3g} to {peak.high / GB:.3g}"
    yield Text(f"memory {peak.value / GB:.3g} GB ({span}) of {limit / GB:.3g} GB usable")
    yield Text(f"  {listed}", "dim")


def _front(plan: Plan) -> Iterator[Text]:
    if len(plan.front) < 2:
        return
    yield Text(
        f"{'GPUs':>8}{'step':>12}{'memory':>10}{'GPU h':>12}{'$':>12}{'MWh':>9}  layout", "dim underline"
    )
    for option in plan.front:
        costs = (option.gpu_hours, option.dollars, option.megawatt_hours)
        cells = [units.MISSING if value is None else f"{value:,.0f}" for value in costs]
        yield Text(
            f"{option.gpus:>8}{units.duration(MS_PER_S * option.step_s):>12}{option.memory_gb:>7.0f} GB"
            f"{cells[0]:>12}{cells[1]:>12}{cells[2]:>9}  {layout_words(option.layout)}"
        )


def _scaling(plan: Plan) -> Iterator[Text]:
    yield Text(f"{'weak scaling: GPUs':>20}{'step':>12}{'efficiency':>12}{'waiting':>10}", "dim underline")
    for row in plan.scaling:
        mark = "  extrapolated" if row.extrapolated else ""
        step = units.duration(MS_PER_S * row.step_s)
        yield Text(f"{row.gpus:>20,}{step:>12}{row.efficiency:>12.1%}{row.waiting:>10.1%}{mark}")


def _assumptions(plan: Plan, width: int, count: int) -> Iterator[Text]:
    yield Text(f"{'assumption':<28}{'value':>10}{'interval':>20}{'effect':>8}  source", "dim underline")
    for row in plan.assumptions[:count]:
        span = f"{units.significant(row.low)}–{units.significant(row.high)}"
        line = f"{row.name:<28}{units.significant(row.value):>10}{span:>20}{row.moves:>8.1%}  "
        yield Text(units.shorten(f"{line}{row.provenance}: {row.source}", width))


def print_checked(checked: Checked, console: Console | None = None) -> None:
    """Print how far a recorded program is from its plan."""
    show(lambda width: _checked_lines(checked, width), console)


def _checked_lines(checked: Checked, width: int) -> Iterator[Text]:
    name = width - 33
    yield Text(checked.verdict, "bold")
    yield from (Text(f"! {note}", "yellow") for note in checked.notes)
    for title, rows in (("entry", checked.entries), ("kernels over 0.5 % of the step", checked.kernels)):
        yield Text("")
        yield Text(f"{title:<{name}}{'planned ms':>12}{'recorded':>12}{'off by':>9}", "dim underline")
        yield from (_checked_line(row, name) for row in rows)


def _checked_line(row: CheckedRow, name: int) -> Text:
    off = units.MISSING if row.error is None else f"{row.error:+.1%}"
    return Text(
        f"{units.shorten(row.name, name - 1):<{name}}{row.planned_ms:>12.3f}{row.recorded_ms:>12.3f}{off:>9}"
    )
