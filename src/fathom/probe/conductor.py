"""Carry out the orders of the phases, at the marks of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fathom.pristine import gc, os, time
from fathom.probe import dynamo, memory
from fathom.probe.chooser import StepSignal
from fathom.probe.device import device_in_use
from fathom.probe.device_clock import DeviceClock, DeviceMarks, lengths
from fathom.probe.faults import contain, guarded
from fathom.probe.frames import Beacon
from fathom.probe.orders import Job, Orders, Schedule
from fathom.probe.phases import SLOW, Phases
from fathom.probe.plain import is_plain
from fathom.probe.recorder import Recorder
from fathom.probe.reporter import Reporter
from fathom.probe.room import LARGEST_BURST
from fathom.probe.trials import PREFIX, Trials
from fathom.probe.usage import StretchUsage

FORKED, MOST_FORKS = "the program forked", 10  # bursts that forks interrupt before Fathom stops trying
LOOK_NS = 200_000_000  # how often to check the folder for a trigger


class Steps(Reporter, Protocol):
    """The recording whose phases are conducted, and its open step."""

    k: int
    trials: Trials

    def catch_up(self) -> None:
        """Count the deferred marks."""

    def flush(self, ns: int = 0) -> None:
        """Write pending records."""


class Conductor:
    """Phases, recorders and device events of one process. `orders` label the open step."""

    def __init__(self, session: Steps) -> None:
        self._session = session
        self._cuda = session.torch.cuda
        self._schedule = Schedule(session.raw)
        self._recorder: Recorder | None = None
        self._events = DeviceClock(self._cuda)
        self._usage = StretchUsage()
        self._device = 0
        self._trigger = os.path.join(session.raw, "trigger")
        self._trials = session.trials
        self.beacon = Beacon(session, off=session.plan.depth == "surface")
        self._mark_ns = self._longest_ns = self._looked_ns = 0
        self._frames = 0  # frames that Dynamo had tried at the last check
        self.capturing = self.foreign_profiler = False
        self._forks = 0  # that interrupted a burst
        self._settle(0)

    @property
    def recorder(self) -> Recorder:
        """The recorder, created on first use."""
        if self._recorder is None:
            self._recorder = Recorder(self._session, lambda: self.foreign_profiler)
        return self._recorder

    @property
    def used_kineto(self) -> bool:
        """Whether a burst was ever prepared in this process."""
        return self._recorder is not None

    @property
    def finished(self) -> bool:
        """Whether everything requested has been recorded."""
        return self.phases.finished

    def restart(self) -> None:
        """Restart with the first phase, because another source now marks the steps."""
        if self._recorder is not None and self._recorder.running:
            self.safely(self._recorder.stop, self._session.k)
        self._trials.restart()
        self._schedule.join()
        self._settle(self.phases.following)  # keeps later bursts from reusing earlier files
        self._mind_trials()

    def _settle(self, burst: int) -> None:
        self._usage.drop()
        self.phases = Phases(self._session.plan, self._schedule.lead, self._cuda.is_available(), burst)
        self.phases.sampled_alone = is_plain(self._session.torch)
        self.orders = Orders("settle", burst)

    # a mark

    @property
    def quiet(self) -> bool:
        """Whether marks may be deferred and processed together."""
        return self.phases.quiet and not (self.capturing or self.foreign_profiler)

    def passes(self, times: list[int]) -> None:
        """Count deferred steps that opened at these times, without deciding anything."""
        self.phases.passed(times)
        self._mark_ns = times[-1]

    def opens(self, k: int, signal: StepSignal) -> StepSignal:
        """Decide about step k before it opens. Return its signal, later if a recorder had to start first."""
        recorder = self._recorder
        if recorder is not None and recorder.running:
            signal = self.annotated(k, signal)
        elif recorder is not None and recorder.stranded:
            self.safely(recorder.land)
        resettled = self.phases.resettled
        self._look_around(k, signal.ns)
        stranded = recorder is not None and recorder.stranded
        self.phases.blocked = self.foreign_profiler or self.capturing or stranded
        self.phases.unsettled = self._trials.unsettled
        before = self.orders
        self.orders = self.phases.at(k, signal.ns)
        if self.phases.clean.doubtful:
            for record in self.read_events():
                self._session.say(record)
        if self._schedule.lead > 0:
            self._schedule.publish(self.phases.appointments, self.phases.resettled)
        if self.phases.resettled != resettled:
            self._session.say({"t": "resettled", "k": self.phases.resettled})
        if self.orders.start is not None:
            signal = self._start(k, signal)
        length, self._mark_ns = signal.ns - self._mark_ns, signal.ns
        self._longest_ns = length if before.start is not None else max(self._longest_ns, length)
        self._before = before
        return signal

    def opened(self, k: int, ns: int) -> None:
        """Do slow work within step k, after its mark was recorded."""
        orders = self.orders
        if _timed(self._before) and not _timed(orders) and not self.capturing:
            self._events.record(k, ns, closing=True)
        if orders is not self._before:
            self.report_usage(self._before, k)
            self._change(k, ns)
            if self.orders.phase == "clean":
                self._usage.begin(k)
        self._usage.follow(k, ns)
        if _timed(orders) and not self.capturing:
            self._events.record(k, ns)

    def annotated(self, k: int, signal: StepSignal) -> StepSignal:
        """During a burst, annotate the mark in the trace; return the signal with the annotation's time."""
        ns = self.safely(self.recorder.mark, k)
        return signal if ns is None else signal._replace(ns=ns)

    def stream(self) -> int | None:
        """Return the current stream's handle during a burst; 0 is the default stream."""
        if self._recorder is None or not self._recorder.running or not self._cuda.is_initialized():
            return None
        return self._session.torch._C._cuda_getCurrentRawStream(self._device)

    def _start(self, k: int, signal: StepSignal) -> StepSignal:
        """Start the recorder or trial before step k opens, and return the delayed signal."""
        job, burst = self.orders.start, self.orders.burst
        of_trial = job is not None and job.phase.startswith(PREFIX)
        start = (self._trials.start, job) if of_trial else (self.recorder.start, job, k, burst)
        if not self.safely(*start):
            self.phases.interrupted()
            self.orders = Orders("transition", burst)
        if not of_trial:
            return self.annotated(k, signal._replace(ns=time.time_ns()))
        self._mind_trials()
        return signal

    def _change(self, k: int, ns: int) -> None:
        orders = self.orders
        if orders.stop is not None:
            self._events.wait()
            self.orders = orders = self._stop(k, orders.stop)
        if orders.arm is not None and orders.arm.phase.startswith(PREFIX):
            self._arm_trial(orders.arm)
        elif orders.arm is not None and (self.capturing or not self.safely(self._arm, orders.arm)):
            self._mind_counters()
            self.phases.interrupted()
        if orders.arm is not None:
            self.safely(self.beacon.prepare, orders.arm.phase)
            if gc.isenabled():
                gc.collect(1)  # collect what preparing allocated, not in the first recorded step
        self.safely(self.beacon.follow, orders.arm.phase if orders.arm else self.orders.phase)
        before, recording = self._before, self._recorder is not None and self._recorder.running
        led_in = recording and (before.phase, before.burst) == ("transition", orders.burst)
        if (orders.phase, orders.burst) != (before.phase, before.burst) and not led_in:
            self._enter(k, ns)  # not after a lead-in step: no file is written in a recorded step

    def _arm(self, job: Job) -> bool:
        plain = is_plain(self._session.torch)
        self._session.room.take(0 if plain else LARGEST_BURST)
        return self.recorder.arm(job)

    def _stop(self, k: int, job: Job) -> Orders:
        if job.phase.startswith(PREFIX):
            self.safely(self._trials.stop, job)
            self._mind_trials()
            return self.phases.stopped(0)
        events, kept, ended_ns = self.safely(self.recorder.stop, k, self._longest_ns) or (0, False, 0)
        self._mind_counters()
        self.phases.light, self.phases.bare = self.recorder.light, self.recorder.bare
        if self.recorder.stranded:
            self.phases.interrupted()
            return Orders("transition", self.orders.burst)
        return self.phases.stopped(events, kept, self.recorder.sampler.active, ended_ns)

    def _arm_trial(self, job: Job) -> None:
        if self.capturing or not self.safely(self._trials.arm, job, self.phases.clean.step_ns):
            self.phases.interrupted()
        self._mind_trials()

    def report_usage(self, orders: Orders, k: int | None = None) -> None:
        """Report what the clean steps under `orders` used until step k, or until the last reading."""
        if orders.phase == "clean" and (used := self._usage.end(orders.burst, k)):
            self._session.say(used)

    def _mind_trials(self) -> None:
        for phase in self._trials.refused:
            self.phases.without(phase)

    def _mind_counters(self) -> None:
        if self.recorder.sampler.off:
            self.phases.without_counters()

    def _enter(self, k: int, ns: int) -> None:
        session, orders = self._session, self.orders
        if self._before.phase == "settle" and not self.phases.settled_in_time:
            session.note("settle", "the step time did not settle within 100 steps or 60 s")
        session.flush(ns)
        session.say({"t": "phase", "phase": orders.phase, "burst": orders.burst, "ns": ns, "k": k})
        for record in memory.peaks(self._cuda):
            session.say(record)
        if not _timed(orders):
            self._report_compiled()
        self._device = device_in_use(self._cuda)
        if _timed(orders):
            self._events.begin(orders.burst, self._device)

    def _look_around(self, k: int, ns: int) -> None:
        places = self._schedule.places
        if places is not None:
            places.put(k)
            self.phases.furthest = places.furthest() if self._schedule.leads else 0
        if self._schedule.takes_over(k):
            self._settle(self.phases.following)
        if self._schedule.lead < 0:
            self.phases.appoint(self._schedule.news(), self._schedule.resettled)
        elif ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = ns
            if os.path.exists(self._trigger):
                with open(self._trigger, encoding="utf-8") as file:
                    slow = file.read().strip() == SLOW
                os.unlink(self._trigger)
                self.phases.request(slow)

    # between marks

    def read_events(self) -> list[DeviceMarks]:
        """Return `device` records of the completed events."""
        records = self._events.read()
        for record in records:
            self.phases.clean.timed(record["burst"], [ns for _, ns in lengths(record["marks"])])
        return records

    def suspend(self, why: str) -> None:
        """End a burst early, keeping its data."""
        if why == FORKED:
            self._usage.drop()  # pages that a child shares are copied when the program writes them
        if self._trials.open:
            self._trials.cut(why)
            self.phases.interrupted()
            self._mind_trials()
        if self._recorder is None:
            return
        running = self._recorder.running
        if running:
            self.safely(self._recorder.stop, self._session.k)
            self._session.note("interrupted", why)
        if running or self.safely(self._recorder.disarm):
            self.phases.interrupted()
            self._forks += why == FORKED
            if (
                self._forks == MOST_FORKS
            ):  # as with workers that start anew for few batches: let steps be clean
                self._session.note(
                    "interrupted", f"{why} during {MOST_FORKS} bursts, so Fathom stopped trying"
                )
                self.phases.give_up()
        self._recorder.sampler.close()

    def capture_begins(self) -> None:
        """Prepare for the capture of a CUDA graph: do not touch the device, but record the captured calls."""
        self._session.catch_up()
        if self._session.plan.depth != "surface" and not (self._recorder and self._recorder.running):
            self.suspend("a CUDA graph was captured")
            self.safely(self.recorder.begin_capture)
        self.capturing = True

    def capture_ends(self) -> None:
        """Allow recording again, and save the capture if it was recorded."""
        self.capturing = False
        if self._recorder is not None:
            self.safely(self._recorder.end_capture, self._session.k)

    def end(self, k: int) -> None:
        """Save the running burst and take the last readings."""
        self.safely(self.beacon.follow, "end")
        self.report_usage(self.orders)
        self.safely(self._trials.finish)
        if self._recorder is not None:
            self.safely(self._recorder.stop, k)
            self.safely(self._recorder.disarm)
            self.safely(self._recorder.close)
        self._events.wait()
        for record in memory.peaks(self._cuda):
            self._session.say(record)
        self._report_compiled()

    @guarded("reading what was compiled")
    def _report_compiled(self) -> None:
        """Report Dynamo's counts if they changed; called at every phase, since the program may be killed."""
        if (counts := dynamo.counted(self._frames)) is not None:
            self._frames = counts["frames"]
            self._session.say(counts)

    def safely(self, action: Callable[..., Any], *args: Any) -> Any:
        """Return the result of `action`, or None after a fault, which rules out further bursts."""
        try:
            return action(*args)
        except BaseException as error:
            self._session.plan.depth = "surface"
            self.phases.give_up()
            self._trials.close()
            if self._recorder is not None and self._recorder.running:
                self.safely(self._recorder.stop, self._session.k)
            contain("profiling", error)
            return None


def _timed(orders: Orders) -> bool:
    """Return whether steps are measured without a profiler."""
    return orders.phase == "clean" or orders.phase.startswith(PREFIX)
