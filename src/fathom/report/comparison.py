"""A comparison of soundings as text: the verdict, its causes, and the entries that add up to the change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.analysis.compare import (
    Cause,
    Change,
    ComparedRun,
    Figure,
    SoundingComparison,
    leading,
    name_of,
    percent,
)
from fathom.analysis.results import step_noun
from fathom.report import units
from fathom.report.screen import paragraph, reasons_of, show, within_margins
from fathom.report.verdict import STYLES
from fathom.units import NS_PER_MS

TOP = 12  # entries that moved, and causes
FIGURES = 12
COLUMN = 10
MARKS = {True: "●", False: " "}
LEGEND = "● moved by more than noise. The changes add up to that of the step ({basis} of {step}s)."
ASSUMED = (
    "A side is a single recording, so the variation between runs is assumed. Record each side several times "
    "to measure it: fathom compare --baseline A1 A2 --candidate B1 B2"
)


def print_sounding_comparison(
    comparison: SoundingComparison, console: Console | None = None, top: int | None = TOP
) -> None:
    """Print the comparison, 80 to 120 columns wide. `top` limits entries, causes and figures; None: all."""
    show(lambda width: within_margins(page(comparison, width - 2, top), width - 2), console)


def page(comparison: SoundingComparison, width: int, top: int | None = TOP) -> Iterator[Text]:
    """Yield the whole screen, one Text per line."""
    yield Text()
    yield _verdict(comparison)
    yield from (Text(line) for line in textwrap.wrap(leading(comparison), width, break_on_hyphens=False))
    for name in comparison.damaged:
        yield Text(f"{name} is damaged; `fathom report` says how", "yellow")
    yield from _sides(comparison, width)
    yield from _causes(comparison.causes, width, top)
    yield from _entries(comparison, width, top)
    yield from _figures(comparison.figures, width, top)
    if comparison.within_runs:
        yield from (Text(), *(Text(line, "dim") for line in textwrap.wrap(ASSUMED, width)))
    if comparison.abstained:
        yield Text()
        why = reasons_of((entry.why, entry.what) for entry in comparison.abstained)
        yield from paragraph("not compared  ", why, width, "dim", label_style="dim")
    yield Text()


def _verdict(comparison: SoundingComparison) -> Text:
    style = STYLES.get(comparison.verdict, "bold yellow")
    few = comparison.verdict == "inconclusive" and comparison.few_steps is not None
    before, after = (
        units.duration(ns / NS_PER_MS) for ns in (comparison.baseline_ns, comparison.candidate_ns)
    )
    line = Text.assemble((f" {comparison.verdict.upper()} ", style))
    line.append(f"  {before} → {after}  {percent(comparison.ratio)}", "bold")
    if comparison.interval is not None:
        low, high = map(percent, comparison.interval)
        line.append(f"   99 % interval {low} to {high}", "dim")
    return line.append("   too few steps", "yellow") if few else line


def _sides(comparison: SoundingComparison, width: int) -> Iterator[Text]:
    yield Text()
    for label, runs in (("baseline   ", comparison.baseline), ("candidate  ", comparison.candidate)):
        yield from paragraph(label, "; ".join(map(_run, runs)), width, hyphens=False)


def _run(run: ComparedRun) -> str:
    return f"{run.name} ({units.duration(run.step_ms)}, n = {run.steps})"


def _causes(causes: Sequence[Cause], width: int, top: int | None) -> Iterator[Text]:
    if not causes:
        return
    yield Text()
    room = width - COLUMN
    yield Text(f"{'why':<{room}}{'ms':>{COLUMN}}", "dim underline")
    # Differences between the programs come first: they may be the reason of all others.
    causes = sorted(causes, key=lambda cause: cause.change_ms is not None)
    for cause in causes[:top]:
        ms = "" if cause.change_ms is None else f"{cause.change_ms:+.3f}"
        yield Text(f"{units.shorten(cause_line(cause), room - 1):<{room}}{ms:>{COLUMN}}")
    if top is not None and len(causes) > top:
        yield Text(f"{len(causes) - top} more differences; --all shows them", "dim")


def cause_line(cause: Cause) -> str:
    """Return a cause in words: `dtype of aten::mm: bf16 → fp32`."""
    kind = "" if cause.what.startswith(cause.kind) or "launches" in cause.kind else f"{cause.kind}: "
    return f"{kind}{cause.what}: {units.shorten(cause.baseline, 44)} → {units.shorten(cause.candidate, 44)}"


def _entries(comparison: SoundingComparison, width: int, top: int | None) -> Iterator[Text]:
    total = max(comparison.baseline_ns, comparison.candidate_ns) / NS_PER_MS
    digits, room = units.decimals(total), width - 4 * COLUMN - 2
    shown = comparison.moved[:top]
    rest = [change for change in comparison.entries if change not in shown]
    yield Text()
    head = "".join(f"{name:>{COLUMN}}" for name in ("baseline", "candidate", "change", "noise ±"))
    yield Text(f"{'where the step changed':<{room}}  {head}", "dim underline")
    for change in shown:
        yield from _entry(change, room, digits)
    if rest:
        moved = sum(change.moved for change in rest)
        other = "other entries" if shown else "entries"
        within = _noise(rest, digits) if comparison.few_windows is None else "inconclusive: too few steps"
        label = f"{len(rest)} {other}, {f'{moved} of them moved' if moved else within}"
        before, after = (sum(getattr(c, name) for c in rest) for name in ("baseline_ns", "candidate_ns"))
        yield Text("  " + _row(label, before, after, None, room, digits), "dim")
    step = _row("step", comparison.baseline_ns, comparison.candidate_ns, None, room, digits)
    yield Text(f"  {step}", "bold")
    yield Text(LEGEND.format(basis=comparison.basis, step=step_noun(comparison.kind)), "dim")


def _noise(changes: Sequence[Change], digits: int) -> str:
    """Return what a change of an entry that did not move would have had to exceed, at most."""
    bands = [change.band_ns for change in changes if change.band_ns is not None]
    return f"within noise, at most ±{max(bands) / NS_PER_MS:.{digits}f} ms" if bands else "noise unknown"


def _entry(change: Change, room: int, digits: int) -> Iterator[Text]:
    style = "red" if change.change_ns > 0 else "green"
    line = Text(f"{MARKS[change.moved]} ", style)
    line.append(
        _row(name_of(change), change.baseline_ns, change.candidate_ns, change.band_ns, room, digits), style
    )
    yield line
    if change.aligned not in ("same", "baseline only", "candidate only") and change.baseline_details:
        yield Text(units.shorten(f"    was {change.baseline_details[0]}", room + 2), "dim")


def _row(label: str, before: int, after: int, band: float | None, room: int, digits: int) -> str:
    figures = [f"{ns / NS_PER_MS:.{digits}f}" for ns in (before, after)]
    figures.append(f"{(after - before) / NS_PER_MS:+.{digits}f}")
    figures.append("" if band is None else f"{band / NS_PER_MS:.{digits}f}")
    return f"{units.shorten(label, room - 1):<{room}}" + "".join(f"{figure:>{COLUMN}}" for figure in figures)


def _figures(figures: Sequence[Figure], width: int, top: int | None) -> Iterator[Text]:
    """Yield the figures of the step, and the counters and collectives that moved."""
    chosen = [figure for figure in figures if figure.moved or not figure.of]
    if not chosen:
        return
    room = width - 4 * COLUMN - 8
    yield Text()
    head = f"{'baseline':>{COLUMN + 2}}{'candidate':>{COLUMN + 2}}{'change':>{COLUMN}}{'noise ±':>{COLUMN}}"
    yield Text(f"{'figures':<{room + 4}}{head}", "dim underline")
    limit = None if top is None else FIGURES
    for figure in chosen[:limit]:
        yield _figure(figure, room)
    if limit is not None and len(chosen) > limit:
        yield Text(f"{len(chosen) - limit} more figures moved; --all shows them", "dim")


def _figure(figure: Figure, room: int) -> Text:
    worse = {"lower": figure.candidate > figure.baseline, "higher": figure.candidate < figure.baseline}
    style = (
        "" if not figure.moved else "red" if worse.get(figure.better) else "green" if figure.better else ""
    )
    change = f"{100 * (figure.candidate / figure.baseline - 1):+.1f} %" if figure.baseline else ""
    noise = (
        ""
        if figure.band is None or not figure.baseline
        else f"{100 * figure.band / abs(figure.baseline):.1f} %"
    )
    values = "".join(
        f"{amount(value, figure.unit):>{COLUMN + 2}}" for value in (figure.baseline, figure.candidate)
    )
    name = units.shorten(f"{figure.name} of {figure.of}" if figure.of else figure.name, room)
    line = f"{MARKS[figure.moved]} {name:<{room + 2}}{values}{change:>{COLUMN}}{noise:>{COLUMN}}"
    return Text(line, style)


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit: memory in binary units, shares as percentages."""
    if unit == "B":
        return units.memory(value)
    if unit == "ms":
        return units.duration(value)
    if unit == "J":
        return units.joules(value)
    if unit == "MHz":
        return f"{value:.0f} MHz"
    return f"{100 * value:.1f} %" if unit == "" and abs(value) <= 1 else units.scaled(value, unit)
