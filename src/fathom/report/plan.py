"""A plan of a training job on the terminal: verdict, ledger, memory, front, scaling, assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.planner import ASSUMED, Quantity
from fathom.planner.training import Assumption, Checked, CheckedRow, Option, Plan, Row
from fathom.report import units
from fathom.report.screen import LEAST, show
from fathom.units import GB, MS_PER_S

BAR, NAME, TOP = 6, 39, 6
LARGE = 1e6  # values above are written with a power of ten
LITTLE = 0.001  # of the step: smaller rows share one line


def print_plan(plan: Plan, all_rows: bool = False) -> None:
    """Print a plan."""
    show(lambda width: _lines(plan, width, all_rows))


def _lines(plan: Plan, width: int, all_rows: bool) -> Iterator[Text]:
    yield Text(headline(plan), "bold")
    yield Text(facts(plan), "dim")
    yield Text(rates(plan), "dim")
    yield from (Text(f"! {note}", "yellow") for note in plan.notes)
    yield Text("")
    yield from _ledger(plan)
    yield Text("")
    yield from _memory(plan)
    yield from _loading(plan)
    yield from _checkpoint(plan)
    yield Text("")
    yield from _front(plan)
    if all_rows:
        yield Text("")
        yield from _scaling(plan)
    yield Text("")
    yield from _assumptions("assumption", plan.assumptions[: None if all_rows else TOP], width)
    if all_rows and plan.checkpoint:
        yield Text("")
        yield from _assumptions("of the goodput", plan.checkpoint.assumptions, width)


def headline(plan: Plan) -> str:
    """Return the sentence that states the step, its interval, and the layout."""
    step = plan.step
    low, high = (units.duration(MS_PER_S * value) for value in (step.low, step.high))
    return f"Step {units.duration(MS_PER_S * step.value)} ({low} to {high}) with {plan.layout.words}."


def facts(plan: Plan) -> str:
    """Return the line below the headline: the workload, and the assumptions of the plan."""
    planned = f"{plan.model} on {plan.gpus:,} {plan.system}, {plan.precision}, {plan.stack}"
    return f"{planned} · {plan.searched:,} layouts searched · {plan.provenance}"


def rates(plan: Plan) -> str:
    """Return the line of rates and costs, each with its interval."""
    days = plan.figures["hours"].times(1 / 24) if "hours" in plan.figures else None
    parts = [
        _spanned(plan.figures.get("tokens_per_s_per_gpu"), units.scaled, f"{plan.rate_unit} per GPU"),
        _spanned(plan.figures.get("mfu"), lambda v: f"{100 * v:.1f}", "% MFU"),
        _spanned(plan.figures.get("watts_per_gpu"), lambda v: f"{v:.0f}", "W per GPU"),
        _spanned(days, lambda v: f"{v:.3g}", "days"),
        _spanned(plan.figures.get("dollars"), lambda v: f"${v:,.0f}", ""),
        _spanned(
            plan.figures.get("megawatt_hours"), lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.3g}", "MWh"
        ),
    ]
    return " · ".join(part for part in parts if part)


def _spanned(q: Quantity | None, written: Callable[[float], str], unit: str) -> str:
    """Return a figure with its interval, and its provenance if it is assumed; empty without a figure."""
    if q is None:
        return ""
    return units.spanned(q, f" {unit}".rstrip(), written, ", assumed" if q.provenance == ASSUMED else "")


def _ledger(plan: Plan) -> Iterator[Text]:
    total = MS_PER_S * plan.step.value
    yield Text(f"{'where a step goes':<{NAME}}{'ms':>9}{'interval':>17}{'%':>7}", "dim underline")
    rows = sorted(plan.ledger, key=lambda row: -row.ms)
    small = [row for row in rows if row.ms < LITTLE * total]
    for row in rows[: len(rows) - len(small)]:
        line = _ledger_line(f"{row.entry} · {row.detail}", row.ms, total, row_span(row, total))
        bar = units.bar(row.ms / total, BAR)
        yield Text(f"{line}  ").append(bar, "green" if row.entry == "compute" else "yellow")
    if small:
        named = f"below {100 * LITTLE:.1f} % each: {', '.join(row.detail for row in small)}"
        low = sum(row.ms if row.low_ms is None else row.low_ms for row in small)
        high = sum(row.ms if row.high_ms is None else row.high_ms for row in small)
        yield Text(_ledger_line(named, sum(row.ms for row in small), total, between(low, high, total)), "dim")
    step = between(MS_PER_S * plan.step.low, MS_PER_S * plan.step.high, total)
    yield Text(_ledger_line("step", total, total, step), "bold")


def row_span(row: Row, total: float) -> str:
    """Return the interval of a row of a step of `total` ms; empty if it is unknown."""
    return "" if row.low_ms is None or row.high_ms is None else between(row.low_ms, row.high_ms, total)


def between(low: float, high: float, total: float) -> str:
    """Return an interval in ms, with the decimals that show `total`."""
    decimals = units.decimals(total)
    return f"{low:.{decimals}f}–{high:.{decimals}f}"


def _ledger_line(name: str, ms: float, total: float, span: str = "") -> str:
    figures = f"{ms:>9.{units.decimals(total)}f}{span:>17}{100 * ms / total:>7.1f}"
    return f"{units.shorten(name, NAME - 1):<{NAME}}{figures}"


def _memory(plan: Plan) -> Iterator[Text]:
    peak, limit = plan.memory, plan.memory_limit
    parts = sorted(plan.memory_parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {size / GB:.3g}" for name, size in parts)
    span = f"{peak.low / GB:.3g} to {peak.high / GB:.3g}"
    yield Text(f"memory {peak.value / GB:.3g} GB ({span}) of {limit / GB:.3g} GB usable")
    yield Text(f"  {listed}", "dim")


def _loading(plan: Plan) -> Iterator[Text]:
    loading = plan.loading
    if loading is None:
        return
    low, usual, high = (
        units.duration(MS_PER_S * value)
        for value in (loading.seconds.low, loading.seconds.value, loading.seconds.high)
    )
    waits = f"a step waits {units.duration(MS_PER_S * loading.wait_s)}" if loading.wait_s else "hidden"
    yield Text(f"input {usual} a step ({low} to {high}), {waits}; limited by {loading.limit}")


def _checkpoint(plan: Plan) -> Iterator[Text]:
    saved = plan.checkpoint
    if saved is None:
        return
    stop, write, between = (
        units.duration(MS_PER_S * value)
        for value in (saved.stop_s.value, saved.write_s.value, saved.interval_s)
    )
    goodput = saved.goodput
    days = f", {saved.wall_hours / 24:.3g} days in all" if saved.wall_hours else ""
    yield Text(
        f"checkpoint {_gigabytes(saved.bytes)} GB every {saved.every_steps:,} steps ({between}): stops "
        f"the job for {stop}, safe after {write}"
    )
    yield Text(
        f"goodput {100 * goodput.value:.1f} % ({100 * goodput.low:.1f} to {100 * goodput.high:.1f}){days}; "
        f"a failure every {saved.mtbf_h:.3g} h"
    )


def _front(plan: Plan) -> Iterator[Text]:
    if len(plan.front) < 2:
        return
    yield Text(
        f"{'GPUs':>8}{'step':>10}{'interval':>16}{'memory':>9}{'GPU h':>11}{'$':>12}{'MWh':>8}  layout",
        "dim underline",
    )
    for option in plan.front:
        costs = (option.gpu_hours, option.dollars, option.megawatt_hours)
        cells = [units.MISSING if value is None else f"{value:,.0f}" for value in costs]
        yield Text(
            f"{option.gpus:>8}{units.duration(MS_PER_S * option.step_s):>10}{_option_span(option):>16}"
            f"{option.memory_gb:>6.0f} GB{cells[0]:>11}{cells[1]:>12}{cells[2]:>8}  {option.layout.words}"
        )
    if any(option.gpu_hours for option in plan.front):
        yield Text(
            "GPU hours and dollars have the interval of the step; --json has those of memory and MWh.", "dim"
        )


def _option_span(option: Option) -> str:
    """Return the interval of an option's step in percent of the step; empty if it is unknown."""
    step = option.figures.get("step_s")
    if step is None:
        return ""
    low, high = (100 * (end / step.value - 1) for end in step.interval)
    return f"{low:+.0f} to {high:+.0f} %"


