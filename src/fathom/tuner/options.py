"""The options of a search, which are checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fathom.errors import BadInputError
from fathom.machine import inventory
from fathom.recorder import Plan
from fathom.timing import MARGIN, Clock, SystemClock
from fathom.tuner.judging import PROOF_RUNS
from fathom.tuner.knobs import Knob, catalogue
from fathom.tuner.pairing import BETWEEN
from fathom.tuner.search import require_optuna

LEAST_RUNS = PROOF_RUNS + BETWEEN + 2  # two candidates between runs of the program, and a proof
LEAST_RUN_S = 1.0  # to import torch and run some steps
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to tune. `agree` is the relative difference of results that is accepted, `until` a loss.

    `lanes` are GPUs, as in CUDA_VISIBLE_DEVICES: candidates run side by side on those of each lane.
    """

    budget_s: float = 600.0
    folder: Path | None = None
    steps: int | None = None
    step_on: str = "auto"
    until: float | None = None
    agree: float | None = None
    margin: float = MARGIN
    in_place: bool = False
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    extra: tuple[Knob, ...] = ()
    lanes: tuple[str, ...] = ()
    replace: bool = False
    seed: int = 0
    clock: Clock = field(default_factory=SystemClock)
    progress: Say = field(default=lambda _: None)
    tell: Say = field(default=lambda _: None)

    def check(self) -> None:
        """Raise BadInputError for options that no run is needed to refuse."""
        require_optuna()
        Plan(step_on=self.step_on)
        if self.in_place and len(self.lanes) > 1:
            raise BadInputError("Candidates side by side need copies of the folder; leave out --in-place.")
        if self.lanes and not inventory().get("gpus"):
            raise BadInputError("--gpus needs GPUs, and this machine has none; leave it out.")
        if not self.knobs():
            raise BadInputError("--only and --without leave no knob; leave one of them out.")
        if self.budget_s < LEAST_RUNS * LEAST_RUN_S:
            raise BadInputError(
                f"A budget of {self.budget_s:.0f} s is too short: search and proof need {LEAST_RUNS} runs or"
                " more; give --budget 1m or a longer one."
            )

    def knobs(self) -> list[Knob]:
        """Return the knobs to search. Raises BadInputError for a name that is none."""
        known = [*catalogue(), *self.extra]
        names = {knob.id for knob in known}
        if unknown := {*self.only, *self.without} - names:
            raise BadInputError(f"'{min(unknown)}' is not a knob; the knobs are {', '.join(sorted(names))}.")
        wanted = set(self.only or names) - set(self.without)
        return [knob for knob in known if knob.id in wanted]
