"""A proof's verdict as text: the ratio with its interval, and whether the results agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.report import units
from fathom.report.screen import LEAST, joined, paragraph, show
from fathom.units import NS_PER_MS

if TYPE_CHECKING:
    from fathom.referee import Agreement, Comparison, Timing, Verdict

STYLES = {"faster": "bold green", "slower": "bold red", "same": "bold cyan", "refused": "bold white on red"}
_SIDE = 11
_FIGURES = 38  # cells right of the bar


def print_verdict(verdict: Verdict, console: Console | None = None) -> None:
    """Print the verdict, 40 to 120 columns wide."""
    show(lambda width: page(verdict, width), console)


def page(verdict: Verdict, width: int) -> Iterator[Text]:
    """Yield the whole screen, one Text per line."""
    yield headline(verdict)
    yield Text(f"{_short(verdict.baseline)} → {_short(verdict.candidate)}"[:width], "dim")
    for reason in verdict.reasons:
        yield from _reason(f"{reason.says} ({reason.code})", reason.detail, width, "red")
    for comparison in verdict.timings:
        yield Text()
        yield from _comparison(verdict, comparison, width)
    if verdict.agreement:
        yield Text()
        yield from _agreement(verdict, width)
    if verdict.fault_rate is not None:
        share = f"fewer than {100 * verdict.fault_rate:.2g} % of calls are wrong"
        text = f"{verdict.compared} compared calls agree: {share}, at 95 % confidence."
        yield from _wrapped(text, width, "", "dim")
    for reason in verdict.excused:
        yield from _reason(f"allowed: {reason.says} ({reason.code})", reason.detail, width, "yellow")
    for note in verdict.notes:
        yield from _wrapped(note, width, "  · ", "dim")


def headline(verdict: Verdict) -> Text:
    """Return the verdict in one line."""
    line = Text.assemble((f" {verdict.verdict.upper()} ", STYLES.get(verdict.verdict, "bold yellow")))
    if verdict.ratio is None:
        return line
    line.append(f"  {_gain(verdict.ratio)}", "" if verdict.reasons else "bold")
    if verdict.interval:
        low, high = verdict.interval
        line.append(f"   ratio {verdict.ratio:.4f}, 99 % interval {low:.4f} to {high:.4f}", "dim")
    return line


def _gain(ratio: float) -> str:
    if abs(1 - ratio) < 0.0005:
        return "no difference"
    digits = 3 if abs(1 - ratio) > 0.005 else 4
    return f"{1 / ratio:.{digits}g}× as fast" if ratio < 1 else f"takes {ratio:.{digits}g}× as long"


def _short(side: str) -> str:
    place, colon, name = side.rpartition(":")
    return f"{PurePath(place).name}:{name}" if colon and place.endswith(".py") else side


def _reason(says: str, detail: str, width: int, style: str) -> Iterator[Text]:
    yield from _wrapped(says, width, "✗ ", style)
    if not says.startswith(detail):
        yield from _wrapped(detail, width, "    ", "dim")


def _wrapped(text: str, width: int, lead: str, style: str) -> Iterator[Text]:
    return paragraph(lead, text, width, style, label_style=style, hyphens=False)


def _comparison(verdict: Verdict, comparison: Comparison, width: int) -> Iterator[Text]:
    yield Text(_conditions(verdict, comparison), "dim underline")
    shares = _shares(comparison)
    sides = (comparison.baseline, comparison.candidate)
    for name, side, share in zip(("baseline", "candidate"), sides, shares, strict=True):
        yield _side(name, side, share, width)
    if len(verdict.timings) > 1 and comparison.ratio is not None:
        yield Text(f"{'':{_SIDE}}{comparison.decision}, ratio {comparison.ratio:.4f}", "dim")


def _shares(comparison: Comparison) -> tuple[float, float]:
    """Return the lengths of both bars, as shares of the longer. The ratio comes from neighbouring pairs, so
    it may differ from the ratio of the medians.
    """
    baseline, candidate = 1.0, comparison.ratio or 0.0
    if comparison.ratio is None:
        baseline, candidate = comparison.baseline.ns, comparison.candidate.ns
    longer = max(baseline, candidate)
    return (baseline / longer, candidate / longer) if longer > 0 else (0, 0)


def _conditions(verdict: Verdict, comparison: Comparison) -> str:
    parts = [f"{comparison.cache} L2"] if comparison.cache else []
    parts += [f"launch latency {verdict.latency}"] if verdict.latency else []
    parts += [f"{comparison.pairs} pairs of fresh processes"]
    return joined(*parts) + ("" if comparison.settled else " · not settled within the time limit")


def _side(name: str, side: Timing, share: float, width: int) -> Text:
    room = max(width - _SIDE - _FIGURES, 10)
    line = Text(f"{name:<{_SIDE}}").append(units.bar(share, room), "green" if share < 0.995 else "blue")
    line.append(f" {units.duration(side.ns / NS_PER_MS):>9}", "bold")
    if side.ceiling is not None:
        line.append(f"  {100 * side.ceiling.fraction:.0f} % of {side.ceiling.bound}", "cyan")
    dropped = sum(side.discarded.values())
    return line.append(f"  {dropped} dropped", "dim") if dropped else line


def _agreement(verdict: Verdict, width: int) -> Iterator[Text]:
    against, room = f"compared with {verdict.reference}", max(width - 46, LEAST)
    yield Text(f"{against:<{room}}{'relative norm':>16}{'allowed':>10}{'worst':>10}{'allowed':>10}", "dim")
    for agreement in verdict.agreement:
        label = units.shorten(f"{agreement.place} · {agreement.dtype} · {agreement.calls} calls", room - 1)
        figures = (agreement.relative_norm, agreement.allowed_norm, agreement.worst, agreement.allowed_worst)
        if agreement.relative_norm is None:
            yield Text(f"{label:<{room}}{'exact':>16}")
            continue
        cell = [units.MISSING if value is None else f"{value:.1e}" for value in figures]
        line = f"{label:<{room}}{cell[0]:>16}{cell[1]:>10}{cell[2]:>10}{cell[3]:>10}"
        yield Text(line, "" if _agrees(agreement) else "red")


def _agrees(agreement: Agreement) -> bool:
    pairs = ((agreement.relative_norm, agreement.allowed_norm), (agreement.worst, agreement.allowed_worst))
    return all(seen is None or allowed is None or seen <= allowed for seen, allowed in pairs)
