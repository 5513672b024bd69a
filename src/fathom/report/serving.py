"""Requests of a serving engine: latencies, where a request's time goes, and the slowest requests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from fathom.analysis.serving import (
    MEANING,
    Entry,
    IterationKind,
    Percentiles,
    RequestEntry,
    Serving,
    ServingFinding,
    SlowRequest,
)
from fathom.report import units
from fathom.report.screen import joined, show

LABEL, CELL = 24, 10  # columns
SMALL = 0.001  # of all requests' time: entries below it get no line
PARTS = 4  # entries of a slow request
LATENCIES = {
    "time to first token": "ttft_ms",
    "time per output token": "tpot_ms",
    "end to end": "e2e_ms",
}


def paragraphs(serving: Serving | None, width: int) -> Iterator[Iterable[Text]]:
    """Yield the paragraphs on requests; none without requests."""
    if serving is not None:
        yield [*_summary(serving, width), *_latencies(serving)]
        yield _ledger(serving)
        yield causes(serving.findings, width)
        yield _iterations(serving)
        yield _slowest(serving, width)


def verdict(serving: Serving | None) -> str:
    """Return what lengthens requests most, its remedy, and the saving; empty if nothing is known to."""
    if serving is None or not serving.findings:
        return ""
    first = serving.findings[0]
    saves = saving(first)
    return f"{first.title}. {first.action}. {saves[0].upper()}{saves[1:]} of the mean request."


def _summary(serving: Serving, width: int) -> Iterator[Text]:
    yield Text(headline(serving), "bold")
    yield from map(
        Text, textwrap.wrap(joined(*facts(serving)), width - 2, initial_indent="  ", subsequent_indent="  ")
    )


def headline(serving: Serving) -> str:
    """Return the sentence on how many requests were answered, how fast, and what most of their time was."""
    worst = max(serving.ledger, key=lambda row: row.share, default=None)
    most = f"; {100 * worst.share:.0f} % of their time is {worst.entry}" if worst else ""
    count = "1 request" if serving.requests == 1 else f"{serving.requests:,} requests"
    return f"{count} in {serving.seconds:,.3g} s{most}."


def figures(serving: Serving) -> Iterator[tuple[str, str]]:
    """Yield the server's figures with their names: median latencies and rates."""
    medians = {
        "median time to first token": serving.ttft_ms,
        "median time per output token": serving.tpot_ms,
        "median end to end": serving.e2e_ms,
    }
    for name, of in medians.items():
        if of is not None and of.p50 is not None:
            yield units.duration(of.p50), name
    yield f"{serving.requests_per_s:.3g}", "requests/s"
    if serving.tokens_per_s is not None:
        yield units.scaled(serving.tokens_per_s), "tokens/s"


def facts(serving: Serving) -> Iterator[str]:
    """Yield rates, and what is known of the engine, the cache and the queue."""
    yield f"{serving.requests_per_s:.3g} requests/s"
    if serving.tokens_per_s is not None:
        yield f"{units.scaled(serving.tokens_per_s)} tokens/s"
    if serving.tokens_per_joule:
        yield f"{serving.tokens_per_joule:.3g} tokens/J"
    if serving.per_million is not None:
        yield f"{serving.per_million:.3g} per million tokens"
    if serving.busy is not None:
        yield f"engine busy {100 * serving.busy:.0f} % of the time"
    if serving.failed:
        yield f"{serving.failed:,} failed"
    if serving.prompt_tokens and serving.cached_tokens is not None:
        yield f"{100 * serving.cached_tokens / serving.prompt_tokens:.0f} % of prompt tokens cached"
    if serving.kv_peak is not None:
        yield f"KV cache at most {units.significant(100 * serving.kv_peak, 2)} % full"
    if serving.drafted_tokens:
        share = 100 * serving.accepted_tokens / serving.drafted_tokens
        yield f"{share:.0f} % of drafted tokens accepted"
    if serving.preemptions:
        again = serving.recomputed_tokens
        count = f"{serving.preemptions:,} preemption{'' if serving.preemptions == 1 else 's'}"
        yield count if again is None else f"{count}, {again:,} tokens recomputed"
    if serving.waiting_max:
        yield f"up to {serving.waiting_max:,} requests queued"


def floor(serving: Serving) -> str:
    """Return a sentence on the floor that memory bandwidth sets for decodes; empty if it is not known."""
    of = serving.decode_floor
    if of is None:
        return ""
    read = f"{units.memory(of.weights_bytes)} of weights at {units.scaled(of.bandwidth)}B/s ({of.ceiling})"
    return f"Reading {read} takes {units.duration(of.ms)}: {100 * of.share:.2g} % of the median decode."


def latencies(serving: Serving) -> list[tuple[str, tuple[str, ...]]]:
    """Return a row for each latency: a note, and the cells."""
    rows = []
    for name, field in LATENCIES.items():
        of: Percentiles | None = getattr(serving, field)
        if of is not None:
            values = (of.p50, of.p90, of.p99, of.max, of.mean)
            rows.append(("", (name, *(units.duration(value) for value in values))))
    return rows


