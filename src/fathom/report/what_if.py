"""Show a predicted step as text: its time, and the changes of each ledger entry."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fathom.analysis.entries import meaning_of
from fathom.analysis.replay import Moved, Prediction
from fathom.report import units
from fathom.report.screen import LEAST, MARGIN, show, within_margins

COLUMN = 12  # columns of a number
HIDDEN = 0.0005  # of the step: entries that are smaller before and after are left out
STILL = 0.0005  # of the step: smaller changes count as no change


def print_prediction(prediction: Prediction, console: Console | None = None) -> None:
    """Print a prediction, 40 to 120 columns wide."""
    show(lambda width: _page(prediction, width - 2 * MARGIN), console)


def _page(prediction: Prediction, width: int) -> Iterator[Text]:
    for paragraph in (_steps(prediction), _table(prediction, width), _asides(prediction, width)):
        lines = list(paragraph)
        yield from within_margins([Text(), *lines] if lines else [], width)
    yield Text()


def _steps(prediction: Prediction) -> Iterator[Text]:
    where = f"   rank {prediction.rank} · {prediction.label}" if prediction.device else ""
    yield Text(f"what if {' '.join(prediction.changes)}", "bold").append(where, "dim")
    if prediction.recorded_ms is None:
        return
    if prediction.clean_ms is not None:
        after, interval = prediction.clean_predicted_ms, prediction.clean_ci_ms
        yield _line("clean step", prediction.clean_ms, after, interval, "bold green")
    after, interval = prediction.predicted_ms, prediction.predicted_ci_ms
    yield _line("step, as profiled", prediction.recorded_ms, after, interval, "")
    if prediction.error is not None:
        count = f"{prediction.steps} step" + ("s" if prediction.steps != 1 else "")
        text = f"over {count}; without changes the replay is off by {100 * prediction.error:.1f} %"
        yield Text(f"{'':<{20}}{text}", "dim")


def _line(name: str, before: float, after: float | None, bounds: list[float] | None, style: str) -> Text:
    line = Text(f"{name:<20}{units.duration(before)}", style)
    if after is not None:
        line.append(f" → {units.duration(after)}")
    if bounds is not None and bounds[0] < bounds[1]:  # a single step may give no interval
        line.append(f"  ({units.duration(bounds[0])} – {units.duration(bounds[1])})", "dim")
    if after is not None and before > 0:
        line.append(f"  {100 * (after - before) / before:+.1f} %")
    return line


def _table(prediction: Prediction, width: int) -> Iterator[Text]:
    total = prediction.recorded_ms or 0.0
    rows = [row for row in prediction.moved if max(row.before_ms, row.after_ms) > HIDDEN * total]
    if not rows:
        return
    digits, name = units.decimals(total), max(width - 3 * COLUMN - 26, LEAST)
    head = "".join(f"{title:>{COLUMN}}" for title in ("before ms", "after ms", "change"))
    yield Text(f"{'where the time moves':<{name}}{head}", "dim underline")
    for row in rows:
        yield _row(row, name, digits, total)
    before, after = (sum(getattr(row, key) for row in prediction.moved) for key in ("before_ms", "after_ms"))
    yield _row(Moved("step, as profiled", before, after), name, digits, total, "bold")


def _row(row: Moved, name: int, digits: int, total: float, style: str = "") -> Text:
    change = row.after_ms - row.before_ms
    difference = f"{change:+.{digits}f}" if abs(change) > STILL * total else "·"
    colour = "" if difference == "·" else "green" if change < 0 else "red"
    numbers = "".join(f"{ms:>{COLUMN}.{digits}f}" for ms in (row.before_ms, row.after_ms))
    line = Text(f"{units.shorten(row.entry, name - 1):<{name}}{numbers}", style)
    line.append(f"{difference:>{COLUMN}}", colour)
    return line.append(f"  {meaning_of(row.entry)}" if name > LEAST else "", "dim")


def _asides(prediction: Prediction, width: int) -> Iterator[Text]:
    lines = [Text(f"not analysed: {entry.what}: {entry.why}", "yellow") for entry in prediction.abstained]
    for line in (*lines, *(Text(f"note: {note}", "dim") for note in prediction.notes)):
        yield from line.wrap(Console(width=width), width)
