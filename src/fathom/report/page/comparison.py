"""A comparison of soundings as a page: the verdict, a waterfall of changes, causes, entries and figures."""

from __future__ import annotations

from pathlib import Path

from fathom.analysis.compare import Change, SoundingComparison, leading, name_of, percent
from fathom.report import units
from fathom.report.comparison import (
    ASSUMED,
    cause_line,
    cause_rows,
    figure_rows,
    figures_note,
    legend,
    runs_in_words,
)
from fathom.report.page.account import Bar, waterfall
from fathom.report.page.figure import Figure
from fathom.report.page.page import rendered, write
from fathom.report.page.recording import Section, Top
from fathom.report.screen import grouped
from fathom.units import NS_PER_MS

BARS = 12
LABEL = 60  # letters
WORSE, BETTER, STEP = "#b3372f", "#2a9d74", "#5b6470"


def save_comparison(comparison: SoundingComparison, path: Path) -> None:
    """Write the comparison as one HTML file that loads nothing. Raises BadInputError if that fails."""
    write(page(comparison), path)


def page(comparison: SoundingComparison) -> str:
    """Return the page."""
    return rendered("Comparison", _top(comparison), list(_sections(comparison)))


def _top(result: SoundingComparison) -> Top:
    before, after = (units.duration(ns / NS_PER_MS) for ns in (result.baseline_ns, result.candidate_ns))
    tiles = [(before, "baseline step"), (after, "candidate step"), (percent(result.ratio), "change")]
    if result.interval:
        low, high = map(percent, result.interval)
        tiles.append((f"{low} to {high}".replace(" %", "\u00a0%"), "99 % interval"))
    sides = ("baseline", result.baseline), ("candidate", result.candidate)
    return Top(
        headline=result.headline.removesuffix(leading(result)),
        facts=[" · ".join(f"{name}: {runs_in_words(runs)}" for name, runs in sides)],
        figures=tiles,
        step=[
            *(f"{name} is damaged; `fathom report` says how" for name in result.damaged),
            *([ASSUMED] if result.within_runs else []),
        ],
        bound=result.verdict,
        reason=leading(result),
    )


def _sections(result: SoundingComparison) -> list[Section]:
    rows, digits = _bars(result), units.decimals(result.candidate_ns / NS_PER_MS)
    figure = Figure(
        "changes",
        "From the baseline's step to the candidate's",
        f"Waterfall of {len(rows) - 2} changes that add up to {result.change_ns / NS_PER_MS:+.3g} ms.",
        rows,
        waterfall,
        [["Entry", "Time"], *([row["label"], row["text"]] for row in rows)],
    )
    entries = [_line(change, digits) for change in result.entries]
    note = legend(result)
    figures = figure_rows(result.figures)
    causes = cause_rows(result.causes)
    skipped = grouped((entry.why, entry.what) for entry in result.abstained)
    return [
        Section("waterfall", "Changes", {}, [figure]),
        *([Section("causes", "Why", {"causes": causes})] if causes else []),
        Section("changes", "Entries", {"entries": entries, "digits": digits}, [], note),
        *([Section("figures", "Figures", {"figures": figures}, [], figures_note(result))] if figures else []),
        *([Section("not-compared", "Not compared", {"skipped": skipped})] if skipped else []),
    ]


def _line(change: Change, digits: int) -> dict[str, object]:
    figures = [f"{ns / NS_PER_MS:.{digits}f}" for ns in (change.baseline_ns, change.candidate_ns)]
    return {
        "name": name_of(change), "moved": change.moved, "figures": figures,
        "change": f"{change.change_ms:+.{digits}f}",
        "band": "" if change.band_ns is None else f"{change.band_ns / NS_PER_MS:.{digits}f}",
        "was": ", ".join(change.baseline_details) if change.aligned not in ("same", "baseline only") else "",
        "causes": [cause_line(cause) for cause in change.causes],
    }  # fmt: skip


def _bars(result: SoundingComparison) -> list[Bar]:
    """Return bars from the baseline's step over the largest changes to the candidate's."""
    shown = result.moved[:BARS]
    rest = result.change_ns - sum(change.change_ns for change in shown)
    parts = [(name_of(change), change.change_ns) for change in shown]
    parts += [(f"{len(result.entries) - len(shown)} other entries", rest)]
    bars = [_bar(0, "baseline", 0.0, result.baseline_ns / NS_PER_MS, STEP)]
    for label, ns in parts:
        start = bars[-1]["end"]
        bars.append(_bar(len(bars), label, start, start + ns / NS_PER_MS, WORSE if ns > 0 else BETTER))
        bars[-1]["text"] = f"{ns / NS_PER_MS:+.3g} ms"
    return [*bars, _bar(len(bars), "candidate", 0.0, result.candidate_ns / NS_PER_MS, STEP)]


def _bar(row: int, label: str, start: float, end: float, colour: str) -> Bar:
    return {
        "row": row, "label": units.shorten(label, LABEL), "start": start, "end": end, "colour": colour,
        "kind": "step", "text": units.duration(end),
    }  # fmt: skip
