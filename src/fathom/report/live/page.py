"""A running program as a full-screen page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.live import HOST, DeviceView, Insight, Live, RankView
from fathom.report import units
from fathom.report.live import words
from fathom.report.screen import beside, joined, paragraph, within_margins
from fathom.units import NS_PER_S
from fathom.visible import visible_line

LABEL = 15  # cells of a row's label
GAP = "  "  # between two columns
VALUE = 11
BAR = 20
GAIN = 16  # cells of a finding's gain
RANKS, FINDINGS, DEVICES = 8, 3, 8  # rows at most
CURVE = "▁▂▃▄▅▆▇█"
SLOWER, MUCH_SLOWER = 0.05, 0.2  # of the baseline
STATES = {"running": "green", "starting": "cyan", "stalled": "bold red", "ended": "yellow"}


def live_page(live: Live, width: int, height: int, keys: str = "") -> list[Text]:
    """Return the lines of the page, no wider than `width`, and at most `height` of them."""
    room = width - 2
    parts = [
        _heading(live, room),
        _ended(live),
        _steps(live, room),
        _alerts(live, room),
        _insight(live, room),
        _devices(live, room),
        _ranks(live),
        _notes(live, room),
    ]
    lines: list[Text] = []
    for part in parts:
        some = list(part)
        lines += [*some, Text()] if some else []
    foot = Text(keys, "dim")
    for line in lines:
        line.plain = visible_line(line.plain)
    body = list(within_margins(lines, room))
    return [*body[: max(height - 1, 1)], *within_margins([foot], room)]


def _heading(live: Live, width: int) -> Iterator[Text]:
    state = f"{live.state} {words.elapsed((live.now_ns - live.started_ns) / NS_PER_S)}"
    command = " ".join(word.rpartition("/")[2] if word.startswith("/") else word for word in live.command)
    name = live.path.rstrip("/").rpartition("/")[2]
    room = max(width - len(name) - len(state) - 4, 8)
    line = Text.assemble((name, "bold"), "  ", (units.shorten(command, room), "cyan"))
    yield line.append(" " * max(width - len(line) - len(state), 2)).append(state, STATES[live.state])
    lead = live.lead
    at = f"step {lead.step:,}" + (f" ({lead.phase})" if lead.phase else "") if lead else None
    ranks = f"{len(live.ranks)} ranks" if len(live.ranks) > 1 else None
    depth = f"depth {live.depth}" if live.depth else None
    yield Text(joined(live.machine, ranks, depth, at, f"records {units.scaled(live.log_bytes, 'B')}"), "dim")


def _ended(live: Live) -> Iterator[Text]:
    if live.state == "ended":
        yield Text(words.ending(live), "bold yellow")


def _steps(live: Live, width: int) -> Iterator[Text]:
    rank = live.lead
    if rank is None:
        yield Text("No step yet. Steps are counted by the optimizer, a loader, or fathom.step().", "dim")
        return
    yield _row("step time", units.duration(rank.step_ms), _pace(rank, width), _slower(rank))
    if rates := words.rates(rank):
        yield Text.assemble((f"{'throughput':<{LABEL}}", "dim"), (joined(*rates), "bold"))
    if live.mfu is not None:
        yield _row("MFU", units.percent(live.mfu), _bar(live.mfu, "green", "of the measured peak"))
    yield _row("goodput", units.percent(rank.goodput), _bar(rank.goodput, "green", _losses(rank)))
    if rank.input_share is not None:
        share = rank.input_share
        yield _row("input wait", units.percent(share), _bar(share, _shade(share), _each(rank, share)))
    if live.communication_share:
        about = "of the step, in the newest timeline"
        yield _row(
            "communication",
            units.percent(live.communication_share),
            _bar(live.communication_share, "magenta", about),
        )
    if rank.stalled:
        yield Text(f"No step for {words.elapsed(rank.since_mark_s)}", "bold red")


def _row(label: str, value: str, rest: Text, style: str = "bold") -> Text:
    return Text.assemble((f"{label:<{LABEL}}", "dim"), (f"{value:>{VALUE}}", style), "  ", rest)


def _slower(rank: RankView) -> str:
    if not rank.baseline_ms or rank.clean_ms is None:
        return "bold"
    more = rank.clean_ms / rank.baseline_ms - 1
    return "bold red" if more > MUCH_SLOWER else "bold yellow" if more > SLOWER else "bold green"


def _shade(share: float) -> str:
    return "red" if share > MUCH_SLOWER else "yellow" if share > SLOWER else "green"


def _pace(rank: RankView, width: int) -> Text:
    change = words.against_baseline(rank)
    if rank.profiled:
        base = f"  {words.PROFILED}"
    else:
        base = f"  {change} vs. baseline {units.duration(rank.baseline_ms)}" if change else ""
    room = width - LABEL - VALUE - len(base) - 4
    return Text.assemble((curve(rank.recent_ms, max(room, 0)), "cyan"), (base, "dim"))


def curve(values: list[float], width: int) -> str:
    """Return the last `width` values as blocks whose height grows from zero to the largest value."""
    shown = values[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    last = len(CURVE) - 1
    return "".join(CURVE[min(int(value / top * last + 0.5), last)] if top else CURVE[0] for value in shown)


def _bar(share: float | None, style: str, about: str) -> Text:
    return Text.assemble((units.bar(share or 0.0, BAR), style), "  ", (about, "dim"))


def _losses(rank: RankView) -> str:
    """Return the largest entries of the wall time that were not productive."""
    losses = {entry: s for entry, s in rank.entries_s.items() if entry != "productive" and s >= 0.1}
    largest = sorted(losses.items(), key=lambda item: -item[1])[:3]
    return joined(*(f"{entry} {words.elapsed(s) if s >= 1 else f'{s:.1f} s'}" for entry, s in largest))


def _each(rank: RankView, share: float) -> str:
    return f"{units.duration(share * rank.step_ms)} per step" if rank.step_ms else ""


def _alerts(live: Live, width: int) -> Iterator[Text]:
    for alert in live.alerts[-2:]:
        style = "yellow" if alert.over else "bold red"
        label = f"{'alert':<{LABEL}}"
        yield from paragraph(label, words.alert_title(alert), width, style, label_style=style)
        for text in words.alert_lines(live, alert):
            yield from paragraph(" " * LABEL, text, width)
    if live.rule and not live.alerts:
        yield Text.assemble((f"{'alert':<{LABEL}}", "dim"), (f"none; raised at {live.rule}", "dim"))


def _insight(live: Live, width: int) -> Iterator[Text]:
    insight = live.insight
    if insight is None:
        if live.examining:
            yield Text.assemble((f"{'verdict':<{LABEL}}", "dim"), ("examining the first timeline", "dim"))
        return
    if insight.headline:
        yield from paragraph(f"{'verdict':<{LABEL}}", insight.headline, width, "bold", label_style="dim")
    yield from _findings(insight, width)
    if counted := insight.counters:
        figures = (f"{measure.title} {measure.value:.3g} {measure.unit}".rstrip() for measure in counted)
        text = joined(counted[0].family, *figures)
        yield from paragraph(f"{'counters':<{LABEL}}", text, width, label_style="dim")
    if insight.abstained:
        yield from paragraph(f"{'no ledger':<{LABEL}}", insight.abstained, width, "dim", label_style="dim")
    busy = "; examining again" if live.examining else ""
    yield Text(f"{'':<{LABEL}}as of {words.age(live, insight.at_ns)}{busy}", "dim")


def _findings(insight: Insight, width: int) -> Iterator[Text]:
    for number, finding in enumerate(insight.findings[:FINDINGS]):
        label = f"{'findings' if number == 0 else '':<{LABEL}}"
        gain = "" if finding.gain_ms is None else units.duration(finding.gain_ms)
        share = "" if finding.share is None else f"{100 * finding.share:.0f} %"
        yield from beside(label, [Text.assemble((f"{gain:>8}{share:>6}  ", "green"), finding.title)], "dim")
        if number == 0 and finding.action:
            yield from paragraph(" " * (LABEL + GAIN), f"{finding.action}.", width, "dim")
    if (more := len(insight.findings) - FINDINGS) > 0:
        yield Text(f"{'':<{LABEL}}and {more} more", "dim")


def _devices(live: Live, width: int) -> Iterator[Text]:
    if not live.devices:
        return
    columns = _fitting(_columns(live.devices), width)
    yield Text(f"{'device':<{LABEL}}" + GAP.join(cells[0] for cells in columns), "dim")
    for place, device in enumerate(live.devices[:DEVICES], 1):
        name = "host" if device.device == HOST else f"GPU {device.device}"
        yield Text(f"{name:<{LABEL}}" + GAP.join(cells[place] for cells in columns))
    if len(live.devices) > DEVICES:
        yield Text(f"and {len(live.devices) - DEVICES} more", "dim")


def _fitting(columns: list[list[str]], width: int) -> list[list[str]]:
    """Return the first columns that fit, their cells padded to equal lengths."""
    room, kept = width - LABEL, []
    for cells in columns:
        size = max(map(len, cells))
        room -= size + len(GAP)
        if room + len(GAP) < 0:
            break
        kept.append([f"{cell:>{size}}" for cell in cells])
    return kept


def _columns(devices: list[DeviceView]) -> list[list[str]]:
    """Return head and cells of each column that any device has a value in, the most important first."""
    every = [
        ["busy", *(_of(device.busy_percent, " %") for device in devices)],
        ["power", *(_of(device.power_w, " W") for device in devices)],
        ["SM clock", *(_of(device.sm_clock_mhz, " MHz") for device in devices)],
        ["memory", *(_memory(device) for device in devices)],
        ["temp.", *(_of(device.temperature_c, " °C") for device in devices)],
        ["throttled", *(_throttle(device) for device in devices)],
        ["NVLink in", *(_bytes_per_s(device.link_rx_bytes_per_s) for device in devices)],
        ["NVLink out", *(_bytes_per_s(device.link_tx_bytes_per_s) for device in devices)],
        ["memory clock", *(_of(device.memory_clock_mhz, " MHz") for device in devices)],
    ]
    return [cells for cells in every if any(cell != units.MISSING for cell in cells[1:])]


def _of(value: float | None, unit: str) -> str:
    return units.MISSING if value is None else f"{value:,.0f}{unit}"


def _memory(device: DeviceView) -> str:
    if device.memory_bytes is None or not device.total_bytes:
        return units.memory(device.memory_bytes)
    used, size = units.memory(device.memory_bytes), units.memory(device.total_bytes)
    return f"{used.partition(' ')[0]} of {size}" if used[-3:] == size[-3:] else f"{used} of {size}"


def _bytes_per_s(value: float | None) -> str:
    return units.scaled(value, "B/s")


def _throttle(device: DeviceView) -> str:
    return units.MISSING if device.throttle is None else ", ".join(device.throttle) or "no"


def _ranks(live: Live) -> Iterator[Text]:
    if len(live.ranks) < 2:
        return
    slowest = sorted(live.ranks, key=lambda rank: -(rank.step_ms or 0.0))[:RANKS]
    yield Text(f"{'rank':<{LABEL}}{'step':>10}{'step time':>{VALUE}}{'input wait':>12}{'goodput':>10}", "dim")
    for rank in sorted(slowest, key=lambda rank: rank.rank):
        cells = (
            f"{rank.step:>10,}{units.duration(rank.step_ms):>{VALUE}}{units.percent(rank.input_share):>12}"
        )
        text = f"{rank.rank:<{LABEL}}{cells}{units.percent(rank.goodput):>10}"
        yield Text(text + (f"  no step for {words.elapsed(rank.since_mark_s)}" if rank.stalled else ""))
    if len(live.ranks) > RANKS:
        yield Text(f"the {RANKS} slowest of {len(live.ranks)} ranks", "dim")


def _notes(live: Live, width: int) -> Iterator[Text]:
    notes = list(dict.fromkeys(note for rank in live.ranks for note in rank.notes))
    for note in notes[-2:]:
        yield from paragraph(f"{'note':<{LABEL}}", note, width, "dim", label_style="dim")
