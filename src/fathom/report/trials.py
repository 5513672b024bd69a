"""Gains observed by trials in the running program, one line per kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.analysis.results import Trial
from fathom.report import units

MEANING = {
    "input": "no step waits for a batch",
    "logging": "nothing is printed or logged",
    "gc": "no garbage is collected",
}


def section(trials: Sequence[Trial]) -> Iterator[Text]:
    """Steps with and without the cause, the gain of the mean step and its interval."""
    if not trials:
        return
    yield Text("observed gains", "bold")
    for trial in trials:
        name = MEANING.get(trial.kind, trial.kind)
        mean = f"{units.duration(trial.baseline_mean_ms)} → {units.duration(trial.trial_mean_ms)}"
        middle = f"median {units.duration(trial.baseline_ms)} → {units.duration(trial.trial_ms)}"
        yield Text.assemble(
            "  ", (f"{_gain(trial):<32}", "green" if trial.low_ms > 0 else "dim"), (name, "bold")
        )
        yield Text(
            f"    {trial.kind}: mean step {mean}, {middle}; {trial.n} steps in {trial.trials} trials", "dim"
        )


def _gain(trial: Trial) -> str:
    if trial.low_ms <= 0:
        return f"no gain seen ({_ms(trial.low_ms)} – {_ms(trial.high_ms)} ms)"
    return f"{_ms(trial.gain_ms)} ms ({_ms(trial.low_ms)}–{_ms(trial.high_ms)}) {100 * trial.share:.0f} %"


def _ms(value: float) -> str:
    return units.significant(value, 2)
