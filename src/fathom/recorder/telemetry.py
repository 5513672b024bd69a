"""Telemetry: sample the sensors ten times a second into `raw/telemetry.jsonl`."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from fathom.atomic import private
from fathom.units import NS_PER_S

PERIOD = 0.1  # seconds
SPARSE = 600  # readings at that period, after which a sparse period is the time so far / SPARSE


class Sensor(Protocol):
    """A source of rows of the telemetry table, without their time."""

    def read(self) -> dict[str, object]: ...


class Telemetry:
    """Context manager with a thread that appends one row per sensor and period, until the exit.

    `sparse`: the period grows with the time, so that the file stays small however long the program runs.
    `clock` returns nanoseconds since the epoch; `pause` waits that many seconds and returns whether to end.
    A full disk ends the thread; earlier rows stay, and `fault` says why.
    """

    def __init__(
        self,
        raw: Path,
        sensors: Iterable[Sensor],
        *,
        sparse: bool = False,
        clock: Callable[[], int] = time.time_ns,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self.path = raw / "telemetry.jsonl"
        self.sensors, self.sparse, self.clock = list(sensors), sparse, clock
        self.fault: str | None = None
        self._end = threading.Event()
        self._pause = pause or self._end.wait
        self._thread = threading.Thread(target=self.run, name="fathom-telemetry", daemon=True)

    def __enter__(self) -> Telemetry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=5)

    def run(self) -> None:
        """Sample until the end is requested, then a last time so that energy covers the whole program."""
        try:
            with open(self.path, "a", buffering=1, opener=private) as file:
                ended, begun = False, self.clock()
                while not ended:
                    started = self.clock()
                    self._sample(file.write)
                    spent, so_far = (self.clock() - started) / NS_PER_S, (started - begun) / NS_PER_S
                    period = max(PERIOD, so_far / SPARSE) if self.sparse else PERIOD
                    ended = self._pause(max(0.0, period - spent))
                self._sample(file.write)
        except Exception as error:
            self.fault = f"telemetry stopped: {getattr(error, 'strerror', None) or error}"

    def _sample(self, write: Callable[[str], object]) -> None:
        for sensor in self.sensors:
            row = sensor.read()
            row["time_ns"] = self.clock()
            write(json.dumps(row) + "\n")


def main(raw: str, program: str) -> None:
    """Sample sensors and stacks for a program that records itself, until the program closes our stdin."""
    from fathom.recorder.sensors import all_sensors
    from fathom.recorder.stacks import StackSampler

    sensors, _ = all_sensors(int(program))
    with StackSampler(Path(raw)), Telemetry(Path(raw), sensors):
        sys.stdin.buffer.read()
