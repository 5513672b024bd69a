"""The options of a recording, read from the parent's `plan.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

from fathom.pristine import json, open, os

STEP_ON = ("auto", "mark", "engine", "optimizer", "loader", "forward", "none")
# In the order of a round. `input` comes last: the unchanged stretch after it waits until the batches that
# the loader has made ahead are used up.
TRIALS = ("logging", "gc", "input")
COUNT_AFTER = 200_000  # clean steps, whose marks take 4 MB
COUNT_AFTER_SURFACE = 10_000  # it may stay on for months
MOST_SETTLING_STEPS = 100
MOST_SETTLING_NS = 60_000_000_000


class CountersPlan(TypedDict, total=False):
    """The hardware counters to sample."""

    groups: list[list[str]]  # names that are sampled together
    interval_ns: int
    trigger: str
    rounds: int  # bursts of each group
    steps: int  # at most, in a burst
    samples: int  # of each group


@dataclass
class ProbePlan:
    """The options. `settle` is None for auto; `stop_after` is None, "recorded" or a number of steps."""

    depth: str = "auto"
    steps: int = 10
    settle: int | None = None
    step_on: str = "auto"
    at: list[int] = field(default_factory=list)
    on_slow_step: bool = False
    stop_after: str | int | None = None
    what_if: list[str] = field(default_factory=list)  # kinds of trials
    count_after: int = COUNT_AFTER  # clean steps recorded one by one before the others are only counted
    max_size: int | None = None  # bytes of raw records
    acts: dict[str, object] = field(default_factory=dict)  # settings to put in place, by name
    switched: dict[str, Any] = field(default_factory=dict)  # acts to switch on and off, and when
    witness: int = 0  # steps whose losses, weights and outputs are recorded, to compare settings by them
    until: float | None = None  # end the program when its loss is at most this
    sites: list[str] = field(default_factory=list)  # folders of the source, to find the places of settings
    counters: CountersPlan | None = None

    @classmethod
    def of(cls, options: dict[str, Any]) -> ProbePlan:
        """Build a plan from the dictionary of `plan.json`; missing or null options keep their defaults."""
        settle, stop = options.get("settle"), options.get("stop_after")
        step_on = options.get("step_on") or "auto"
        depth = options.get("depth") or "auto"
        count = options.get("count_after") or (COUNT_AFTER_SURFACE if depth == "surface" else COUNT_AFTER)
        return cls(
            depth=depth,
            steps=int(options.get("steps") or 10),
            settle=None if settle in (None, "auto") else int(settle),
            step_on=step_on if step_on in STEP_ON else "auto",
            at=sorted(int(step) for step in options.get("at") or []),
            on_slow_step=bool(options.get("on_slow_step")),
            stop_after=stop if stop in (None, "recorded") else int(stop),
            what_if=[str(kind) for kind in options.get("what_if") or []],
            count_after=int(count),
            max_size=options.get("max_size"),
            acts=dict(options.get("acts") or {}),
            switched=dict(options.get("switched") or {}),
            witness=int(options.get("witness") or 0),
            until=options.get("until"),
            sites=[str(folder) for folder in options.get("sites") or []],
            counters=options.get("counters") or None,
        )

    @property
    def groups(self) -> list[list[str]]:
        """The groups of counters to sample."""
        return (self.counters or {}).get("groups") or [] if self.depth in ("auto", "counters") else []

    @classmethod
    def read(cls, raw: str) -> ProbePlan:
        """Read the plan in the folder `raw`; the default plan if there is none."""
        try:
            with open(os.path.join(raw, "plan.json"), encoding="utf-8") as file:
                return cls.of(json.load(file))
        except FileNotFoundError:
            return cls()
