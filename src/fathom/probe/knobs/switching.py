"""The time of a program's steps with and without settings that are switched on and off while it runs.

Processes of one program differ by 5 to 30 %, which hides what a setting gains. Alternating blocks of steps in
one process differ far less. The device is waited for at both ends of a block, so that no block is
timed with the work of another.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from fathom.pristine import json, open, os, time
from fathom.probe.faults import guarded
from fathom.probe.knobs.layers import when_called
from fathom.probe.knobs.switches import SWITCHES
from fathom.probe.session import Session

PART = "putting settings in place"
ORDER = (False, True, True, False)  # whether the settings are on: a drift favours neither side


class Switching:
    """Runs `warm` steps without and with the settings, then blocks of `skip` untimed and `every` timed steps.

    Each of `groups` groups has four blocks, in ORDER.
    """

    def __init__(
        self, session: Session, acts: dict[str, Any], warm: int, skip: int, every: int, groups: int
    ) -> None:
        self._session, self._acts = session, acts
        self.modules: list[Any] = []  # that the program calls
        self._on: ExitStack | None = None
        self._began = 0
        # Whether the settings were on, and ns per step: None if the compiler ran.
        self._blocks: list[tuple[bool, float | None]] = []
        self._compiled = 0  # compilations before the block
        self._every, self._skip = every, skip
        first = 2 * warm  # of the first block
        self._sides = {warm: True} | {
            first + number * (skip + every): side for number, side in enumerate(ORDER * groups)
        }
        self._first = first
        self._last = first + len(ORDER) * groups * (skip + every)

    @guarded(PART)
    def step(self, number: int) -> None:
        """Begin step `number`: end and begin blocks that are due."""
        if number not in self._sides and number < self._first:
            return
        place = (number - self._first) % (self._skip + self._every)
        if number > self._first and place == 0 and number <= self._last:
            ns = (self._now() - self._began) / self._every
            compiled = self._session.compilations > self._compiled
            self._blocks.append((self._on is not None, None if compiled else ns))
        if number == self._last:
            self._switch(False)
            self._session.stop()
        elif number in self._sides:
            self._switch(self._sides[number])
        if place == self._skip and number > self._first:
            self._compiled = self._session.compilations
            self._began = self._now()

    def _switch(self, on: bool) -> None:
        if on == (self._on is not None):
            return
        if self._on is not None:
            self._on.close()
            self._on = None
            return
        self._on = ExitStack()
        for name, value in self._acts.items():
            try:
                self._on.enter_context(SWITCHES[name](self._session, self.modules, value))
            except Exception as error:  # the run is useless: it ends with a note
                failed(self._session, name, value, error)
                self._session.stop()
                return

    def _now(self) -> int:
        cuda = self._session.torch.cuda
        if cuda.is_initialized():
            cuda.synchronize()
        return time.perf_counter_ns()

    @guarded(PART)
    def write(self) -> None:
        """Write `switched-PID.json` if all blocks were timed."""
        if self._blocks and len(self._blocks) == len(self._sides) - 1:
            path = os.path.join(self._session.raw, f"switched-{os.getpid()}.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(json.dumps(self._blocks))


def failed(session: Session, name: str, value: Any, error: Exception) -> None:
    """Note that a setting could not be put in place."""
    session.note(PART, f"{name} = {value}: {type(error).__name__}: {error}")


def install(session: Session, plan: dict[str, Any]) -> None:
    """Switch the plan's acts on and off at steps of the program."""
    switching = Switching(session, **plan)
    when_called(session, switching.modules.append)
    session.on_step.append(switching.step)
    session.on_end.append(switching.write)
