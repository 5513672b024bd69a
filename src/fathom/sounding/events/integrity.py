"""Find problems of a trace before any figure is computed from it. Nothing is repaired."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import polars as pl

from fathom.sounding.events.arrays import DAMAGED, Arrays
from fathom.sounding.manifest import Problem
from fathom.sounding.silence import SILENCE, hole_in
from fathom.units import NS_PER_S

# Phases of events without a duration: metadata, instants, counters, flows, asynchronous ones.
NO_INTERVALS = frozenset("MiICstfbenNDOPRcv(),")

GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
# Work of these may overlap with its predecessor on the stream: programmatic dependent launch allows it, and
# the branches of a graph are shown on one stream.
OVERLAPPING_LAUNCHES = ("cuLaunchKernelEx", "cudaLaunchKernelEx", *GRAPH_LAUNCHES)

BAD_TIME, BAD_DURATION, NO_NAME = "bad-time", "bad-duration", "no-name"
_LACKS = {BAD_TIME: "no usable start", BAD_DURATION: "no usable duration", NO_NAME: "no name"}
_LAST_NS = 2**62  # the year 2116: sums of two times still fit
_LOST = re.compile(
    r"stopped early\? = [1-9]|(?:dropped|lost)\D{0,80}[1-9]|[1-9]\d* \w* ?(?:dropped|lost)", re.I
)


def sound(events: Arrays, base_ns: int, nameless: int, what: str, problems: list[Problem]) -> Arrays:
    """Return the events that have a name, a start and a duration; `problems` gets the number of the others.

    `start` and `end` of the result are ns since the epoch: `base_ns` is added. `nameless` is the index of the
    missing name.
    """
    start, duration = events.pop("start"), events.pop("duration")
    missing = (start == DAMAGED) | (start < -base_ns) | (start >= _LAST_NS - base_ns)
    bad = ~missing & ((duration == DAMAGED) | (duration < 0) | (duration >= _LAST_NS))
    unnamed = ~missing & ~bad & (events["name"] == nameless)
    report({BAD_TIME: missing, BAD_DURATION: bad, NO_NAME: unnamed}, what, problems)
    good = ~(missing | bad | unnamed)
    kept = {name: array[good] for name, array in events.items()}
    return {**kept, "start": start[good] + base_ns, "end": start[good] + duration[good] + base_ns}


def damage(start: pl.Series, end: pl.Series, name: pl.Series) -> dict[str, np.ndarray]:
    """Return masks of the events without a usable start, a usable duration, or a name, by problem."""
    missing = ~start.is_between(0, _LAST_NS - 1).fill_null(False).to_numpy()
    bad = ~missing & ~((end >= start) & (end < _LAST_NS)).fill_null(False).to_numpy()
    unnamed = ~missing & ~bad & name.is_null().to_numpy()
    return {BAD_TIME: missing, BAD_DURATION: bad, NO_NAME: unnamed}


def report(wrong: dict[str, np.ndarray], what: str, problems: list[Problem]) -> None:
    """Add a problem for each kind of damage (mask by problem) that occurs in the table `what`."""
    for problem, rows in wrong.items():
        if count := int(rows.sum()):
            text = f"{count} {what} have {_LACKS[problem]} and were left out."
            # Profilers lack the names of some calls; neither the host's nor the device's time needs them.
            spoils = [] if (problem, what) == (NO_NAME, "launches") else [what]
            problems.append(Problem(problem, text, count, spoils=spoils))


def unread(phases: Counter[Any], categories: Counter[Any], problems: list[Problem]) -> None:
    """Report events of kinds that the importer does not know."""
    strange = Counter({phase: n for phase, n in phases.items() if phase not in NO_INTERVALS})
    for what, counts, of in (
        ("unknown-phase", strange, "phase"),
        ("unknown-category", categories, "category"),
    ):
        if count := counts.total():
            kinds = ", ".join(repr(kind) if kind else "none" for kind, _ in counts.most_common(4))
            problems.append(
                Problem(what, f"{count} events of an unknown {of} ({kinds}) were not read.", count)
            )


OVERLAP = "stream-overlap"
ROUNDING_NS = 1000  # an overlap up to this is rounding: some drivers' clocks tick in fractions of a µs


def resolution_ns(start: np.ndarray) -> int:
    """Return the resolution of the trace's times in ns: 1,000 in older traces, otherwise 1."""
    return 1000 if len(start) and not (start % 1000).any() else 1


def check(kernels: pl.DataFrame, launches: pl.DataFrame, problems: list[Problem]) -> None:
    """Report overlapping device work, missing or late launch calls, and graph launches without kernels."""
    tolerance = resolution_ns(kernels["start_ns"].to_numpy())
    calls = launches.unique("correlation", keep="first").select(
        "correlation", "api", called_ns="start_ns", call=pl.lit(True)
    )
    work = kernels.select("device", "stream", "correlation", "start_ns", "end_ns").join(
        calls, on="correlation", how="left", maintain_order="left"
    )
    overlaps(work, tolerance, problems)
    if len(launches):
        _unlaunched(work, problems)
        _before_launch(work, tolerance, problems)
    _silent_graphs(kernels, launches, problems)