def _scaling(plan: Plan) -> Iterator[Text]:
    yield Text(f"{'weak scaling: GPUs':>20}{'step':>12}{'efficiency':>12}{'waiting':>10}", "dim underline")
    for row in plan.scaling:
        mark = "  extrapolated" if row.extrapolated else ""
        step = units.duration(MS_PER_S * row.step_s)
        yield Text(f"{row.gpus:>20,}{step:>12}{row.efficiency:>12.1%}{row.waiting:>10.1%}{mark}")


def _assumptions(title: str, rows: Sequence[Assumption], width: int) -> Iterator[Text]:
    yield Text(f"{title:<28}{'value':>10}{'interval':>20}{'effect':>8}  source", "dim underline")
    for row in rows:
        span = f"{_short(row.low)}–{_short(row.high)}"
        line = f"{row.name:<28}{_short(row.value):>10}{span:>20}{row.moves:>8.1%}  "
        yield Text(units.shorten(f"{line}{row.provenance}: {row.source}", width))


def _gigabytes(size: float) -> str:
    return f"{size / GB:,.0f}" if size >= 100 * GB else f"{size / GB:.3g}"


def _short(value: float) -> str:
    return units.significant(value) if abs(value) < LARGE else f"{value:.3g}"


def print_checked(checked: Checked, console: Console | None = None) -> None:
    """Print how far a recorded program is from its plan."""
    show(lambda width: _checked_lines(checked, width), console)


def _checked_lines(checked: Checked, width: int) -> Iterator[Text]:
    name = max(width - 33, LEAST)
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
