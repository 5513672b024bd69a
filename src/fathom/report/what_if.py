"""A predicted step as lines of text: what it would take, and where its time would move."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fathom.analysis.replay import Moved, Prediction
from fathom.report import units
from fathom.report.causes import MEANING
from fathom.report.screen import cells, console_or_default, put

MARGIN = 1
MS = 12  # columns of a number
HIDDEN = 0.0005  # of the step: entries that are and stay smaller are left out
STILL = 0.0005  # of the step: a change that is smaller is none


def print_prediction(found: Prediction, console: Console | None = None) -> None:
    """Print a prediction, 80 to 120 columns wide."""
    console = console_or_default(console)
    put(_page(found, cells(console) - 2 * MARGIN), console)


def to_json(found: Prediction) -> bytes:
    """The prediction as JSON; numbers are not rounded."""
    import msgspec

    return msgspec.json.encode(found)


def _page(found: Prediction, width: int) -> Iterator[Text]:
    for paragraph in (_steps(found), _table(found, width), _asides(found, width)):
        lines = list(paragraph)
        for line in [Text(), *lines] if lines else []:
            line.truncate(width, overflow="ellipsis")
            yield Text(" " * MARGIN).append_text(line) if line.plain else line
    yield Text()


def _steps(found: Prediction) -> Iterator[Text]:
    yield Text(f"what if {' '.join(found.changes)}", "bold").append(_where(found), "dim")
    if found.recorded_ms is None:
        return
    if found.clean_ms is not None:
        yield _line("clean step", found.clean_ms, found.clean_predicted_ms, found.clean_ci_ms, "bold green")
    yield _line("step, as profiled", found.recorded_ms, found.predicted_ms, found.predicted_ci_ms, "")
    if found.error is not None:
        count = f"{found.steps} step" + ("s" if found.steps != 1 else "")
        text = f"over {count}; replayed without a change the model is {100 * found.error:.1f} % off"
        yield Text(f"{'':<{20}}{text}", "dim")


def _where(found: Prediction) -> str:
    return f"   rank {found.rank} · {found.device}" if found.device else ""


def _line(name: str, before: float, after: float | None, bounds: list[float] | None, style: str) -> Text:
    line = Text(f"{name:<20}{units.duration(before)}", style)
    if after is not None:
        line.append(f" → {units.duration(after)}")
    if bounds is not None:
        line.append(f"  ({units.duration(bounds[0])} – {units.duration(bounds[1])})", "dim")
    if after is not None and before > 0:
        line.append(f"  {100 * (after - before) / before:+.1f} %")
    return line


def _table(found: Prediction, width: int) -> Iterator[Text]:
    total = found.recorded_ms or 0.0
    rows = [row for row in found.moved if max(row.before_ms, row.after_ms) > HIDDEN * total]
    if not rows:
        return
    digits, name = units.decimals(total), width - 3 * MS - 26
    yield Text(
        f"{'where the time moves':<{name}}{'before ms':>{MS}}{'after ms':>{MS}}{'change':>{MS}}",
        "dim underline",
    )
    for row in rows:
        yield _row(row, name, digits, total)
    whole = Moved(
        "step, as profiled", sum(r.before_ms for r in found.moved), sum(r.after_ms for r in found.moved)
    )
    yield _row(whole, name, digits, total, "bold")


def _row(row: Moved, name: int, digits: int, total: float, style: str = "") -> Text:
    change = row.after_ms - row.before_ms
    told = f"{change:+.{digits}f}" if abs(change) > STILL * total else "·"
    colour = "" if told == "·" else "green" if change < 0 else "red"
    numbers = "".join(f"{ms:>{MS}.{digits}f}" for ms in (row.before_ms, row.after_ms))
    line = Text(f"{units.shorten(row.entry, name - 1):<{name}}{numbers}", style)
    line.append(f"{told:>{MS}}", colour)
    return line.append(f"  {MEANING.get(row.entry, '')}", "dim")


def _asides(found: Prediction, width: int) -> Iterator[Text]:
    for one in found.abstained:
        yield from _wrapped(f"abstained: {one.what}: {one.why}", width, "yellow")
    for note in found.notes:
        yield from _wrapped(f"note: {note}", width, "dim")


def _wrapped(text: str, width: int, style: str) -> Iterator[Text]:
    yield from Text(text, style).wrap(Console(width=width), width)
