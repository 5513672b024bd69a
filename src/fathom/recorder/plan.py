"""What is to be recorded: the options, checked, as the probe reads them from `plan.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fathom.errors import BadInputError

DEPTHS = ("auto", "surface", "timeline")
STEP_ON = ("auto", "mark", "optimizer", "loader", "forward", "none")


@dataclass(frozen=True)
class Plan:
    """Options of one recording. `stop_after` is a number of steps, `recorded`, or None for never."""

    depth: str = "auto"
    steps: int | None = None
    settle: int | str = "auto"
    step_on: str = "auto"
    at: tuple[int, ...] = ()
    on_slow_step: bool = False
    stop_after: int | str | None = None

    def __post_init__(self) -> None:
        _one_of("depth", self.depth, DEPTHS)
        _one_of("step-on", self.step_on, STEP_ON)
        _count("steps", self.steps, least=1)
        _count("settle", None if self.settle == "auto" else self.settle, least=0)
        _count("stop-after", None if self.stop_after == "recorded" else self.stop_after, least=1)
        for step in self.at:
            _count("at", step, least=0)

    def write(self, raw: Path) -> None:
        """Leave `plan.json` in the folder of raw records."""
        (raw / "plan.json").write_text(json.dumps(asdict(self), indent=1))


def number_or_word(text: str) -> int | str:
    """`text` as a number if it is one; the option's own check refuses the words that it does not know."""
    return int(text) if text.strip().lstrip("-").isdigit() else text


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value == "counters":
        raise BadInputError(
            "--depth counters is not available yet: hardware counters come in a later version; use timeline."
        )
    if value not in known:
        raise BadInputError(f"--{option} {value} is not known; choose one of {', '.join(known)}.")


def _count(option: str, value: object, least: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or value < least:
        raise BadInputError(f"--{option} takes a whole number from {least} on, and not '{value}'.")
