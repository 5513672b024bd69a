"""A load test on the terminal: its latencies, or why it is refused, and the frontier of a sweep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fathom.load import DEFINITIONS, UNREAD, Distribution, Load, Server, Spread, Sweep
from fathom.report import units
from fathom.report.screen import joined, show
from fathom.report.serving import causes

LABEL, CELL, BOUNDS = 10, 11, 14  # columns


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
    if load.server is not None:
        yield from _server(load.server, width)
    yield from causes(load.findings, width)
    if load.abstained:
        left = ", ".join(row.what for row in load.abstained)
        text = f"Not analysed: {left}; the server's metrics lack data (--json has the reasons)."
        yield from (Text(line, "dim") for line in textwrap.wrap(text, width, break_on_hyphens=False))
    for note in load.notes:
        yield from (Text(line, "yellow") for line in textwrap.wrap(f"Note: {note}.", width))


def _server(server: Server, width: int) -> Iterator[Text]:
    """Yield what the server itself says: its latencies, and the state of its queue and caches."""
    head = f"{'p50':>{BOUNDS}}{'p90':>{BOUNDS}}{'mean':>{CELL}}{'client':>{CELL}}"
    yield Text(f"{'server ms':<{LABEL}}{head}", "dim underline")
    for name in ("ttft", "queue", "prefill", "e2e"):
        of: Distribution | None = getattr(server, name)
        if of is not None:
            client = server.client_ttft_ms if name == "ttft" else None
            bounds = f"{_between(of.p50):>{BOUNDS}}{_between(of.p90):>{BOUNDS}}"
            means = f"{of.mean:>{CELL},.1f}{'' if client is None else f'{client:,.1f}':>{CELL}}"
            yield Text(f"{name:<{LABEL}}{bounds}{means}").append(f"  {of.n:,} requests", "dim")
    yield from map(Text, textwrap.wrap(joined(*_state(server)), width))


def _between(bounds: tuple[float | None, float | None]) -> str:
    """Return the bounds of a quantile: `300–500`."""
    low, high = (None if bound is None else f"{bound:,.4g}" for bound in bounds)
    return units.MISSING if low is None else f"{low}–{high}" if high else f"> {low}"


def _state(server: Server) -> Iterator[str]:
    """Yield the mean and largest gauges, and what was counted."""
    yield server.engine
    for name in ("running", "waiting"):
        values = [value for state in server.states if (value := getattr(state, name)) is not None]
        if values:
            yield f"{sum(values) / len(values):.3g} requests {name} (at most {max(values):.3g})"
    cache = [state.cache for state in server.states if state.cache is not None]
    if cache:
        yield f"KV cache at most {units.significant(100 * max(cache), 2)} % full"
    if server.hit_rate is not None:
        yield f"{100 * server.hit_rate:.0f} % of prompt tokens cached"
    if server.accepted is not None:
        yield f"{100 * server.accepted:.0f} % of drafted tokens accepted"
    if server.preemptions is not None:
        yield f"{server.preemptions:,} preemption{'' if server.preemptions == 1 else 's'}"


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
    """Yield the knee, a line for each rate, and why rates were refused."""
    if sweep.knee is not None:
        text = f"Knee at {sweep.knee:g} requests/s: beyond it users lose more than the server gains."
        yield Text(text, "bold")
    else:
        yield Text("No knee: fewer than three valid rates lie on the frontier.", "yellow")
    queues = any(point.load.server is not None for point in sweep.points)
    names = [
        "tokens/s",
        "per user",
        "ttft p50",
        "tpot p50",
        "e2e p50",
        "SLO met",
        *["srv queue"][: int(queues)],
    ]
    yield Text(f"{'rate':<{LABEL}}" + "".join(f"{name:>{CELL}}" for name in names), "dim underline")
    for point in sweep.points:
        load, cells = point.load, list(_cells(point.load))[: len(names)]
        line = Text(f"{f'{load.rate:g}/s':<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells))
        yield line.append(_mark(point.knee, point.on_frontier, load), "red" if load.refusals else "green")
    for load in (point.load for point in sweep.points):
        for refusal in load.refusals:
            text = f"{load.rate:g}/s: {refusal.code}: {refusal.why}."
            yield from (Text(line, "red") for line in textwrap.wrap(text, width))
    for note in dict.fromkeys(n for point in sweep.points for n in point.load.notes if UNREAD in n):
        yield from (Text(line, "yellow") for line in textwrap.wrap(f"Note: {note}.", width))


def _cells(load: Load) -> Iterator[str]:
    """Yield the cells of a rate; the last one is the server's mean queue."""
    yield units.scaled(load.tokens_per_s)
    yield f"{load.tokens_per_s_per_user or 0:.3g}"
    for spread in (load.ttft, load.tpot, load.e2e):
        yield units.MISSING if spread is None else f"{spread.p50:,.0f} ms"
    yield units.MISSING if load.good is None else f"{100 * load.good:.0f} %"
    queue = load.server.queue if load.server is not None else None
    yield units.MISSING if queue is None else f"{queue.mean:,.0f} ms"


def _mark(knee: bool, best: bool, load: Load) -> str:
    if load.refusals:
        return f"  refused: {', '.join(refusal.code for refusal in load.refusals)}"
    return "  knee" if knee else "  frontier" if best else "  beaten"
