"""The settings that a search proved, the referee's reasons, and the file of settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from fathom.machine import known_machine
from fathom.recorder import Applied, write_settings
from fathom.referee import Verdict
from fathom.tuner.results import Setting, Tuned
from fathom.tuner.search import Choice, Search

LEFT_OUT = ("ceilings", "counters", "checks", "abstained")  # of the machine in a settings file


def reasons(verdict: Verdict) -> str:
    """Return the reasons for a verdict, and its notes, as sentences."""
    says = [reason.says + (f": {reason.detail}" if reason.detail else "") for reason in verdict.reasons]
    return " ".join(f"{text.rstrip('.')}." for text in (*says, *verdict.notes))


def share_of(log: float | None) -> float | None:
    """Return the share of the step time that the logarithm of a ratio saves."""
    return None if log is None else 1 - math.exp(-log)


def settings_of(
    search: Search, choice: Choice, gains: Mapping[str, float], verdict: Verdict | None
) -> Iterator[Setting]:
    """Yield the settings of a choice; `gains` are logarithms of what each gained."""
    for knob, value in search.values(choice):
        prior = search.known[knob.id]
        alone = 1 - verdict.ratio if len(choice) == 1 and verdict and verdict.ratio else None
        realised = alone if alone is not None else share_of(gains.get(knob.id))
        yield Setting(
            knob.id,
            knob.title,
            value.name,
            prior.of(value.name),
            prior.source,
            realised,
            knob.changes,
            knob.carries,
            value.code or knob.code,
            list(prior.because),
        )


def write_proven(path: Path, result: Tuned, applied: Applied) -> None:
    """Write settings that were proven, with their proof and the machine that they were proven on."""
    assert result.verdict is not None and result.gain is not None
    ratio, interval = result.verdict.ratio, result.verdict.interval
    machine = {k: v for k, v in known_machine().items() if k not in LEFT_OUT}
    proven = replace(
        applied,
        proof={"ratio": ratio, "interval": interval, "command": result.command},
        machine=msgspec.json.encode(machine).decode(),
    )
    write_settings(proven, path, f"Settings that `fathom tune` proved {100 * result.gain:.1f} % faster.")
