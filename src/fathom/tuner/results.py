"""The result types of `fathom tune`, printed by `--json`. Fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fathom.referee import Verdict

FASTER = "faster"


def label_of(choice: Mapping[str, str]) -> str:
    """Return the knobs of a choice with their values."""
    return ", ".join(f"{knob}: {value}" for knob, value in choice.items()) or "as it is"


class Setting(msgspec.Struct):
    """One setting of the result. Gains are shares of the step time that it saves.

    `predicted` comes from `source`: findings, account (the shares of the step's work), or unknown, with None.
    `realised` is measured by taking the setting out again, and with it in all candidates of the search.
    """

    knob: str
    title: str
    value: str
    predicted: float | None
    source: str
    realised: float | None
    changes: str
    carries: str
    code: str
    because: list[str] = []  # the kinds of findings that suggested it

    @property
    def label(self) -> str:
        """Its knob and value."""
        return label_of({self.knob: self.value})


class Tried(msgspec.Struct):
    """A candidate of the search: `gain` is the share of the step time that it saved, over `pairs` pairs.

    `seconds` is the duration of its longest run, start and compilation included.
    """

    choice: dict[str, str]
    status: str  # a run's status, differs, or the verdict of a proof
    gain: float | None
    predicted: float | None
    pairs: int = 0
    why: str = ""
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """The names of its values."""
        return label_of(self.choice)


class Patch(msgspec.Struct):
    """The settings as a patch of the program's source, for `git apply`; `file` is None without any.

    `left` has the reason by knob that is not in it; `launch` is the command with variables and arguments.
    `verified`: the patched copy ran with these settings in effect and the same results.
    """

    file: str | None = None
    knobs: list[str] = []
    left: dict[str, str] = {}
    launch: str = ""
    verified: bool = False
    note: str = ""


class Tuned(msgspec.Struct):
    """The result of a search. Without a setting that is proven faster, `settings` is empty."""

    command: list[str]
    settings: list[Setting]
    verdict: Verdict | None
    tried: list[Tried]
    budget_s: float
    seconds: float
    runs: int
    step_ms: float | None  # of the program as it is; with `until`, the time to the loss
    until: float | None = None
    file: str | None = None  # the settings file
    sounding: str = ""
    removed: list[Tried] = []  # settings of the best candidate that gained nothing when taken out
    unproven: list[Tried] = []  # faster candidates that are not offered, and why
    environment: dict[str, str] = {}
    acts: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    load: float | None = None  # the host's load average over the search, per core
    notes: list[str] = []
    patch: Patch | None = None  # of proven settings

    @property
    def gain(self) -> float | None:
        """The proven share of the step time that the settings save."""
        proven = self.verdict is not None and self.verdict.verdict == FASTER and self.settings
        return 1 - self.verdict.ratio if proven and self.verdict and self.verdict.ratio else None

    @property
    def predicted_share(self) -> float | None:
        """The share of the realised gain that findings and account predicted; None without a gain."""
        gains = [(s.predicted or 0.0, s.realised) for s in self.settings if s.realised and s.realised > 0]
        total = sum(realised for _, realised in gains)
        return sum(min(pair) for pair in gains) / total if total else None
