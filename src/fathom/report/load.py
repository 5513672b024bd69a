"""A load test on the terminal: its latencies, or why it is refused, and the frontier of a sweep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fathom.load import DEFINITIONS, Load, Spread, Sweep
from fathom.report import units
from fathom.report.screen import joined, show

LABEL, CELL = 10, 11  # columns


def print_load(result: Load | Sweep, console: Console | None = None) -> None:
    """Print one run, or all runs of a sweep."""
    if isinstance(result, Load):
        load = result
        return show(lambda width: load_lines(load, width), console)
    sweep = result
    return show(lambda width: sweep_lines(sweep, width), console)


def load_lines(load: Load, width: int) -> Iterator[Text]:
    """Yield the verdict on the run, and its figures."""
    yield from _refused(load, width)
    rates = f"{load.requests:,} requests, {load.achieved:.3g}/s of {load.rate:.3g}/s ({load.pattern})"
    left = f"{load.warmup:,} left out as warm-up" if load.warmup else ""
    yield Text(joined(rates, left, f"{load.failed:,} failed" if load.failed else ""), "bold")
    yield Text(joined(*_rates(load)))
    head = "".join(f"{name:>{CELL}}" for name in ("p50", "p90", "p99", "mean"))
    yield Text(f"{'ms':<{LABEL}}{head}", "dim underline")
    for name, words in DEFINITIONS.items():
        spread: Spread | None = getattr(load, name)
        if spread is not None:
            yield _spread(name, spread).append(f"  {words.partition(':')[0]}", "dim")
    if load.lag_ms is not None:
        yield _spread("lag", load.lag_ms).append("  how late requests were sent", "dim")
    for note in load.notes:
        yield from (Text(line, "yellow") for line in textwrap.wrap(f"Note: {note}.", width))


def _refused(load: Load, width: int) -> Iterator[Text]:
    if load.refusals:
        yield Text("Refused: these figures describe the test, not the server.", "bold red")
    for refusal in load.refusals:
        text = f"{refusal.code}: {refusal.why}."
        yield from (Text(f"  {line}", "red") for line in textwrap.wrap(text, width - 2))


def _rates(load: Load) -> Iterator[str]:
    yield f"{units.scaled(load.tokens_per_s)} tokens/s"
    if load.tokens_per_s_per_user is not None:
        yield f"{load.tokens_per_s_per_user:.3g} tokens/s per user"
    if load.good is not None:
        yield f"goodput {load.good_per_s:.3g} requests/s ({100 * load.good:.0f} % meet the SLO)"
    if load.per_million is not None:
        yield f"{load.per_million:.3g} per million tokens"


def _spread(name: str, spread: Spread) -> Text:
    values = (spread.p50, spread.p90, spread.p99, spread.mean)
    cells = "".join(f"{units.MISSING if v is None else f'{v:,.1f}':>{CELL}}" for v in values)
    return Text(f"{name:<{LABEL}}{cells}")


def sweep_lines(sweep: Sweep, width: int) -> Iterator[Text]:
    """Yield a line for each rate, with the frontier as a bar, and the knee."""
    names = ("tokens/s", "per user", "ttft p50", "tpot p50", "e2e p50", "SLO met")
    yield Text(f"{'rate':<{LABEL}}" + "".join(f"{name:>{CELL}}" for name in names), "dim underline")
    for point in sweep.points:
        load = point.load
        latencies = (load.ttft, load.tpot, load.e2e)
        cells = [units.scaled(load.tokens_per_s), f"{load.tokens_per_s_per_user or 0:.3g}"]
        cells += [units.MISSING if s is None else f"{s.p50:,.0f} ms" for s in latencies]
        cells += [units.MISSING if load.good is None else f"{100 * load.good:.0f} %"]
        line = Text(f"{f'{load.rate:g}/s':<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells))
        yield line.append(_mark(point.knee, point.on_frontier, load), "red" if load.refusals else "green")
    if sweep.knee is not None:
        text = f"Knee at {sweep.knee:g} requests/s: beyond it users lose more than the server gains."
        yield Text(text, "bold")
    else:
        yield Text("No knee: fewer than three valid rates lie on the frontier.", "yellow")


def _mark(knee: bool, best: bool, load: Load) -> str:
    if load.refusals:
        return f"  refused: {', '.join(refusal.code for refusal in load.refusals)}"
    return "  knee" if knee else "  frontier" if best else "  beaten"
