"""The plan of a recording: validated options, passed to the probe as `plan.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fathom.atomic import write_private
from fathom.errors import BadInputError
from fathom.probe.plan import STEP_ON, TRIALS, CountersPlan
from fathom.units import bytes_of

DEPTHS = ("auto", "surface", "timeline", "counters")
# Omitted from the file if empty.
MET = (
    "counters",
    "why_no_counters",
    "counter_samples",
    "what_if",
    "count_after",
    "max_size",
    "acts",
    "switched",
    "witness",
    "until",
    "sites",
)
NO_CHECKPOINT = "a skipped checkpoint may be the one that is needed later"


@dataclass(frozen=True)
class Plan:
    """Options of one recording. `stop_after` is a number of steps, `recorded`, or None for no limit.

    `counters` are the groups to sample, `why_no_counters` says why requested counters are unavailable;
    the machine fills in both. `counter_samples` is the number per group, None for the default.
    `what_if` lists the kinds of trials. `count_after` is the number of clean steps after which the others are
    only counted. `max_size` limits the raw records, in bytes. `acts` are settings that the probe puts in
    place, `switched` those that it switches on and off (probe/knobs/switching.py). With `witness`, the
    results of that many steps are recorded; `until` ends the program at that loss. `sites` are folders of the
    program's source, for which the places of settings are recorded.
    """

    depth: str = "auto"
    steps: int | None = None
    settle: int | str = "auto"
    step_on: str = "auto"
    at: tuple[int, ...] = ()
    on_slow_step: bool = False
    stop_after: int | str | None = None
    counters: CountersPlan | None = None
    why_no_counters: str | None = None
    counter_samples: int | None = None
    what_if: tuple[str, ...] = ()
    count_after: int | None = None
    max_size: int | None = None
    acts: dict[str, object] | None = None
    switched: dict[str, object] | None = None
    witness: int | None = None
    until: float | None = None
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _one_of("depth", self.depth, DEPTHS)
        _one_of("step-on", self.step_on, STEP_ON)
        _count("steps", self.steps, least=1)
        _count("settle", None if self.settle == "auto" else self.settle, least=0)
        _count("stop-after", None if self.stop_after == "recorded" else self.stop_after, least=1)
        _count("count-after", self.count_after, least=1)
        _count("counter-samples", self.counter_samples, least=1)
        for kind in self.what_if:
            if kind == "checkpoint":
                raise BadInputError(f"--what-if checkpoint is not possible: {NO_CHECKPOINT}.")
            _one_of("what-if", kind, TRIALS)
        for step in self.at:
            _count("at", step, least=0)

    @property
    def samples(self) -> bool:
        """Whether hardware counters were requested."""
        return self.depth in ("auto", "counters")

    @property
    def abstained(self) -> list[dict[str, str]]:
        """Return what was requested but will not be recorded, with reasons."""
        return [{"what": "counters", "why": self.why_no_counters}] if self.why_no_counters else []

    def meeting(self, counters: CountersPlan | None, why: str | None) -> Plan:
        """Return this plan with the `counters` that the machine can sample, or the reason `why` it cannot."""
        if not self.samples:
            return self
        if counters and self.counter_samples:
            counters = {**counters, "samples": self.counter_samples}
        return replace(self, counters=counters, why_no_counters=why)

    def write(self, raw: Path) -> None:
        """Write `plan.json` to the folder of raw records."""
        options = {
            name: value for name, value in asdict(self).items() if name not in MET or value not in (None, ())
        }
        write_private(raw / "plan.json", json.dumps(options, indent=1))


def number_or_word(text: str) -> int | str:
    """Parse `text` as a number if possible; the option's own check rejects unknown words."""
    return int(text) if text.strip().lstrip("-").isdigit() else text


def size_of(text: str | None) -> int | None:
    """Parse a size such as 500MB or 2GB; None means no limit."""
    if text is None:
        return None
    size = bytes_of(text)
    if not size:
        raise BadInputError(f"--max-size takes a size such as 500MB or 2GB, not '{text}'.")
    return int(size)


def trials(text: str | None) -> tuple[str, ...]:
    """Parse the comma-separated kinds of trials; `all` means every kind."""
    kinds = tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))
    return TRIALS if "all" in kinds else kinds


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadInputError(f"--{option} {value} is unknown; choose one of {', '.join(known)}.")


def _count(option: str, value: object, least: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or value < least:
        raise BadInputError(f"--{option} takes an integer of at least {least}, not '{value}'.")