def entry_cells(row: RequestEntry) -> tuple[str, ...]:
    """Return name, mean, share, longest, and mean until the first token."""
    share = f"{100 * row.share:.1f}"
    times = (units.duration(value) for value in (row.max_ms, row.first_mean_ms))
    return (row.entry, units.duration(row.mean_ms), share, *times)


def iteration_cells(kind: IterationKind) -> tuple[str, tuple[str, ...]]:
    """Return a note, and the cells of a kind of iterations."""
    counts = (f"{kind.requests:.3g}", f"{kind.tokens:.3g}")
    return "", (kind.kind, f"{kind.n:,}", f"{100 * kind.share:.1f}", units.duration(kind.p50_ms), *counts)


def _line(cells: Iterable[str], style: str = "") -> Text:
    first, *others = cells
    return Text(f"{first:<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in others), style)


def _latencies(serving: Serving) -> Iterator[Text]:
    yield _line(("latency", "p50", "p90", "p99", "max", "mean"), "dim underline")
    yield from (_line(cells) for _, cells in latencies(serving))


def _ledger(serving: Serving) -> Iterator[Text]:
    """Yield the mean ledger of a request."""
    yield _line(("time of a request", "mean", "%", "max", "1st token"), "dim underline")
    for row in serving.ledger:
        if row.share >= SMALL:
            yield _line(entry_cells(row)).append(f"  {MEANING[Entry(row.entry)]}", "dim")
    first = sum(row.first_mean_ms for row in serving.ledger)
    yield _line(
        ("mean request", units.duration(serving.e2e_ms.mean), "100", "", units.duration(first)), "bold"
    )


def _iterations(serving: Serving) -> Iterator[Text]:
    """Yield a line for each kind of iteration."""
    if serving.iterations:
        yield _line(("iterations", "n", "%", "p50", "requests", "tokens"), "dim underline")
    yield from (_line(iteration_cells(kind)[1]) for kind in serving.iterations)
    if floor(serving):
        yield Text(floor(serving), "dim")


def causes(findings: Sequence[ServingFinding], width: int) -> Iterator[Text]:
    """Yield each cause with its predicted saving per request, its evidence and its remedy."""
    if findings:
        yield Text("causes, with the time that the mean request would save", "dim underline")
    for finding in findings:
        yield Text.assemble((f"{saving(finding):<34}  ", "green"), (finding.title, "bold"))
        for text in (f"{evidence(finding)} · fathom explain {finding.id}", finding.action):
            yield from (Text(f"  {line}", "dim") for line in textwrap.wrap(text, width - 2))


def print_causes(serving: Serving | None) -> None:
    """Print the causes that lengthen requests; nothing for a program that serves none."""
    if serving is not None and serving.findings:
        show(lambda width: causes(serving.findings, width), None)


def saving(finding: ServingFinding) -> str:
    """Return the gain with its interval and share, like `may save 40 ms (0–80), 12 %`, or its bound."""
    if finding.at_most:
        return f"saves at most {units.duration(finding.gain_ms)}, {100 * finding.share:.0f} %"
    perhaps = "may save" if units.perhaps(finding.gain_ms, finding.low_ms, finding.high_ms) else "saves"
    within = units.within(finding.gain_ms, finding.low_ms, finding.high_ms)
    return f"{perhaps} {within}, {100 * finding.share:.0f} %"


def evidence(finding: ServingFinding) -> str:
    """Return the facts behind the finding, as text."""
    return ", ".join(f"{name} {value:.3g}" for name, value in finding.evidence.items())


def _slowest(serving: Serving, width: int) -> Iterator[Text]:
    yield Text("slowest requests", "dim underline")
    for request in serving.slowest:
        yield from map(Text, textwrap.wrap(story(request), width, subsequent_indent="    "))


def story(request: SlowRequest) -> str:
    """Return sentences on where the time of one request went, in all and until its first token."""
    read, made = ("?" if n is None else f"{n:,}" for n in (request.prompt, request.generated))
    tokens = f"{read} → {made} tokens"
    head = f"#{request.request}  {units.duration(request.ms)} ({tokens})"
    entire = f"{head}: {_largest(request.entries, request.ms)}."
    if request.first_ms is None:
        return entire
    first = {_explained(request, name): ms for name, ms in request.first_entries.items()}
    largest = _largest(first, request.first_ms)
    return f"{entire} Of {units.duration(request.first_ms)} to the first token: {largest}."


def _largest(entries: dict[str, float], total: float) -> str:
    shown = list(entries.items())[:PARTS]
    rest = total - sum(ms for _, ms in shown)
    parts = [f"{units.duration(ms)} {name}" for name, ms in shown]
    return ", ".join([*parts, *([f"{units.duration(rest)} other"] if len(entries) > PARTS else [])])


def _explained(request: SlowRequest, entry: str) -> str:
    """Return an entry with the reason for its time, if it is known."""
    if entry == Entry.QUEUE and request.behind:
        many = "1 prompt" if request.behind == 1 else f"{request.behind:,} prompts"
        return f"{entry} behind {many} of {request.behind_tokens:,} tokens"
    if entry == Entry.PREFILL and request.at_ceiling_ms is not None:
        return f"{entry} of which {units.duration(request.at_ceiling_ms)} at the ceiling"
    return entry
