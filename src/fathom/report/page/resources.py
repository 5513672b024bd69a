"""Input pipeline, memory, and power: what feeds the step, what it holds, and what it draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import msgspec
import polars as pl

from fathom.analysis import MEMORY_CATEGORIES, memory_over_step, peak_of
from fathom.analysis.results import Cost, Device, Energy, label_of
from fathom.report import units
from fathom.report.page.colours import SERIES, STAGES
from fathom.report.page.figure import Figure, altair, coloured, thinned
from fathom.report.page.recording import Recording, Section
from fathom.report.sections import pairs
from fathom.sounding import Store
from fathom.units import NS_PER_MS, NS_PER_S

POINTS = 300  # of a line
DEVICES = 8  # with a line each
NAMES, REST = {"read": "system calls and waits"}, "rest of fetch"
BY_CATEGORY = "Memory over one step by category, as profiled"
NO_CATEGORIES = "The recording has no categories: it lacks the allocator's events of the attribution phase."
LASTING, PASSING, FREE = "held throughout", "allocated for a part", "reserved, free"
_METRICS = {
    "power_w": ("power", "Power", "W"),
    "sm_clock_mhz": ("clock", "SM clock", "MHz"),
    "temperature_c": ("temperature", "Temperature", "°C"),
}


class Stage(TypedDict):
    """A stage of making a batch."""

    maker: str
    stage: str
    place: int
    ms: float
    colour: str


class Amount(TypedDict):
    """Memory of one kind at a time of the step."""

    time: float
    unit: str  # of the time
    kind: str
    gib: float


class Sample(TypedDict):
    """A sample of the telemetry."""

    s: float
    value: float
    device: str
    unit: str


def input_section(recording: Recording) -> Section | None:
    """Return the stages of making a batch, of the loader and of each worker; None without a loader."""
    loaded = recording.examination.input
    if loaded is None:
        return None
    makers: list[tuple[str, msgspec.Struct]] = [("all batches", loaded)]
    makers += [(f"worker {worker.worker}", worker) for worker in loaded.workers]
    rows = [row for label, stages in makers for row in _stages(label, stages)]
    table = [["Batches of", "Stage", "ms"], *([r["maker"], r["stage"], f"{r['ms']:.4g}"] for r in rows)]
    about = f"Stacked bars of the median time of each stage, for {len(makers) - 1} workers and all batches."
    figure = Figure("input", "Median time to make a batch, by stage", about, rows, _draw_stages, table)
    return Section("input", "Input pipeline", {"facts": pairs(loaded)}, [figure] if len(rows) > 1 else [])


def _stages(label: str, stages: msgspec.Struct) -> list[Stage]:
    """Return a row per stage; `fetch` without reading, decoding and transforming, which are parts of it."""
    known = {stage: getattr(stages, f"{stage}_ms") for stage in STAGES}
    inside = sum(known[part] or 0.0 for part in ("read", "decode", "transform"))
    if known["fetch"] is not None:
        known["fetch"] = max(known["fetch"] - inside, 0.0)
    names = {"fetch": REST} if inside else {}
    return [
        {"maker": label, "stage": names.get(stage, NAMES.get(stage, stage)), "place": place,
         "ms": known[stage], "colour": STAGES[stage]}
        for place, stage in enumerate(STAGES) if known[stage]
    ]  # fmt: skip


def _draw_stages(rows: list[Stage]) -> Any:
    alt = altair()
    makers = list(dict.fromkeys(row["maker"] for row in rows))
    colours = {row["stage"]: row["colour"] for row in sorted(rows, key=lambda row: row["place"])}
    bars = alt.Chart(alt.Data(values=rows)).mark_bar()
    return bars.encode(
        x=alt.X("ms:Q", title="ms per batch", axis=alt.Axis(tickCount=6)),
        y=alt.Y("maker:N", sort=makers, title=None),
        color=coloured(alt, "stage", colours),
        order="place:Q",
        tooltip=["maker:N", "stage:N", alt.Tooltip("ms:Q", format=".4~f")],
    ).properties(height=24 * len(makers))


def memory_section(recording: Recording) -> Section | None:
    """Return peaks, and the allocator's memory over one step; None if nothing was recorded."""
    store = recording.store
    figure = None if store is None else _by_category(store) or _over_step(store)
    known = recording.examination.memory
    if known is None and figure is None:
        return None
    devices = [] if known is None else [
        (f"rank {p.rank}", units.memory(p.peak_allocated_bytes), units.memory(p.peak_reserved_bytes))
        for p in known.devices
    ]  # fmt: skip
    facts = [] if known is None else pairs(known)
    why = "" if figure is None or figure.title == BY_CATEGORY else NO_CATEGORIES
    context = {"facts": facts, "devices": devices, "why": why}
    return Section("memory", "Memory", context, [figure] if figure else [])


