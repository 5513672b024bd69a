"""Sampling bursts in the recorded process. A failure here loses only the counters."""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fathom.atomic import atomic_write
from fathom.pristine import open, os, time
from fathom.probe.counters import budget, reasons
from fathom.probe.counters.collector import TIME, Chunk, Collector, OverflowedError
from fathom.probe.device import device_in_use
from fathom.probe.plan import CountersPlan
from fathom.probe.reporter import Reporter

if TYPE_CHECKING:
    from fathom.probe.orders import Job

MOST_STRETCH = 8  # how far the interval may be stretched if the hardware buffer overflows
DELAYED = 2  # multiple of an image's capacity

Between = tuple[int, int]  # the host's ns just before and after a call


def cupti_collector(torch: Any) -> Collector:
    """Return a collector for the device that the program uses. Raises CannotSampleError."""
    why = reasons.why_not(torch.version.cuda, reasons.installed())
    if why is None and not torch.cuda.is_initialized():
        why = "the program did not use CUDA"
    if why is not None:
        raise CannotSampleError(why)
    from fathom.probe.counters.cupti import CuptiCollector

    return CuptiCollector(device_in_use(torch.cuda))


make: Callable[[Any], Collector] = cupti_collector


class CannotSampleError(Exception):
    """Counters cannot be sampled; the message says why and what to do, in one clause."""


class CounterSampler:
    """Arms, starts, stops and saves bursts. `off` is True once sampling was abandoned."""

    def __init__(self, session: Reporter) -> None:
        self._session = session
        self._wanted: CountersPlan = session.plan.counters or {}
        self._collector: Collector | None = None
        self._job: Job | None = None
        self._device = self._interval = 0
        self._stretch = 1
        self._started: Between | None = None
        self._stopped: Between | None = None
        self.off = False
        self.active = 0.0  # active samples of the last burst

    @property
    def is_open(self) -> bool:
        """Whether a device's performance monitors are reserved."""
        return self._collector is not None

    def arm(self, job: Job) -> bool:
        """Configure the burst's group of counters. Return False, reported once, if it cannot be sampled."""
        return not self.off and self._safely(self._arm, job)

    def _arm(self, job: Job) -> None:
        if self._collector is None:
            collector = make(self._session.torch)
            collector.open()
            self._collector = collector
        self._device = device_in_use(self._session.torch.cuda)
        self._interval = job.interval_ns * self._stretch
        self._collector.configure(self._names(job), self._interval, self._wanted.get("trigger") or TIME)
        self._job, self._started, self._stopped = job, None, None

    def _names(self, job: Job) -> list[str]:
        return self._wanted["groups"][job.group]

    def start(self) -> None:
        """Start sampling if a burst is armed."""
        if self._job is not None and self._collector is not None:
            self._safely(self._start, self._collector)

    def _start(self, collector: Collector) -> None:
        self._started = _between(collector.start)

    def stop(self) -> None:
        """Stop sampling."""
        if self._started is not None and self._stopped is None and self._collector is not None:
            self._safely(self._stop, self._collector)

    def _stop(self, collector: Collector) -> None:
        self._stopped = _between(collector.stop)

    def save(self, burst: int, first: int, last: int) -> None:
        """Decode the samples of steps `first` to `last`, and write them."""
        job, self._job = self._job, None
        if job is not None and self._stopped is not None and self._collector is not None:
            self._safely(self._save, self._collector, job, burst, first, last)
        self._started = self._stopped = None
        if job is not None and job.last:
            self.close()

    def _save(self, collector: Collector, job: Job, burst: int, first: int, last: int) -> None:
        begun = time.time_ns()
        samples, overflow = SampleBuffer(), False
        try:
            for chunk in collector.chunks():
                samples.add(chunk)
        except OverflowedError:
            overflow = True
            if not self._was_delayed(job):
                self._stretch = min(MOST_STRETCH, 2 * self._stretch)
        file = f"samples-{os.getpid()}-{burst}.bin"
        self.active = samples.active
        check = samples.write(os.path.join(self._session.raw, file))
        about = {"t": "samples", "burst": burst, "device": self._device, "k0": first, "k1": last}
        counts = {"populated": samples.populated, "completed": len(samples), "overflow": overflow}
        times = {"start_ns": self._started, "stop_ns": self._stopped, "decode_ns": time.time_ns() - begun}
        what = {"group": job.group, "names": self._names(job), "interval_ns": self._interval}
        trigger = self._wanted.get("trigger") or TIME
        self._session.say(about | what | {"trigger": trigger} | times | counts | {"file": file, "crc": check})
        if overflow:
            self.close()  # samples left in the hardware buffer belong to no later burst

    def _was_delayed(self, job: Job) -> bool:
        """Return whether the burst took much longer than planned; then later bursts keep their interval."""
        took = self._stopped[0] - self._started[1] if self._started and self._stopped else 0
        return took > DELAYED * budget.samples(len(self._names(job))) * self._interval

    def close(self) -> None:
        """Release the hardware buffer; the next burst reserves it again."""
        collector, self._collector, self._job = self._collector, None, None
        if collector is not None:
            self._safely(collector.close)

    def _safely(self, action: Callable[..., None], *arguments: Any) -> bool:
        try:
            action(*arguments)
        except Exception as error:
            self._give_up(error)
            return False
        return True

    def _give_up(self, error: Exception) -> None:
        why = str(error) if isinstance(error, CannotSampleError) else reasons.explain(error)
        first, self.off = not self.off, True
        if first:
            self._session.note("counters", why)
            _warn(f"fathom: no hardware counters: {why}\n")
        self.close()


def _between(action: Callable[[], None]) -> Between:
    before = time.time_ns()
    action()
    return before, time.time_ns()


def _warn(text: str) -> None:
    try:
        sys.stderr.write(text)
    except Exception:
        pass


class SampleBuffer:
    """Collects the complete samples of one burst, in the compact format of the samples file."""

    def __init__(self) -> None:
        self.starts, self.ends, self.values = array("Q"), array("Q"), array("f")
        self.populated = 0
        self.active = 0.0  # samples, counted as if all multiprocessors were busy in each

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, chunk: Chunk) -> None:
        """Add samples that were read together."""
        self.populated += chunk.populated
        self.starts.extend(chunk.starts)
        self.ends.extend(chunk.ends)
        for row in chunk.values:
            self.values.extend(row)
            self.active += max(0.0, row[0]) / 100  # each group begins with an anchor, in percent

    def write(self, path: str) -> int:
        """Write the file atomically in little-endian order; return its CRC-32."""
        check = 0
        with atomic_write(path) as part, open(part, "wb") as file:
            for column in (self.starts, self.ends, self.values):
                if sys.byteorder == "big":
                    column.byteswap()
                data = column.tobytes()
                check = zlib.crc32(data, check)
                file.write(data)
        return check
