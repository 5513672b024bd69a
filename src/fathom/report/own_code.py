"""The program's own functions and lines in the mean step, by samples of the host's stacks."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import CodeTime, FunctionTime, step_noun
from fathom.report import screen, units
from fathom.report.screen import joined, paragraph

TITLE = "the mean {step} by the program's code"
COLUMNS = {"ms": 9, "%": 7, "±": 6}
LEAST, MOST_ROWS = 0.03, 6  # of the mean step, and functions, without --all
LINES, LEAST_LINE = 3, 0.02
ABOUT = (
    "{n:,} samples of the host's stacks in clean {steps}s, {ms} on average; ops count in the function that "
    "calls them"
)


def section(code: CodeTime | None, width: int, every: bool = False) -> Iterator[Text]:
    """Yield a row per function of the program, longest first, with the lines that take its time."""
    functions = shown(code, every)
    if code is None or not functions:
        return
    room = width // 3
    name = max(width - sum(COLUMNS.values()) - room, screen.LEAST)
    head = "".join(f"{title:>{cells}}" for title, cells in COLUMNS.items())
    yield Text(
        f"{TITLE.format(step=step_noun(code.kind)):<{name}}{head}  {'lines':<{room - 2}}", "dim underline"
    )
    digits = units.decimals(code.ms)
    for function in functions:
        figures = (f"{function.ms:.{digits}f}", f"{100 * function.share:.1f}", f"{100 * function.error:.1f}")
        cells = "".join(f"{cell:>{n}}" for cell, n in zip(figures, COLUMNS.values(), strict=True))
        label = units.shorten(f"  {place(function)}", name - 1)
        yield Text(f"{label:<{name}}{cells}  {lines(function, room - 2)}")
    yield from paragraph("  ", about(code), width)


def shown(code: CodeTime | None, every: bool = False) -> list[FunctionTime]:
    """Return the functions with a large share of the mean step, or all."""
    functions = code.functions if code else []
    return functions if every else [function for function in functions if function.share >= LEAST][:MOST_ROWS]


def place(function: FunctionTime) -> str:
    """Return `function (file)`, with the file's name only."""
    return f"{function.function} ({function.file.rpartition('/')[2]})"


def lines(function: FunctionTime, room: int = 80) -> str:
    """Return the lines with most of the function's time and their shares of the mean step, as many as fit."""
    large = [line for line in function.lines if line.share >= LEAST_LINE][:LINES] or function.lines[:1]
    texts = [f"{line.source.rpartition(':')[2]} {100 * line.share:.0f} %" for line in large]
    while len(texts) > 1 and len(joined(*texts)) > room:
        texts.pop()
    return units.shorten(joined(*texts), room)


def about(code: CodeTime) -> str:
    """Return the origin of the shares."""
    ms = units.duration(code.ms)
    return ABOUT.format(n=code.samples, steps=step_noun(code.kind), ms=ms)
