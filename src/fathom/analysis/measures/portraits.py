"""Portraits of kernel families: time, launches, work, counters, measures, and limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import polars as pl

from fathom.analysis.account import account_of
from fathom.analysis.device import detail
from fathom.analysis.entries import DEVICE_WORK, Entry
from fathom.analysis.folding import Folding, by_family, counters_of
from fathom.analysis.folding.families import AND
from fathom.analysis.folding.kinds import bare
from fathom.analysis.intervals import covered, union
from fathom.analysis.measures.evaluate import KnownValues, measures_of
from fathom.analysis.measures.facts import Hardware, Launch, facts_of, fits, hardware, launch_size
from fathom.analysis.measures.hierarchy import SHARE, cache_peak, levels
from fathom.analysis.measures.results import (
    CounterRow,
    FamilyWork,
    Level,
    Measure,
    Portrait,
    Reason,
    UsualLaunch,
)
from fathom.analysis.peers import meetings
from fathom.analysis.results import Abstained, Device, LedgerRow
from fathom.errors import BadInputError
from fathom.machine.model import Machine
from fathom.sounding import Store
from fathom.units import NS_PER_US, US_PER_MS, US_PER_S

Rows = dict[str, list[CounterRow]]  # counters by family
SATURATED, BUSY = 0.80, 0.60  # use of a resource above which it sets the pace, or nearly does
LATENCY = "latency"
NOT_KNOWN = "not known"
_MOST_SPECIFIC_FIRST = (  # unhealthy measures
    "launch_time", "grid_covers", "local_per_thread", "spills_ld", "spills_st", "tail", "sm_active",
    "bank_conflicts_ld", "bank_conflicts_st", "sectors_per_request_ld", "sectors_per_request_st",
    "sector_use_ld", "sector_use_st", "dram_over_compulsory", "threads_per_instruction",
    "waiting_share_long_scoreboard", "waiting_share_short_scoreboard", "occupancy", "occupancy_reached",
)  # fmt: skip
_CAUSES = {
    "launch_time": "short launches",
    "grid_covers": "small grid",
    "local_per_thread": "spills",
    "tail": "tail wave",
}
_REPEATS = {"tail": "grid_covers", "sm_active": "grid_covers"}  # same cause


def device_portraits(
    store: Store, device: Device, machine: Machine, folding: Folding, least_ms: float = 0.0
) -> list[Portrait]:
    """Return a portrait for each kernel family of a device's ledger, longest first; [] for a processor.

    `folding` has the counters of the device's rank, `machine` the ceilings. Families that take less than
    `least_ms` per step are left out.
    """
    index = _index(device)
    if index is None:
        return []
    on = hardware(machine, index)
    rows = store.table("kernels", device.rank).filter(pl.col("device") == index).collect()
    timeline = rows.filter(pl.col("phase") == "timeline")
    launches = _launches(_in_windows(timeline, device) if timeline.height else rows)
    clock = _clock(store, device.rank, index, timeline)
    on = on._replace(figures=on.figures | ({"sm_clock": clock} if clock else {}))
    counters = _by_family(folding.frame.filter(pl.col("device") == index))
    pools = by_family(folding.pools, index)
    working = [
        entry
        for entry in sorted(device.ledger, key=lambda entry: -entry.ms)
        if entry.entry in DEVICE_WORK and entry.ms > 0 and entry.detail in launches
    ]
    cache = cache_peak(_cache_shares(working, counters))
    on = on._replace(figures=on.figures | ({} if cache is None else {"l2_peak": cache}))
    return [
        _portrait(
            entry,
            device,
            on,
            launches[entry.detail],
            _rows_of(entry.detail, counters, pools.get(entry.detail)),
            folding.abstained,
        )
        for entry in working
        if entry.ms >= least_ms
    ]


def _cache_shares(entries: list[LedgerRow], counters: Rows) -> Iterator[tuple[float, float, float]]:
    """Yield (share of L2's peak in %, its error, compulsory B/s) of compute families that have all three."""
    for entry in entries:
        rows = [row for row in counters.get(entry.detail, []) if bare(row["counter"]).startswith(f"{SHARE}.")]
        if entry.entry == Entry.COMPUTE and entry.bytes_per_s and rows:
            yield rows[0]["value"], rows[0]["error"] or 0.0, entry.bytes_per_s


def _index(device: Device) -> int | None:
    number = device.device.rpartition(":")[2]
    return int(number) if number.isdigit() else None


def _in_windows(kernels: pl.DataFrame, device: Device) -> pl.DataFrame:
    """Return the kernels that run in the windows of the ledger, so that both are about the same launches."""
    used = [window for window in device.windows if window.used]
    edges = np.array([(window.start_ns, window.end_ns) for window in used], np.int64).reshape(-1, 2)
    bounds = union(edges[:, 0], edges[:, 1])
    times = (kernels[name].to_numpy() for name in ("start_ns", "end_ns"))
    return kernels.filter(pl.Series(covered(bounds, *times) > 0, dtype=pl.Boolean))


def _launches(kernels: pl.DataFrame) -> dict[str, tuple[UsualLaunch, dict[str, float]]]:
    """Return the launches by family, and durations in µs: mean and percentiles."""
    time = (pl.col("end_ns") - pl.col("start_ns")) / NS_PER_US
    usual = ("grid", "block", "registers", "shared_bytes", "local_bytes")
    launches = (
        kernels.with_columns(label=detail(), time=time)
        .group_by("label")
        .agg(
            mean=pl.col("time").mean(),
            p10=pl.col("time").quantile(0.1),
            p50=pl.col("time").median(),
            p90=pl.col("time").quantile(0.9),
            streams=pl.col("stream").n_unique(),
            **{name: pl.col(name).drop_nulls().mode().sort().first() for name in usual},
        )
    )
    return {
        row["label"]: (
            UsualLaunch(
                threads=launch_size(row["block"]),
                streams=row["streams"],
                **{name: row[name] for name in usual},
            ),
            {name: row[name] for name in ("mean", "p10", "p50", "p90")},
        )
        for row in launches.iter_rows(named=True)
    }


def _clock(store: Store, rank: int, index: int | None, kernels: pl.DataFrame) -> float | None:
    """Return the median SM clock in Hz, during the timeline or else while the device was busy."""
    own = (
        store.table("telemetry", rank).filter(pl.col("device") == index).drop_nulls("sm_clock_mhz").collect()
    )
    if kernels.height:
        start, end = kernels["start_ns"].min(), kernels["end_ns"].max()
        during = own.filter(pl.col("time_ns").is_between(start, end))
        own = during if during.height else own.filter(pl.col("busy_percent") > 0)
    median = own["sm_clock_mhz"].median()
    return 1e6 * float(median) if median is not None else None  # type: ignore[arg-type]


def _portrait(
    entry: LedgerRow,
    device: Device,
    on: Hardware,
    timed: tuple[UsualLaunch, dict[str, float]],
    counted: tuple[list[CounterRow], str],
    abstained: list[Abstained],
) -> Portrait:
    launch, time_us = timed
    work = _work(entry, time_us["mean"])
    mean = Launch(
        time_us["mean"] / US_PER_S, launch.threads, launch.registers, launch.shared_bytes,
        work.flops_a_launch, work.bytes_a_launch, entry.unit,
    )  # fmt: skip
    rows, counted_as = counted
    known = mean._replace(bytes=None) if entry.divided else mean  # a share by time is no minimum
    measures, _ = measures_of(KnownValues(rows, facts_of(on, known)))
    roof = levels(measures, mean, on)
    bound, used, reasons = limit(measures, roof)
    step_ms = (device.total_ms or 0.0) + (device.observer_ms or 0.0)  # clean if that is known
    return Portrait(
        family=entry.detail,
        entry=entry.entry,
        rank=device.rank,
        device=device.device,
        ms=entry.ms,
        share=entry.ms / step_ms if step_ms else 0.0,
        launches=entry.count,
        time_us=time_us,
        launch=launch,
        occupancy=fits(on, mean),
        work=work,
        measures=measures,
        counters=rows,
        counted_as=counted_as,
        roofline=roof,
        bound=bound,
        used=used,
        reasons=reasons,
        abstained=_not_analysed(entry, abstained, counted_as),
        device_name=device.name,
    )


def _work(entry: LedgerRow, mean_us: float) -> FamilyWork:
    """Return the entry's work per step, and per launch of mean length."""
    part = mean_us / US_PER_MS / entry.ms
    return FamilyWork(
        flops=entry.flops,
        bytes=entry.bytes,
        flops_per_s=entry.flops_per_s,
        bytes_per_s=entry.bytes_per_s,
        flops_a_launch=entry.flops * part if entry.flops is not None else None,
        bytes_a_launch=entry.bytes * part if entry.bytes is not None else None,
        at_ceiling_ms=entry.at_ceiling_ms,
        bound=entry.bound,
        unit=entry.unit,
        abstained=entry.abstained,
        divided=entry.divided,
    )


def _by_family(counters: pl.DataFrame) -> Rows:
    rows: Rows = {}
    for row in counters.iter_rows(named=True):
        rows.setdefault(row["family"], []).append(cast(CounterRow, row))
    return rows


def _rows_of(family: str, counters: Rows, pool: str | None = None) -> tuple[list[CounterRow], str]:
    """Return a family's rows, and the name that they describe: the family, its pool, or a group of either."""
    own = counters.get(family, [])
    if _sampled(own):
        return own, family
    name = pool or family
    groups = (label for label in counters if AND in label and name in label.split(AND))
    label = next((label for label in (name, *groups) if _sampled(counters.get(label, []))), "")
    return own + _sampled(counters.get(label, [])), label


def _sampled(rows: list[CounterRow]) -> list[CounterRow]:
    return [row for row in rows if row["source"] != "static"]


def _not_analysed(entry: LedgerRow, abstained: list[Abstained], counted_as: str) -> list[Abstained]:
    """Return the parts of this portrait that are unknown, with reasons."""
    reasons = [Abstained("work", entry.abstained)] if entry.abstained else []
    if not counted_as:
        own = [reason for reason in abstained if reason.what.startswith(f"counters of {entry.detail} on")]
        reasons += own or [reason for reason in abstained if reason.what == "counters"]
    return reasons


NO_TIMELINE = "This sounding has no timeline of kernels; record one with `fathom run`."
NO_KERNELS = "This program ran on the processor, which has no kernels; `fathom report` has its ledger."


def portraits_of(store: Store, machine: Machine, rank: int | None = None) -> list[Portrait]:
    """Return a portrait per kernel family of a rank, longest first.

    By default, the rank is the first with a timeline. `machine` has the ceilings. Raises BadInputError if no
    kernels of the rank were recorded.
    """
    store = store.cached()
    chosen = _devices(store, machine, rank)
    if all(device.device == "cpu" for device in chosen):
        raise BadInputError(NO_KERNELS)
    folding = counters_of(store, chosen[0].rank)
    every = [portrait for device in chosen for portrait in device_portraits(store, device, machine, folding)]
    return sorted(every, key=lambda portrait: -portrait.ms)


def _devices(store: Store, machine: Machine, rank: int | None) -> list[Device]:
    """Return the devices of `rank`, or of the first rank with any. Raises BadInputError if there are none."""
    met = meetings(store)
    for number in store.ranks if rank is None else [rank] * (rank in store.ranks):
        if devices := account_of(store, number, machine, met.of.get(number)).devices:
            return devices
    if rank is None:
        raise BadInputError(NO_TIMELINE)
    known = ", ".join(map(str, store.ranks))
    raise BadInputError(f"Rank {rank} has no timeline; recorded ranks: {known}.")


def limit(measures: list[Measure], levels: list[Level]) -> tuple[str, float | None, list[Reason]]:
    """Return the tightest limit, the share of it in use, and the reasons, most specific first.

    The limit is the most used resource if its use is high. Otherwise it is latency if counters were read,
    else the ceiling that the op's work comes closest to.
    """
    resources = sorted((m for m in measures if m.resource), key=lambda measure: -measure.value)
    reasons = _unhealthy(measures)
    if resources:
        top = resources[0]
        share = top.value / 100
        named = top.title if share >= BUSY else _unused(reasons, LATENCY)
        others = [reason for reason in reasons if reason.measure != top.name]
        return named, share, [_about(top), *others]
    best = max(levels, key=lambda level: level.used, default=None)
    used = best.used if best else None
    if best is not None and best.used >= BUSY:
        return best.name, used, reasons
    return _unused(reasons, NOT_KNOWN), used, reasons


def _unused(reasons: list[Reason], otherwise: str) -> str:
    """Return the limit if no resource is used much: short launches, a small grid and so on."""
    return _CAUSES.get(reasons[0].measure, otherwise) if reasons else otherwise


def _about(top: Measure) -> Reason:
    share = top.value / 100
    if share >= SATURATED:
        text = f"it is bound by {top.title}: {top.value:.0f} % of its peak"
        text += f"; {top.advice}" if top.advice else ""
    elif share >= BUSY:
        text = (
            f"its most used resource is {top.title} with {top.value:.0f} %: near the limit, with some waiting"
        )
    else:
        text = f"no resource is used much: the most is {top.title} with {top.value:.0f} %, so it waits"
    return Reason(text, top.name, 1.0 + share)


def _unhealthy(measures: list[Measure]) -> list[Reason]:
    reasons = []
    unhealthy = {measure.name for measure in measures if measure.advice}
    for measure in measures:
        if measure.advice and _REPEATS.get(measure.name) not in unhealthy:
            known = measure.name in _MOST_SPECIFIC_FIRST
            weight = (
                1 - _MOST_SPECIFIC_FIRST.index(measure.name) / len(_MOST_SPECIFIC_FIRST) if known else 0.0
            )
            reasons.append(Reason(measure.advice, measure.name, weight))
    return sorted(reasons, key=lambda reason: -reason.weight)
