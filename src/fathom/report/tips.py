"""Show tips as text: broken tips with their cost, reasons of unknown tips, and a table by area."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.analysis.results import step_noun
from fathom.report import units
from fathom.report.findings import ALONE
from fathom.report.screen import grouped, joined, paragraph, show, unknown
from fathom.tips import AREAS, STATUSES, Score, Scores, Status

INDENT = 3
LABEL = 9  # columns
COLUMN = 10
NAMED = 3  # most ids listed per reason; more are counted
_SIGNS: dict[Status, tuple[str, str]] = {
    "broken": ("!!", "bold red"),
    "unknown": ("??", "yellow"),
    "to-be-read": ("··", "cyan"),
    "kept": ("ok", "green"),
    "not-applicable": ("--", "dim"),
}
MORE = "Add options to list tips, like: --area {area} --status to-be-read"


def print_tips(scores: Scores, console: Console | None = None, *, listed: bool = False) -> None:
    """Print broken tips, reasons of unknown tips, and counts by area; with `listed`, every tip instead."""
    show(lambda width: _list(scores, width) if listed else _overview(scores, width), console)


def _overview(scores: Scores, width: int) -> Iterator[Text]:
    broken = (entry for entry in scores.tips if entry.status == "broken")
    # Tips that the same findings and checks show are ways to fix one loss.
    causes = grouped(((entry.findings, entry.checks), entry) for entry in broken).values()
    for first, *others in causes:
        yield from _entry(first, width)
        for entry in others:
            yield from _labelled("or", f"{entry.title}  {entry.id}", width)
        yield Text()
    if sum(first.gain_ms is not None for first, *_ in causes) > 1:
        yield Text(ALONE, "dim")
        yield Text()
    yield _counts(scores)
    yield from _reasons(scores.tips, width)
    yield Text()
    yield from _areas(scores.tips)
    readable = next((entry.area for entry in scores.tips if entry.status == "to-be-read"), "os")
    yield Text()
    yield Text(MORE.format(area=readable), "dim")


def _list(scores: Scores, width: int) -> Iterator[Text]:
    for entry in scores.tips:
        yield from _entry(entry, width)
    yield _counts(scores)


def _entry(entry: Score, width: int) -> Iterator[Text]:
    """Yield title and id, cost, advice, and the reason for its status."""
    sign, style = _SIGNS[entry.status]
    yield from _title(Text(f"{sign} ", style), entry, width)
    yield from _labelled("saves", _cost(entry), width, "green")
    yield from _labelled("", entry.text, width)
    yield from _labelled(_label(entry), entry.reason, width, style)
    yield from _labelled("see", _look(entry), width, "cyan")


def _label(entry: Score) -> str:
    if entry.status in ("broken", "kept"):
        return "evidence"
    return "see" if entry.reason.startswith("fathom ") else "why"  # a command, or a reason


def _title(sign: Text, entry: Score, width: int) -> Iterator[Text]:
    """Yield the title followed by its id, which goes below it if both do not fit."""
    if INDENT + len(entry.title) + 2 + len(entry.id) <= width:
        yield Text.assemble(sign, (entry.title, "bold"), (f"  {entry.id}", "dim"))
        return
    yield Text.assemble(sign, (entry.title, "bold"))
    yield Text(f"{'':{INDENT + LABEL}}{entry.id}", "dim")


def _cost(entry: Score) -> str:
    """Return the cost, as `3.2 ms (2.1–4.3), 12 % of a decode step · 22.7 USD per day and GPU`, or ""."""
    if entry.gain_ms is None:
        return ""
    low, high = (entry.gain_ms if end is None else end for end in (entry.low_ms, entry.high_ms))
    saved = units.within(entry.gain_ms, low, high)
    if entry.share is not None:
        saved += f", {100 * entry.share:.0f} % of a {step_noun(entry.step_kind or 'program')}"
    return joined(saved, units.a_day(entry.saves_per_day))


def _look(entry: Score) -> str:
    """Yield commands that show more about a broken tip."""
    ways = [f"fathom explain {kind}" for kind in entry.findings]
    ways += [f"fathom machine check --only {name}" for name in entry.checks]
    return joined(*ways, *(f"fathom lab run {name}" for name in entry.by.techniques if entry.findings))


def _labelled(label: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    label = f"{'':{INDENT}}{label:<{LABEL}}"
    return paragraph(label, text, width, style, label_style="dim", hyphens=False)


def _counts(scores: Scores) -> Text:
    parts = [f"{scores.counts[status]} {status.replace('-', ' ')}" for status in STATUSES]
    return Text(joined(*parts), "bold red" if scores.counts["broken"] else "bold green")


def _reasons(scores: Iterable[Score], width: int) -> Iterator[Text]:
    """Yield the reasons of unknown tips, most common first."""
    reasons = grouped((entry.reason, entry.id) for entry in scores if entry.status == "unknown")
    for reason, ids in sorted(reasons.items(), key=lambda item: -len(item[1])):
        named = ", ".join(ids) if len(ids) <= NAMED else f"{len(ids)} tips"
        yield from unknown(f"{named}: {reason}", width)


def _areas(scores: Sequence[Score]) -> Iterator[Text]:
    """Yield one row per area, with one column per status."""
    wide = max(map(len, AREAS))
    heads = ("broken", "unknown", "to read", "kept", "n/a")
    yield Text(f"{'area':<{wide}}" + "".join(f"{head:>{COLUMN}}" for head in heads), "bold dim")
    for area in AREAS:
        statuses = [entry.status for entry in scores if entry.area == area]
        if statuses:
            counts = [statuses.count(status) or units.MISSING for status in STATUSES]
            yield Text(f"{area:<{wide}}" + "".join(f"{count:>{COLUMN}}" for count in counts))
