"""A comparison of soundings as text: the verdict, its causes, and the entries that add up to the change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from fathom.analysis.compare import (
    CLEAN,
    OF_PROGRAM,
    Cause,
    Change,
    ComparedRun,
    Figure,
    SoundingComparison,
    incomparable,
    leading,
    name_of,
    percent,
)
from fathom.analysis.folding import is_share
from fathom.analysis.results import step_noun
from fathom.report import units
from fathom.report.screen import LEAST, paragraph, reasons_of, show_within_margins
from fathom.report.verdict import STYLES
from fathom.units import NS_PER_MS

TOP = 12  # entries that moved, and causes
FIGURES = 12
LARGE, PART, FEW = 0.05, 0.1, 3  # of the step, of its change: entries shown though they are within noise
COLUMN = 10
ROOMY = 140  # letters of a cause
ARROW = " → "
MARKS = {True: "●", False: " "}
SUM = "The changes add up to that of the step ({basis} of {step}s)."
MOVED = "● moved by more than noise. "
OF_STEPS = ("step", "input", "energy")  # groups of figures that are means over steps
MEANS = "Rates and figures per step are those of the mean step, not of the median one."
ASSUMED = (
    "A side is a single recording, so the variation between runs is assumed. Record each side several times "
    "to measure it: fathom compare --baseline A1 A2 --candidate B1 B2"
)


def print_sounding_comparison(
    comparison: SoundingComparison, console: Console | None = None, top: int | None = TOP
) -> None:
    """Print the comparison, 40 to 120 columns wide. `top` limits entries, causes and figures; None: all."""
    show_within_margins(lambda width: page(comparison, width, top), console)


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
    yield from _figures(comparison, width, top)
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
    if incomparable(comparison):
        line.append("   not comparable: see the end", "yellow")
    return line.append("   too few steps", "yellow") if few else line


def _sides(comparison: SoundingComparison, width: int) -> Iterator[Text]:
    yield Text()
    for label, runs in (("baseline   ", comparison.baseline), ("candidate  ", comparison.candidate)):
        yield from paragraph(label, runs_in_words(runs), width, hyphens=False)


def runs_in_words(runs: Sequence[ComparedRun]) -> str:
    """Return the recordings of a side, each with its step and the number of its steps."""
    return "; ".join(map(_run, runs))


def _run(run: ComparedRun) -> str:
    return f"{run.name} ({units.duration(run.step_ms)}, n = {run.steps})"


def _causes(causes: Sequence[Cause], width: int, top: int | None) -> Iterator[Text]:
    if not causes:
        return
    yield Text()
    room = width - COLUMN
    yield Text(f"{'why':<{room}}{'ms':>{COLUMN}}", "dim underline")
    for line, ms in cause_rows(causes, room - 1)[:top]:
        yield Text(f"{line:<{room}}{ms:>{COLUMN}}")
    if top is not None and len(causes) > top:
        yield Text(f"{len(causes) - top} more differences; --all shows them", "dim")


def cause_rows(causes: Sequence[Cause], room: int = ROOMY) -> list[tuple[str, str]]:
    """Return the causes in words of at most `room` letters, and their milliseconds.

    Differences between the programs come first: they may be the reason of all others.
    """
    ordered = sorted(causes, key=lambda cause: cause.kind not in OF_PROGRAM)
    return [(cause_line(c, room), "" if c.change_ms is None else f"{c.change_ms:+.3f}") for c in ordered]


def cause_line(cause: Cause, room: int = ROOMY) -> str:
    """Return a cause in at most `room` letters: `dtype of aten::mm: bf16 → fp32`. Both sides stay visible."""
    named = cause.what.startswith(cause.kind) or cause.kind in ("more launches", "fewer launches")
    kind = "" if named or cause.kind == "kernel choice" else f"{cause.kind}: "
    start = f"{units.shorten(f'{kind}{cause.what}', room // 2)}: "
    each = (room - len(start) - len(ARROW)) // 2
    left = max(each, 2 * each - len(cause.candidate))
    before = units.shorten(cause.baseline, left)
    return start + before + ARROW + units.shorten(cause.candidate, 2 * each - len(before))


def _entries(comparison: SoundingComparison, width: int, top: int | None) -> Iterator[Text]:
    total = max(comparison.baseline_ns, comparison.candidate_ns) / NS_PER_MS
    digits, room = units.decimals(total), max(width - 4 * COLUMN - 2, LEAST)
    shown = comparison.moved[:top] or _largest(comparison)
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
    yield from paragraph("", legend(comparison), width, "dim")


def legend(comparison: SoundingComparison) -> str:
    """Return the legend of the table of entries."""
    moved = comparison.moved or any(figure.moved for figure in comparison.figures)
    return (MOVED if moved else "") + SUM.format(basis=comparison.basis, step=step_noun(comparison.kind))


def _largest(comparison: SoundingComparison) -> list[Change]:
    """Return the few entries with most of a large change of the step; none exceeds its noise."""
    changed = abs(comparison.candidate_ns - comparison.baseline_ns)
    if changed < LARGE * comparison.baseline_ns:
        return []
    return [change for change in comparison.entries if abs(change.change_ns) > PART * changed][:FEW]


def _noise(changes: Sequence[Change], digits: int) -> str:
    """Return the largest noise of the entries that did not move."""
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


def _figures(comparison: SoundingComparison, width: int, top: int | None) -> Iterator[Text]:
    rows = figure_rows(comparison.figures)
    if not rows:
        return
    room = max(width - 4 * COLUMN - 8, LEAST)
    yield Text()
    head = f"{'baseline':>{COLUMN + 2}}{'candidate':>{COLUMN + 2}}{'change':>{COLUMN}}{'noise ±':>{COLUMN}}"
    yield Text(f"{'figures':<{room + 4}}{head}", "dim underline")
    limit = None if top is None else FIGURES
    yield from (_figure(row, room) for row in rows[:limit])
    if limit is not None and len(rows) > limit:
        yield Text(f"{len(rows) - limit} more figures; --all shows them", "dim")
    yield from (Text(line, "dim") for line in textwrap.wrap(figures_note(comparison), width))


def _figure(row: FigureRow, room: int) -> Text:
    values = f"{row.baseline:>{COLUMN + 2}}{row.candidate:>{COLUMN + 2}}"
    name = units.shorten(f"{row.name} of {row.of}" if row.of else row.name, room)
    line = f"{MARKS[row.moved]} {name:<{room + 2}}{values}{row.change:>{COLUMN}}{row.noise:>{COLUMN}}"
    return Text(line, {"worse": "red", "better": "green"}.get(row.judged, ""))


class FigureRow(NamedTuple):
    """A figure as the terminal and the page show it; change and noise are relative to the baseline."""

    name: str
    of: str
    moved: bool
    judged: str  # worse or better, if it moved
    baseline: str
    candidate: str
    change: str
    noise: str


def figure_rows(figures: Sequence[Figure]) -> list[FigureRow]:
    """Return the figures of the step, and the counters and collectives that moved.

    HFU is left out where no work was recomputed: it equals MFU.
    """
    values = {figure.name: (figure.baseline, figure.candidate) for figure in figures if not figure.of}
    return [
        figure_row(figure)
        for figure in figures
        if (figure.moved or not figure.of)
        and not (
            figure.name.startswith("HFU")
            and values.get(f"M{figure.name[1:]}") == (figure.baseline, figure.candidate)
        )
    ]


def figure_row(figure: Figure) -> FigureRow:
    """Return the cells of a figure. Sides that are not compared have neither change nor noise.

    A lower bound may only seem to be the smaller side.
    """
    before, after = figure.baseline, figure.candidate
    unknown = figure.at_least == ["candidate" if after < before else "baseline"]
    relative = bool(before) and not figure.why and not unknown
    worse = {"lower": after > before, "higher": after < before}.get(figure.better)
    return FigureRow(
        figure.name,
        figure.of,
        figure.moved,
        "" if worse is None or not figure.moved else "worse" if worse else "better",
        _value(figure, "baseline"),
        _value(figure, "candidate"),
        percent(after / before) if relative else "",
        percent(1 + figure.band / abs(before))[1:] if relative and figure.band is not None else "",
    )


def _value(figure: Figure, side: Literal["baseline", "candidate"]) -> str:
    """Return a side of a figure. Counters without a unit are shares only if their names say so."""
    value = figure.baseline if side == "baseline" else figure.candidate
    plain = figure.group == "counters" and not figure.unit and not is_share(figure.name)
    text = units.significant(value) if plain else amount(value, figure.unit)
    return f"≥ {text}" if side in figure.at_least else text


def figures_note(comparison: SoundingComparison) -> str:
    """Return that rates are of the mean step if the median steps are compared; "" otherwise."""
    of_steps = any(figure.group in OF_STEPS for figure in comparison.figures)
    return MEANS if of_steps and comparison.basis == CLEAN else ""


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit: memory in binary units, figures without a unit as percentages."""
    if unit == "B":
        return units.memory(value)
    if unit == "ms":
        return units.duration(value)
    if unit == "J":
        return units.joules(value)
    if unit == "MHz":
        return f"{value:.0f} MHz"
    return units.scaled(value, unit) if unit else f"{units.share(value, 1)} %"
