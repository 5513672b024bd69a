"""What was tried in the running program: a line for each kind."""

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


def section(found: Sequence[Trial]) -> Iterator[Text]:
    """Steps with and without it, the gain of the mean step and its interval."""
    if not found:
        return
    yield Text("what if, as observed", "bold")
    for one in found:
        name = MEANING.get(one.kind, one.kind)
        mean = f"{units.duration(one.baseline_mean_ms)} → {units.duration(one.trial_mean_ms)}"
        middle = f"median {units.duration(one.baseline_ms)} → {units.duration(one.trial_ms)}"
        yield Text.assemble("  ", (f"{_gain(one):<32}", "green" if one.low_ms > 0 else "dim"), (name, "bold"))
        yield Text(f"    {one.kind}: mean step {mean}, {middle}; {one.n} steps in {one.trials} trials", "dim")


def _gain(one: Trial) -> str:
    if one.low_ms <= 0:
        return f"no gain seen ({_ms(one.low_ms)} – {_ms(one.high_ms)} ms)"
    return f"{_ms(one.gain_ms)} ms ({_ms(one.low_ms)}–{_ms(one.high_ms)}) {100 * one.share:.0f} %"


def _ms(value: float) -> str:
    return units.significant(value, 2)