def overlaps(work: pl.DataFrame, tolerance: int, problems: list[Problem]) -> None:
    """Report work (device, stream, start_ns, end_ns, api) that begins before its predecessor ends."""
    allowed = may_overlap()
    ordered = work.sort("device", "stream", "start_ns", "end_ns")
    before = pl.col("end_ns").cum_max().shift(1).over("device", "stream")
    overlapping = (before - pl.col("start_ns") > max(tolerance, ROUNDING_NS)) & ~allowed.fill_null(True)
    if count := ordered.filter(overlapping).height:
        text = f"{count} pieces of device work overlap with their predecessor on the same stream."
        problems.append(Problem(OVERLAP, text, count, spoils=["kernels"]))


def may_overlap() -> pl.Expr:
    """Return an expression: whether the call `api` may start a kernel before its predecessor has ended."""
    return pl.any_horizontal(pl.col("api").str.starts_with(api) for api in OVERLAPPING_LAUNCHES)


def judged_overlaps(problems: list[Problem], tables: dict[str, pl.DataFrame]) -> list[Problem]:
    """Return `problems` with overlaps on a stream checked again, over all bursts of the rank.

    A kernel launched with permission to overlap (programmatic dependent launch) in one burst may overlap in
    every burst. This matters for bursts that CUPTI recorded without runtime calls: their launches are derived
    from queue times and do not show how a kernel was launched.
    """
    kept = [problem for problem in problems if problem.what != OVERLAP]
    if len(kept) == len(problems):
        return problems
    calls = tables["launches"].unique(["burst", "correlation"], keep="first")
    work = tables["kernels"].join(
        calls.select("burst", "correlation", "api"), on=["burst", "correlation"], how="left"
    )
    free = may_overlap().fill_null(False).any().over("name")
    work = work.with_columns(api=pl.when(free).then(None).otherwise(pl.col("api")))
    tolerance = resolution_ns(work["start_ns"].to_numpy())
    overlaps(work, tolerance, kept)
    return kept


def _unlaunched(work: pl.DataFrame, problems: list[Problem]) -> None:
    """Report device work without a launch call, except work before its stream's first launch in the trace.

    That work was launched before the trace began.
    """
    launched = work.filter(pl.col("call")).group_by("device", "stream").agg(first=pl.col("start_ns").min())
    orphans = work.filter(pl.col("call").is_null()).join(launched, on=["device", "stream"])
    if count := orphans.filter(pl.col("start_ns") > pl.col("first")).height:
        text = f"{count} of {len(work)} pieces of device work have no launch call in the trace."
        problems.append(Problem("launch-missing", text, count, spoils=["launches"]))


def _before_launch(work: pl.DataFrame, tolerance: int, problems: list[Problem]) -> None:
    early = work.filter(pl.col("called_ns") - pl.col("start_ns") > tolerance)
    if count := len(early):
        worst = int((early["called_ns"] - early["start_ns"]).to_numpy().max())
        text = f"{count} pieces of device work begin before their launch, by up to {worst} ns: clocks differ."
        problems.append(Problem("clock-skew", text, count, spoils=["kernels"]))


def _silent_graphs(kernels: pl.DataFrame, launches: pl.DataFrame, problems: list[Problem]) -> None:
    graphs = launches.filter(pl.any_horizontal(pl.col("api").str.starts_with(api) for api in GRAPH_LAUNCHES))
    if count := graphs.join(kernels, on="correlation", how="anti").height:
        text = (
            f"{count} of {len(graphs)} graph launches show no kernels: their work is missing from the trace."
        )
        problems.append(Problem("graph-without-kernels", text, count, spoils=["kernels"]))


def steps_in_order(steps: pl.DataFrame, problems: list[Problem]) -> None:
    """Report steps whose times contradict their order: the clock was set back, or traces were mixed."""
    back = steps.sort("thread", "step").filter(pl.col("mark_ns").diff().over("thread") < 0)
    if count := len(back):
        text = f"{count} steps begin before the preceding step: the clock was set back."
        problems.append(Problem("clock-backwards", text, count, spoils=["steps"]))


def silence(tables: list[pl.DataFrame], problems: list[Problem]) -> None:
    """Report a gap longer than the rest of the recording: no program causes one."""
    if hole := hole_in(tables):
        lasts = (hole[1] - hole[0]) / NS_PER_S
        text = f"nothing was recorded for {lasts:,.0f} s: the machine slept, or its clock was set."
        problems.append(Problem(SILENCE, text))


def lost(meta: dict[str, object], problems: list[Problem]) -> None:
    """Report the profiler's own messages about lost records."""
    notes = [note for key in ("INFO", "WARNING", "ERROR") for note in _texts(meta.get(key))]
    reports = [note for note in notes if _LOST.search(note)]
    if reports:
        text = f'The profiler says that it lost records: "{reports[0].strip()[-200:]}"'
        problems.append(Problem("records-lost", text, len(reports), spoils=["kernels", "launches"]))


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
