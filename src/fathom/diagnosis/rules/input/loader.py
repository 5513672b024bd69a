"""How the loader makes batches, and whether it keeps up with the step."""

from __future__ import annotations

from dataclasses import dataclass

from fathom.diagnosis.signals import Signals, UnknownSignalError

READY = 0.9  # of the step that never waits: batches that come quicker keep the queue full
SLOWEST = 1e5  # B/s while it reads: a disk that seeks for every page gives more
MOST = 0.5  # of a batch's time: a stage that takes more is the one to mend


@dataclass(frozen=True)
class Loader:
    """How batches are made: milliseconds a batch, and by how many processes (0: the program's own)."""

    stages: dict[str, float]
    workers: int
    fed_ms: float  # what the step would take for a batch, if it never waited
    cores: int | None
    read_bytes: float | None = None
    threads: int | None = None  # that torch computes with in each worker

    @property
    def made_ms(self) -> float:
        return self.stages["fetch"] + self.stages.get("collate", 0.0)

    @property
    def every_ms(self) -> float:
        """So often a batch is ready; the thread that pins does one after the other."""
        return max(self.made_ms / max(self.workers, 1), self.stages.get("pin", 0.0))

    @property
    def behind(self) -> bool:
        return not self.workers or self.every_ms >= READY * self.fed_ms

    @property
    def held_by_pinning(self) -> bool:
        """Whether workers are ready sooner than the one thread that pins what they made."""
        return self.workers > 0 and self.stages.get("pin", 0.0) > self.made_ms / self.workers

    @property
    def needed(self) -> float:
        """Workers that would keep up."""
        return self.made_ms / self.fed_ms if self.fed_ms > 0 else float("inf")

    @property
    def waits_for_no_file(self) -> bool:
        """Whether what looks like reading brings in no bytes: a socket, a lock, a sleep."""
        return self.read_bytes is not None and self.read_bytes < SLOWEST * self.stages.get("read", 0.0) / 1e3

    @property
    def threads_exceed_cores(self) -> bool:
        """Whether workers compute with more threads than there are cores, in work that may use them.

        Decoders of libraries, reading, and the thread that pins take one thread each.
        """
        threads = self.workers * (self.threads or 1)
        if self.threads in (None, 1) or self.cores is None or threads <= self.cores:
            return False
        reads = self.mostly("read") and not self.waits_for_no_file
        pins = self.held_by_pinning and self.behind
        return not (reads or pins or self.mostly("decode"))

    def mostly(self, stage: str) -> bool:
        """Whether a batch takes most of its time in this stage."""
        return self.stages.get(stage, 0.0) > MOST * self.made_ms


def loader_of(signals: Signals, lost: float) -> Loader | None:
    """None where the recording does not hold the loader's stages."""
    try:
        stages, workers = signals["input.stages_ms"], int(signals["input.workers"])
    except UnknownSignalError:
        return None
    cores, read = signals.get("host.cores").value, signals.get("input.read_bytes").value
    fed = (signals["step.ms"] - lost) / signals.number("input.micro_steps", 1.0)
    return Loader(stages, workers, fed, cores, read, signals.get("input.threads").value)
