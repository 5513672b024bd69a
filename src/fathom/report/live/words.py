"""Texts about a running program that the page and the lines share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fathom.analysis.compare import Change, cause_of, name_of
from fathom.analysis.live import Alert, FoundCause, Live, RankView, Slowdown
from fathom.report import units
from fathom.units import MS_PER_S, NS_PER_S

SMALL = 0.03  # of a change: smaller entries are summed up
ENTRIES = 4
NAME = 60  # characters of an entry's name in a sentence
PROFILED = "slowed down while details are recorded"
STATES = {
    "recording": "recording a timeline",
    "examining": "examining the timeline",
    "unexplained": "the cause is unknown",
}


def elapsed(seconds: float) -> str:
    """Return a long duration in its two largest units: 12 s, 3 min 04 s, 2 h 07 min, 3 d 04 h."""
    passed = max(int(seconds), 0)
    for size, unit, part, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if passed >= size:
            return f"{passed // size} {unit} {passed % size // part:02d} {name}"
    return f"{passed} s"


def against_baseline(rank: RankView) -> str:
    """Return the difference from the baseline in percent, with its sign; empty if it cannot be known."""
    if not rank.baseline_ms or rank.clean_ms is None:
        return ""
    return f"{100 * (rank.clean_ms / rank.baseline_ms - 1):+.1f} %"


def rates(rank: RankView) -> list[str]:
    """Return steps, samples and tokens per second, as far as known."""
    rates = [f"{units.significant(MS_PER_S / rank.step_ms)} steps/s"] if rank.step_ms else []
    rates += [f"{units.scaled(rank.samples_per_s)} samples/s"] if rank.samples_per_s else []
    return rates + ([f"{units.scaled(rank.tokens_per_s)} tokens/s"] if rank.tokens_per_s else [])


def ending(live: Live) -> str:
    """Return how the program ended, and the command that continues."""
    status = f" with status {live.exit_status}" if live.exit_status else ""
    once = "" if live.sounding else ", once it is written"
    read = f"Read the sounding with `fathom report {live.path}`{once}."
    return f"The program {live.ended or 'ended'}{status}. {read}"


def saving(finding: FoundCause) -> str:
    """Return what the finding saves; empty if no gain is predicted."""
    if finding.gain_ms is None:
        return ""
    share = f" ({100 * finding.share:.0f} % of the step)" if finding.share is not None else ""
    return f"saves {units.duration(finding.gain_ms)}{share}"


def alert_title(alert: Alert) -> str:
    """Return where the alert began, and how much slower the steps became."""
    more = 100 * (alert.step_ms / alert.baseline_ms - 1) if alert.baseline_ms else 0.0
    over = "; back to normal" if alert.over else ""
    times = f"{units.duration(alert.baseline_ms)} → {units.duration(alert.step_ms)}"
    return f"slower since about step {alert.step:,}: {times} ({more:+.0f} %){over}"


def alert_lines(live: Live, alert: Alert) -> Iterator[str]:
    """Yield the cause of an alert, or why it is not known yet."""
    change = alert.change
    if live.state == "ended" and alert.state in ("recording", "examining"):
        yield "the program ended before a timeline was examined"
        return
    if change is None or alert.state != "explained":
        why = f": {change.why_not}" if change and change.why_not else ""
        yield STATES.get(alert.state, alert.state) + why
        return
    if change.entries or change.why_not:
        yield changes(change) if change.entries else change.why_not
    for finding in change.findings[:2]:
        yield f"{finding.title}, {saving(finding)}: {finding.action}" if finding.action else finding.title


def changes(change: Slowdown) -> str:
    """Return the change of the step, and the entries that changed most, each with its largest row.

    Time may move within an entry from line to line, so rows alone would leave much of the change unnamed.
    """
    total = change.after_ms - change.before_ms
    sums = change.sums_ms or {row.entry: row.change_ms for row in change.entries}
    largest = sorted(sums, key=lambda entry: -abs(sums[entry]))[:ENTRIES]
    shown = [entry for entry in largest if abs(sums[entry]) >= SMALL * abs(total)]
    rest = total - sum(sums[entry] for entry in shown)
    texts = [_entry(entry, sums[entry], change.entries) for entry in shown]
    texts += [f"all other entries {_signed(rest)}"] if abs(rest) >= SMALL * abs(total) else []
    return f"step {_signed(total)}: {', '.join(texts)}"


def _entry(entry: str, ms: float, moved: Iterable[Change]) -> str:
    """Return an entry with its change, and the row that changed most in the same direction, if one did."""
    row = next((row for row in moved if row.entry == entry and row.change_ms * ms > 0), None)
    if row is None:
        return f"{entry} {_signed(ms)}"
    name = units.shorten(name_of(row), NAME)
    if abs(row.change_ms - ms) < SMALL * abs(ms):
        return f"{name} {_signed(ms)}{cause_of(row)}"
    within = f"{name.removeprefix(entry).strip()} {_signed(row.change_ms)}{cause_of(row)}"
    return f"{entry} {_signed(ms)}, of which {within}"


def _signed(ms: float) -> str:
    return f"{'+' if ms >= 0 else '−'}{units.duration(abs(ms))}"


def age(live: Live, ns: int) -> str:
    """Return how long ago something was."""
    return f"{elapsed((live.now_ns - ns) / NS_PER_S)} ago"
