"""Show kinds of steps with their time and rates, and gains observed in trials in the running program."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.analysis.results import StepKind, Trial, step_noun
from fathom.report import units
from fathom.report.screen import columns_within

_COLUMNS = {"n": 7, "clean": 11, "as profiled": 13, "of time": 10, "tokens/s": 12}
_USED = "  ledger"
TRIALS = {
    "input": "no step waits for a batch",
    "logging": "nothing is printed or logged",
    "gc": "no garbage is collected",
}


def kinds_of_steps(kinds: list[StepKind], width: int) -> Iterator[Text]:
    """Yield a row per kind: number of steps, time per step, share of the time; nothing for a single kind."""
    if len(kinds) < 2:
        return
    tokens = any(kind.tokens_per_s for kind in kinds)
    columns = {name: room for name, room in _COLUMNS.items() if tokens or name != "tokens/s"}
    columns = columns_within(columns, width - len(_USED))
    name = width - sum(columns.values()) - len(_USED)
    head = "".join(f"{title:>{room}}" for title, room in columns.items())
    yield Text(f"{'kinds of steps':<{name}}{head}", "dim underline")
    for number, kind in enumerate(kinds, 1):
        label = units.shorten(f"  {number} {kind.name}", name - 1)
        shown = figures(kind)
        cells = "".join(f"{shown[title]:>{room}}" for title, room in columns.items())
        yield Text(f"{label:<{name}}{cells}{_USED if kind.used else ''}", "bold" if kind.used else "")
    for kind in kinds:
        if kind.note:
            yield Text(f"  clean {step_noun(kind.name)}s: {kind.note}", "yellow")
    for kind in kinds:
        yield from _verdict(kind, width)


def _verdict(kind: StepKind, width: int) -> Iterator[Text]:
    """Yield the verdict on another kind of step, and the saving of its first finding."""
    if kind.verdict is None:
        return
    text = f"{kind.name}: {kind.verdict.headline}"
    if first := next((finding for finding in kind.findings if finding.id == kind.verdict.finding), None):
        saved = "" if first.gain_ms is None else f" saves {units.significant(first.gain_ms, 2)} ms."
        text += f" {first.title}:{saved}" if saved else f" {first.title}."
    lines = textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    yield from map(Text, lines)


def figures(kind: StepKind) -> dict[str, str]:
    """Return the figures of a kind as text, by column."""
    share = units.MISSING if kind.share_of_time is None else f"{units.share(kind.share_of_time, 1.0)} %"
    return {
        "n": f"{kind.n:,}",
        "clean": units.duration(kind.clean_ms),
        "as profiled": units.duration(kind.timeline_ms),
        "of time": share,
        "tokens/s": units.scaled(kind.tokens_per_s),
    }


def observed_gains(trials: Sequence[Trial]) -> Iterator[Text]:
    """Yield step times with and without the cause, the gain of the mean step and its interval."""
    if not trials:
        return
    yield Text("observed gains", "bold")
    for trial in trials:
        name = TRIALS.get(trial.kind, trial.kind)
        mean = f"{units.duration(trial.baseline_mean_ms)} → {units.duration(trial.trial_mean_ms)}"
        middle = f"median {units.duration(trial.baseline_ms)} → {units.duration(trial.trial_ms)}"
        saved = Text(f"  {gain(trial):<32}", "green" if trial.low_ms > 0 else "dim")
        yield Text.assemble(saved, (name, "bold"))
        counts = f"{trial.n} steps in {trial.trials} trials"
        yield Text(f"    {trial.kind}: mean step {mean}, {middle}; {counts}", "dim")


def gain(trial: Trial) -> str:
    """Return the gain with its interval and share, or that no gain was seen."""
    if trial.low_ms <= 0:
        low, high = units.significant(trial.low_ms, 2), units.significant(trial.high_ms, 2)
        return f"no gain seen ({low} – {high} ms)"
    return f"{units.within(trial.gain_ms, trial.low_ms, trial.high_ms)} {100 * trial.share:.0f} %"