def _by_category(store: Store) -> Figure[Amount] | None:
    """Return the memory over the recorded step by category; None without the allocator's events."""
    if not store.ranks:
        return None
    over_step = memory_over_step(store, store.ranks[0])
    if over_step is None:
        return None
    names = [name for name in MEMORY_CATEGORIES if over_step[name].max()]
    places = {*thinned(over_step.height, POINTS), peak_of(over_step)}
    shown = over_step[sorted(places)]
    rows: list[Amount] = [
        {"time": round(row["ns"] / NS_PER_MS, 6), "unit": "ms", "kind": name, "gib": row[name] / 2**30}
        for row in shown.iter_rows(named=True)
        for name in names
    ]
    table = [["Category", "At the peak"]]
    peak = over_step.row(peak_of(over_step), named=True)
    table += [[name, units.memory(peak[name])] for name in names]
    about = (
        "Memory over one step by category: " + ", ".join(f"{name} {size}" for name, size in table[1:]) + "."
    )
    return Figure("memory", BY_CATEGORY, about, rows, _draw_memory, table)


def _over_step(store: Store) -> Figure[Amount] | None:
    """Return the allocator's memory over the recorded step, else over the whole recording."""
    frame = store.table("memory").filter(pl.col("event") != "peak").sort("time_ns").collect()
    if frame.is_empty():
        return None
    first = frame.filter(rank=frame["rank"].min(), device=frame["device"].min())
    step = _replayed(first.filter(phase="memory"))
    known = first.drop_nulls("allocated").select("time_ns", "allocated", "reserved")
    shown, unit, scale = (step, "ms", NS_PER_MS) if step.height > 2 else (known, "s", NS_PER_S)
    if shown.height < 2:
        return None
    start, lowest = int(shown["time_ns"][0]), int(shown["allocated"].min())  # type: ignore[arg-type]
    shown = shown[list(thinned(shown.height, POINTS))].with_columns(
        pl.col("reserved").fill_null(pl.col("allocated"))
    )
    rows: list[Amount] = []
    for time, allocated, reserved in shown.iter_rows():
        sizes = {LASTING: lowest, PASSING: allocated - lowest, FREE: max(reserved - allocated, 0)}
        at = round((time - start) / scale, 6)
        rows += [
            {"time": at, "unit": unit, "kind": kind, "gib": size / 2**30} for kind, size in sizes.items()
        ]
    table = [[f"Time ({unit})", "Category", "GiB"]]
    table += [[f"{r['time']:.3f}", r["kind"], f"{r['gib']:.3f}"] for r in rows[:: max(len(rows) // 20, 1)]]
    span = "one step" if unit == "ms" else "the recording"
    about = f"Memory over {span}, in GiB: held throughout, allocated for a part of it, and reserved but free."
    return Figure("memory", f"Memory of the allocator over {span}", about, rows, _draw_memory, table)


def _replayed(events: pl.DataFrame) -> pl.DataFrame:
    """Return allocated and reserved memory after each event of a recorded step, from the state before it."""
    before = events.filter(event="now").drop_nulls("allocated").head(1)
    if before.is_empty():
        return pl.DataFrame(schema={"time_ns": pl.Int64, "allocated": pl.Int64, "reserved": pl.Int64})
    sign = pl.col("event").replace_strict({"alloc": 1, "free": -1}, default=0, return_dtype=pl.Int64)
    grown = pl.col("event").replace_strict(
        {"segment_alloc": 1, "segment_free": -1}, default=0, return_dtype=pl.Int64
    )
    size = pl.col("size").fill_null(0)
    return events.filter(pl.col("time_ns") >= before["time_ns"][0]).select(
        "time_ns",
        allocated=before["allocated"][0] + (sign * size).cum_sum(),
        reserved=before["reserved"][0] + (grown * size).cum_sum(),
    )


def _draw_memory(rows: list[Amount]) -> Any:
    alt = altair()
    known = {
        LASTING: SERIES[0],
        PASSING: SERIES[1],
        FREE: "#9fbfe0",
        **dict(zip(MEMORY_CATEGORIES, SERIES, strict=False)),
    }
    kinds = dict.fromkeys(row["kind"] for row in rows)
    colours = {kind: known[kind] for kind in kinds}
    largest = max(row["gib"] for row in rows)
    unit, factor = ("GiB", 1.0) if largest > 0.5 else ("MiB", 1024.0)
    shown = [row | {"place": list(colours).index(row["kind"]), "size": row["gib"] * factor} for row in rows]
    area = alt.Chart(alt.Data(values=shown)).mark_area(interpolate="step-after", opacity=0.9)
    return area.encode(
        x=alt.X("time:Q", title=rows[0]["unit"], scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=8)),
        y=alt.Y("size:Q", title=unit, stack="zero"),
        color=coloured(alt, "kind", colours),
        order="place:Q",
        tooltip=[
            "kind:N",
            alt.Tooltip("size:Q", title=unit, format=".3~f"),
            alt.Tooltip("time:Q", format=".3~f"),
        ],
    ).properties(height=180)


def power_section(recording: Recording) -> Section | None:
    """Return energy and cost, and power, clock and temperature over the recording."""
    result = recording.examination
    facts = [*_energy(result.energy), *_cost(result.cost)]
    figures = _telemetry(recording.store, result.devices) if recording.store is not None else []
    title = "Power, clocks, temperature" if figures or result.energy else "Cost"
    if not facts and not figures:
        return None
    return Section("power", title, {"facts": facts}, figures, brief=title.partition(",")[0])


def _energy(spent: Energy | None) -> Iterator[tuple[str, str]]:
    if spent is None:
        return
    low, high = spent.per_step_low_j, spent.per_step_high_j
    between = "" if low is None or high is None else f" ({units.joules(low)} to {units.joules(high)})"
    if spent.per_step_j is not None:
        yield "energy per step", units.joules(spent.per_step_j) + between
    for noun, value in (("sample", spent.per_sample_j), ("token", spent.per_token_j)):
        if value is not None:
            yield f"per {noun}", units.joules(value)
    if spent.mean_power_w is not None:
        yield "mean power", f"{units.significant(spent.mean_power_w)} W"
    if spent.host_per_step_j is not None:
        yield "host, per step", units.joules(spent.host_per_step_j)
    if spent.source:
        yield "source", spent.source


def _cost(prices: Cost | None) -> Iterator[tuple[str, str]]:
    if prices is None:
        return
    yield "price", f"{units.amount(prices.price_per_hour, prices.currency)} per GPU-hour"
    for noun, value in (
        ("step", prices.per_step),
        ("million tokens", prices.per_million_tokens),
        ("million samples", prices.per_million_samples),
    ):
        if value is not None:
            yield f"cost per {noun}", units.amount(value, prices.currency)


def _telemetry(store: Store, examined: Sequence[Device]) -> list[Figure[Sample]]:
    """Return a figure for each metric that was sampled, with a line for each of the first DEVICES devices."""
    frame = store.table("telemetry").filter(pl.col("device") >= 0).sort("time_ns").collect()
    devices = frame.select("rank", "device").unique().sort("rank", "device")
    frame = frame.join(devices.head(DEVICES), on=["rank", "device"], how="semi")
    some = f", first {DEVICES} of {devices.height} devices" if devices.height > DEVICES else ""
    return [
        _metric(key, f"{title} over the recording ({unit}){some}", unit, known, column, examined)
        for column, (key, title, unit) in _METRICS.items()
        if (known := frame.drop_nulls(column).sort("time_ns")).height > 1
    ]


def _metric(
    key: str, title: str, unit: str, known: pl.DataFrame, column: str, examined: Sequence[Device]
) -> Figure[Sample]:
    start = int(known["time_ns"][0])
    rows: list[Sample] = []
    for (rank, device), samples in known.group_by("rank", "device", maintain_order=True):
        shown = samples[list(thinned(samples.height, POINTS))]
        for time, value in shown.select("time_ns", column).iter_rows():
            at = round((time - start) / NS_PER_S, 3)
            label = f"rank {rank} {label_of(examined, device)}"
            rows.append({"s": at, "value": value, "device": label, "unit": unit})
    lowest, highest = min(r["value"] for r in rows), max(r["value"] for r in rows)
    about = f"{title}: between {units.significant(lowest)} and {units.significant(highest)} {unit}."
    table = [["Device", "s", unit]]
    table += [[r["device"], f"{r['s']:.2f}", f"{r['value']:.4g}"] for r in rows[:: max(len(rows) // 20, 1)]]
    return Figure(key, title, about, rows, _draw_line, table)


def _draw_line(rows: list[Sample]) -> Any:
    alt = altair()
    devices = dict(zip(dict.fromkeys(r["device"] for r in rows), SERIES * 128, strict=False))
    legend: dict[str, None] = {"legend": None} if len(devices) == 1 or len(devices) > 16 else {}
    return alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=1.5).encode(
        x=alt.X("s:Q", title="s since the start", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=8)),
        y=alt.Y("value:Q", title=rows[0]["unit"], scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4)),
        color=coloured(alt, "device", devices, **legend),
        tooltip=["device:N", alt.Tooltip("s:Q", format=".2f"), "value:Q"],
    ).properties(height=120)  # fmt: skip
