"""The sections below the ledger: input, memory, energy, cost, other devices, skipped analyses."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

import msgspec
from rich.text import Text

from fathom.analysis import where
from fathom.analysis.communication import LateRank
from fathom.analysis.entries import Entry
from fathom.analysis.results import (
    Abstained,
    Cost,
    Device,
    Energy,
    Examination,
    Input,
    LongSteps,
    Memory,
    label_of,
)
from fathom.diagnosis import kinds_of_steps
from fathom.report import units
from fathom.report.communication import LATE
from fathom.report.heading import LARGER, how_often
from fathom.report.ledger import by_entry, groups, of_profiled, step_ms
from fathom.report.screen import columns_within, grouped, joined, paragraph
from fathom.units import NS_PER_MS

LARGER_UNIT = (
    "the ledger covers usual steps only; call fathom.step() once per larger unit, such as an update or an "
    "epoch, to account for this time too"
)

# Format of a value by the suffix of its key, which is the unit.
_FORMATS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("_ns", lambda value: units.duration(value / NS_PER_MS)),
    ("_ms", units.duration),
    ("_bytes", units.memory),
    ("_mhz", lambda value: f"{value:.0f} MHz"),
    ("_c", lambda value: f"{value:.0f} °C"),
    ("_percent", lambda value: f"{units.significant(value)} %"),
)
# `read` is a remainder: the time that the loader's thread did not spend in user space.
_LABELS = {"read": "system calls and waits"}
LABEL = 10  # columns
MOST_ROWS = 4
MOST_DEVICES, FEW_DEVICES = 16, 4  # devices that are all listed; of more, late ones and others
ABSTAINED, UNFOLD = "Not analysed", "--all shows the reasons"
UNSEEN = 0.05  # of the clean step: the unattributed time that slow steps may explain
SLOWER_LATER = (
    "The profiled steps lack {} of the clean step, which is unattributed above. These steps were "
    "recorded because they were slow, and show where that time can go:"
)
# Missing results that change another figure of the report: their reasons are shown without --all.
_AFFECTS = re.compile(
    r"profiling overhead of|later clean|clean step$|clean .* step$|windows|settle$|steps$|ledger|interrupted"
    r"|.* at ceiling$|host times$"
)
_SAID = re.compile(r"an imported trace has|no clean step was")  # the step's line says it already
FINDING, FEW = "finding ", 2  # prefix of skipped checks; more than FEW are counted, not named
_COLUMNS: dict[str, int] = {Entry.COMPUTE: 15, Entry.COMMUNICATION: 15, Entry.COPY: 9, "idle": 9}
# Narrower, where steps have unattributed time: the columns still add up to the step.
_WITH_REST: dict[str, int] = {
    Entry.COMPUTE: 10, Entry.COMMUNICATION: 14, Entry.COPY: 8, "idle": 8, Entry.UNATTRIBUTED: 13,
}  # fmt: skip
_COLUMN_OF: dict[str, str] = {Entry.OPS: Entry.COMPUTE}


def facts(title: str, figures: Input | Memory | None, width: int) -> Iterator[Text]:
    """Yield a section of the examination as a titled paragraph of `label value` pairs; lists become rows."""
    section = msgspec.to_builtins(figures)
    if not section:
        return
    at_peak = section.pop("step", {})  # categories of memory
    pairs = [pair for key, value in section.items() if not _is_rows(value) for pair in _pairs(key, value)]
    yield from _paragraph(title, joined(*pairs), width)
    if at_peak:
        parts = (pair for name, value in at_peak.items() for pair in _pairs(name, value))
        yield from _paragraph("" if pairs else title, f"at a step's peak: {joined(*parts)}", width)
    for key, value in section.items():
        if _is_rows(value):
            for row in value[:MOST_ROWS]:
                kind = key.removesuffix("s").replace("_", " ")
                yield from _paragraph("", joined(*_row(kind, row)), width)
            if len(value) > MOST_ROWS:
                yield from _paragraph("", f"and {len(value) - MOST_ROWS} more {key}", width)


def pairs(figures: msgspec.Struct | None) -> list[tuple[str, str]]:
    """Return the figures of a section as labels and values, without lists of rows."""
    section = {} if figures is None else msgspec.to_builtins(figures)
    return [pair for key, value in section.items() if not _is_rows(value) for pair in _labelled(key, value)]


def energy(spent: Energy | None, devices: Sequence[Device], width: int) -> Iterator[Text]:
    """Yield energy per step, sample and token, mean power, and their source; several devices get rows."""
    if spent is None:
        return
    low, high = spent.per_step_low_j, spent.per_step_high_j
    between = "" if low is None or high is None else f" ({units.joules(low)} to {units.joules(high)})"
    each = {f"step{between}": spent.per_step_j, "sample": spent.per_sample_j, "token": spent.per_token_j}
    parts = [f"{units.joules(value)} per {name}" for name, value in each.items() if value is not None]
    if spent.mean_power_w is not None:
        parts.append(f"mean power {units.significant(spent.mean_power_w)} W")
    if spent.host_per_step_j is not None and spent.host_mean_power_w is not None:
        power = units.significant(spent.host_mean_power_w)
        parts.append(f"host {units.joules(spent.host_per_step_j)} per step, mean power {power} W")
    parts += [f"source: {spent.source}"] if spent.source else []
    yield from _paragraph("energy", joined(*parts), width)
    for row in spent.devices[:MOST_ROWS]:
        power = units.significant(row.mean_power_w)
        where = f"rank {row.rank} · {label_of(devices, row.device)}"
        yield from _paragraph("", f"{where} · {units.joules(row.per_step_j)} per step · {power} W", width)
    if len(spent.devices) > MOST_ROWS:
        yield from _paragraph("", f"and {len(spent.devices) - MOST_ROWS} more devices", width)


def cost(prices: Cost | None, width: int) -> Iterator[Text]:
    """Yield the cost of a step, a million tokens and a million samples."""
    if prices is None:
        return
    several = f" · {prices.devices} devices" if prices.devices > 1 else ""
    parts = [f"{units.amount(prices.price_per_hour, prices.currency)} per GPU-hour{several}"]
    for words, value in (
        ("step", prices.per_step),
        ("million tokens", prices.per_million_tokens),
        ("million samples", prices.per_million_samples),
    ):
        parts += [] if value is None else [f"{units.amount(value, prices.currency)} per {words}"]
    yield from _paragraph("cost", joined(*parts), width)


def utilisation(device: Device, width: int) -> Iterator[Text]:
    """Yield MFU and HFU on one line, with their reference."""
    shares = device.utilisation
    if shares is None:
        return
    parts = []
    if shares.mfu is not None:
        hfu = f", HFU {units.share(shares.hfu, 1)} %" if shares.hfu and shares.hfu != shares.mfu else ""
        parts.append(f"MFU {units.share(shares.mfu, 1)} %{hfu} (vs. measured ceiling)")
    if shares.mfu_datasheet is not None:
        parts.append(f"MFU {units.share(shares.mfu_datasheet, 1)} % (vs. dense datasheet peak)")
    flops = f"{units.scaled(shares.flops, 'FLOP')} per step"
    parts.append(f"at least {flops}" if shares.partial else flops)
    yield from _paragraph("flops", joined(*parts), width)


def micro_steps(device: Device, width: int) -> Iterator[Text]:
    """Yield the durations of the micro-steps that one step accumulates."""
    if device.micro_ms:
        lengths = " · ".join(units.duration(ms) for ms in device.micro_ms)
        yield from _paragraph("micro", f"{len(device.micro_ms)} micro-steps per step: {lengths}", width)


def regions(device: Device, width: int, top: int | None, noun: str = "step") -> Iterator[Text]:
    """Yield a row for each region that the program named, in the profiled steps."""
    if not device.regions:
        return
    launched = any(region.device_ms for region in device.regions)
    share, last = f"% of {noun}", {"device ms": 11} if launched else {}
    columns = columns_within({"ms": 10, share: len(share) + 2, "own ms": 10, "calls": 8} | last, width)
    name = width - sum(columns.values())
    head = "".join(f"{title:>{room}}" for title, room in columns.items())
    yield Text(f"{'regions of the program':<{name}}{head}", "dim underline")
    for region in device.regions[:top]:
        digits = units.decimals(device.total_ms)
        figures = {
            "ms": f"{region.ms:.{digits}f}",
            share: units.share(region.ms, device.total_ms),
            "own ms": f"{region.own_ms:.{digits}f}",
            "calls": f"{region.count:.3g}",
            "device ms": units.MISSING if region.device_ms is None else f"{region.device_ms:.{digits}f}",
        }
        cells = "".join(f"{figures[title]:>{room}}" for title, room in columns.items())
        yield Text(f"{units.shorten('  ' + region.name, name - 1):<{name}}{cells}")
    if top is not None and len(device.regions) > top:
        yield Text(f"  {len(device.regions) - top} more with --all", "dim")
    yield from of_profiled(device)


def long_steps(outliers: list[LongSteps], width: int) -> Iterator[Text]:
    """Yield how often rare long steps occur, the time they cost, and where the host spent it."""
    for rare in outliers:
        verb, each = ("takes", "") if rare.every or rare.n == 1 else ("take", " each")
        times = f"{rare.ms / rare.usual_ms:.2g} times the {units.duration(rare.usual_ms)} of a usual one"
        costs = f"their extra time is {100 * rare.share:.0f} % of the total"
        text = f"{how_often(rare, outliers)} {verb} {units.duration(rare.ms)}{each}, {times}; {costs}"
        yield from _paragraph("outliers", text, width)
        places = [f"{where(p.function, p.source)} {100 * p.share:.0f} %" for p in rare.places]
        yield from _paragraph("", f"in {joined(*places)}" if places else "", width)
        if rare.share >= LARGER:
            yield from _paragraph("", LARGER_UNIT, width)


def slow(examination: Examination, width: int) -> Iterator[Text]:
    """Yield a line for each step recorded because it was slow: its extra time over a usual step, by entry.

    If clean steps took longer than the profiled steps, a sentence says that these steps may show why.
    """
    if not examination.slow:
        return
    yield Text("slow steps", "bold")
    usual = by_entry(next((d.ledger for d in examination.devices if d.ledger), []))
    longer_ms = usual.get(Entry.UNATTRIBUTED, 0.0)
    if longer_ms > UNSEEN * sum(usual.values()):
        said = SLOWER_LATER.format(units.duration(longer_ms))
        yield from map(Text, textwrap.wrap(said, width, initial_indent="  ", subsequent_indent="  "))
    for step in examination.slow:
        more = {entry: ms - usual.get(entry, 0.0) for entry, ms in by_entry(step.ledger).items()}
        worst = sorted(more, key=lambda entry: -more[entry])[:3]
        causes = " · ".join(f"{entry} +{units.duration(more[entry])}" for entry in worst if more[entry] > 0)
        line = f"step {step.step} on {step.device}: {units.duration(step.ms)}  {causes}"
        yield from map(Text, textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="    "))


def _row(kind: str, row: dict[str, object]) -> list[str]:
    """Return the `label value` pairs of one row, beginning with its kind, as in `worker 3`."""
    first = {kind: row[kind]} if kind in row else {}
    pairs = [pair for key, value in (first | row).items() for pair in _pairs(key, value)]
    return pairs if kind in row else [kind, *pairs]


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _pairs(key: str, value: Any) -> Iterator[str]:
    """Yield `label value` of a key: a pair for each member of a dict, none for null and empty values."""
    return (f"{label} {text}" for label, text in _labelled(key, value))


def _labelled(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _labelled(f"{key}_{name}", member)
    elif value not in (None, "", []):
        yield _pair(key, value)


def _pair(key: str, value: Any) -> tuple[str, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for suffix, format_value in _FORMATS:
            if key.endswith(suffix):
                name = key.removesuffix(suffix).replace("_", " ")
                label = _LABELS.get(name, name) if suffix == "_ms" else name
                return label, format_value(value)
        if key.endswith("_share"):
            return key.replace("_", " "), f"{units.significant(100 * value)} %"
        value = f"{value:,}" if isinstance(value, int) else units.significant(value)
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return key.replace("_", " "), str(value)


def _paragraph(title: str, text: str, width: int) -> Iterator[Text]:
    return paragraph(f"{title:<{LABEL}}", text, width)


def abstained(entries: Iterable[Abstained], width: int, every: bool = False) -> Iterator[Text]:
    """Yield skipped analyses on one line, then the reasons that affect a figure above, or `every` reason."""
    reasons = grouped((entry.why, entry.what) for entry in entries)
    if not reasons:
        return
    affecting = [why for why, what in reasons.items() if any(map(_AFFECTS.match, what))]
    shown = {
        why: what for why, what in reasons.items() if every or (why in affecting and not _SAID.match(why))
    }
    folded = [name for why, what in reasons.items() if why not in shown for name in what]
    text = f"{', '.join(_counted(folded))}; {UNFOLD}" if folded else ""
    lines = textwrap.wrap(text, width, initial_indent=f"{ABSTAINED}  ", subsequent_indent="  ")
    head, *rest = lines or [ABSTAINED]
    yield Text.assemble((ABSTAINED, "bold"), (head.removeprefix(ABSTAINED), "dim"))
    for why, what in shown.items():
        reason = f"{', '.join(_few(what))}: {why}"
        rest += textwrap.wrap(reason, width, initial_indent="  ", subsequent_indent="    ")
    yield from (Text(line, "dim") for line in rest)


def _counted(what: list[str]) -> list[str]:
    """Return analyses by name, then the number of checks that lacked data."""
    checks = {name for name in what if name.startswith(FINDING)}
    others = dict.fromkeys(name for name in what if name not in checks)
    if not checks:
        return list(others)
    return [*others, f"{len(checks)} of {len(kinds_of_steps())} checks (lacked data, or do not apply)"]


def _few(what: list[str]) -> list[str]:
    """Return the distinct names. More than FEW checks are only counted; the JSON has their names."""
    names = list(dict.fromkeys(what))
    checks = [name for name in names if name.startswith(FINDING)]
    if len(checks) <= FEW:
        return names
    return [*(name for name in names if name not in checks), f"{len(checks)} checks"]


def devices(
    listed: list[Device], late: list[LateRank], width: int, every: bool, noun: str = "step"
) -> Iterator[Text]:
    """Yield devices with their milliseconds per `noun`, by group: `every` one, or at most MOST_DEVICES.

    Of more devices, these are the ones of the ranks `late` and the lowest, and the median of all.
    """
    columns = columns_within(_columns(listed), width - 16)
    head = "".join(f"{name:>{cell}}" for name, cell in columns.items())
    room = width - 16 - sum(columns.values())
    yield Text(f"{'rank':>4}  {'device':<{room}}{f'{noun} ms':>9}{head}", "dim underline")
    shown = listed if every or len(listed) <= MOST_DEVICES else _few_devices(listed, late)
    for device in shown:
        label = units.shorten(f"{device.label} {device.name}".rstrip(), room - 1)
        totals = _totals(device)
        cells = "".join(_cell(totals.get(name, 0.0), device, cell) for name, cell in columns.items())
        step = _cell(step_ms(device) or None, device, 9)
        yield Text(f"{device.rank:>4}  {label:<{room}}{step}{cells}")
    if len(shown) < len(listed):
        yield _median_device(listed, columns, room)
        yield Text(f"      {len(listed) - len(shown):,} more with --all", "dim")


def _few_devices(listed: list[Device], late: list[LateRank]) -> list[Device]:
    """Return the devices of the lowest ranks and of those that others wait for, by rank."""
    ranks = {rank.rank for rank in late if rank.score >= LATE}
    chosen = [device for device in listed if device.rank in ranks][:FEW_DEVICES]
    chosen += [device for device in listed if device.rank not in ranks][:FEW_DEVICES]
    return sorted(chosen, key=lambda device: (device.rank, device.device))


def _columns(listed: list[Device]) -> dict[str, int]:
    """Return the columns of the devices and their widths."""
    rest = any(_totals(device).get(Entry.UNATTRIBUTED) for device in listed)
    return _WITH_REST if rest else _COLUMNS


def _median_device(listed: list[Device], columns: dict[str, int], room: int) -> Text:
    totals = [_totals(device) for device in listed]
    steps = [ms for device in listed if (ms := step_ms(device))]
    cells = "".join(
        _cell(median(each.get(name, 0.0) for each in totals), listed[0], cell)
        for name, cell in columns.items()
    )
    label = units.shorten(f"median of {len(listed):,} devices", room - 1)
    return Text(f"{'':>4}  {label:<{room}}{_cell(median(steps) if steps else None, listed[0], 9)}{cells}")


def _totals(device: Device) -> dict[str, float]:
    return {_COLUMN_OF.get(group.kind.name, group.kind.name): group.ms for group in groups(device)}


def _cell(ms: float | None, device: Device, width: int) -> str:
    text = units.MISSING if ms is None else f"{ms:.{units.decimals(device.total_ms)}f}"
    return f"{text:>{width}}"
