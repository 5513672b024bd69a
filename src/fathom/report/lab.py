"""Techniques as text: a table of all, one in full, and the result of a proof."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.lab import Last, Listed, Outcome, Technique, techniques
from fathom.report import units
from fathom.report.screen import INDENT, LEAST, part, show, wrapped

if TYPE_CHECKING:
    from fathom.diagnosis import PairFinding

_STYLES = {"faster": "bold green", "slower": "bold red", "refused": "bold red"}
_RESULT = 30


def print_techniques(listed: Sequence[Listed], console: Console | None = None) -> None:
    """Print one line per technique, group by group."""
    show(lambda width: _table(listed, width), console)


def _table(listed: Sequence[Listed], width: int) -> Iterator[Text]:
    wide = max((len(row.name) for row in listed), default=0) + 2 + INDENT
    room, group = max(width - wide - _RESULT - 1, LEAST), ""
    if listed:
        yield Text(f"{'technique':<{wide}}{'saves':<{room}} here", "dim underline")
    for row in listed:
        if row.group != group:
            group = row.group
            yield Text(group, "bold dim")
        line = Text(f"{' ' * INDENT}{row.name}".ljust(wide), "bold")
        line.append(f"{units.shorten(row.saves, room):<{room}} ")
        yield line.append_text(_status(row))


def _status(row: Listed) -> Text:
    if row.last:
        return Text(_short(row.last, row.gains), _style(row.last.verdict, row.gains))
    if row.why_not:
        briefly = re.split("[:,]", row.why_not)[0].removeprefix("it ")  # `lab run` prints the whole reason
        return Text(units.shorten(briefly, _RESULT), "dim")
    return Text("not run here yet", "dim")


def _short(last: Last, gains: str) -> str:
    if last.ratio is None or last.verdict == "refused":
        return last.verdict
    what = "" if gains == "time" else f", for {gains}"
    return f"{last.verdict} {1 / last.ratio:.2f}×{what}"


def _style(verdict: str, gains: str) -> str:
    """Return the style of a verdict. A slower verdict is fine for a technique that saves something else."""
    return "" if verdict == "slower" and gains != "time" else _STYLES.get(verdict, "")


def print_technique(technique: Technique, console: Console | None = None) -> None:
    """Print one technique in full."""
    show(lambda width: _page(technique, width), console)


def _page(technique: Technique, width: int) -> Iterator[Text]:
    header = technique.header
    yield Text()
    yield Text.assemble((header.title, "bold"), (f"   {technique.group} · {technique.name}", "dim"))
    yield from part("idea", wrapped(header.idea, width))
    yield from part("savings", wrapped(header.saves, width))
    yield from part("cost", wrapped(header.cost, width))
    yield from part("when not to use it", wrapped(header.not_when, width))
    yield from part("no gain on", wrapped(header.no_gain, width))
    shown = [f"{sign.what}: {sign.plain} plain, {sign.tuned} tuned" for sign in header.shows]
    yield from part("signs", [line for text in shown for line in wrapped(text, width)])
    yield from part("findings", [*header.findings])
    yield from part("no finding names it", wrapped(header.no_finding, width))
    yield from part("parameters", wrapped(header.tried, width))
    yield from part("files", [str(path) for path in technique.sources], "dim")
    yield Text()


def print_outcome(outcome: Outcome, console: Console | None = None) -> None:
    """Print one line as soon as the proof has ended, with the reasons below it."""
    show(lambda _: _outcome(outcome), console)


def _outcome(outcome: Outcome) -> Iterator[Text]:
    line = Text(f"{outcome.technique:<28}", "bold")
    if outcome.kept is None:
        yield line.append(f"{outcome.state}: {outcome.reason}", "red" if outcome.bad else "dim")
        return
    verdict, last = outcome.kept.verdict, outcome.kept.last
    technique = techniques().get(outcome.technique)
    header = technique.header if technique else None
    gains = header.gains if header else "time"
    line.append(f"{_short(last, gains):<20} ", _style(verdict.verdict, gains))
    if verdict.interval:
        low, high = verdict.interval
        line.append(f"{1 / high:.2f} to {1 / low:.2f}×".ljust(18), "dim")
    if last.plain_of_ceiling is not None and last.tuned_of_ceiling is not None:
        line.append(
            f"{100 * last.plain_of_ceiling:.0f} % → {100 * last.tuned_of_ceiling:.0f} % of the ceiling",
            "cyan",
        )
    if technique and technique.needs.ranks and outcome.kept.device == "cpu":
        line.append(f"{technique.needs.ranks} ranks on this CPU through gloo", "dim")
    yield line.append("  as before" if outcome.state == "kept" else "", "dim")
    if header and header.no_gain and verdict.verdict in ("slower", "same"):
        yield Text(f"{' ' * INDENT}expected on {header.no_gain}", "dim")
    for reason in verdict.reasons:
        yield Text(f"{' ' * INDENT}{reason.says} ({reason.code}): {reason.detail}", "red")


def print_pair_findings(kinds: Sequence[PairFinding]) -> None:
    """Print which findings appear on the plain form of a pair and not on the tuned form."""
    lines = [_named(kind) for kind in kinds] or [Text(f"{' ' * INDENT}no finding names it", "dim")]
    show(lambda _: lines)


def _named(kind: PairFinding) -> Text:
    line = Text(f"{' ' * INDENT}{kind.kind:<30}")
    if kind.names:
        return line.append("on the plain form, not on the tuned one", "green")
    if None in (kind.plain, kind.tuned):
        return line.append(f"not analysed: {kind.why}", "dim")
    forms = [name for name, on in (("plain", kind.plain), ("tuned", kind.tuned)) if on]
    return line.append(f"on {' and '.join(forms) or 'neither'} form" + "s" * (len(forms) > 1), "red")
