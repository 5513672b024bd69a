"""One recording in one process: signals come in, marks and phases follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypedDict
from weakref import WeakSet

from fathom.pristine import open, os, time
from fathom.probe.chooser import Chooser, StepSignal
from fathom.probe.conductor import Conductor
from fathom.probe.ending import STOP, end_quietly
from fathom.probe.host_window import HostWindow
from fathom.probe.kineto import Kineto
from fathom.probe.orders import Orders
from fathom.probe.plain import PlainRegion
from fathom.probe.plan import ProbePlan
from fathom.probe.process import describe, devices
from fathom.probe.records import BATCH, Record, Records
from fathom.probe.room import Room
from fathom.probe.runs import OFTEN_NS, RARELY_NS, DeferredMarks, Label, MarkRuns
from fathom.probe.steps import StepFacts
from fathom.probe.summary import Summary
from fathom.probe.threads import RLock, get_ident, native_id
from fathom.probe.trials import Trials

time_ns = time.time_ns
BATCH_COLUMNS = (
    "loader",
    "epoch",
    "batch",
    "worker",
    "pid",
    "nth",
    "thread",
    "start",
    "wait",
    "fetch",
    "collate",
    "pin",
    "read",
    "decode",
    "read_bytes",
)
PLAIN = ("mark", "optimizer", "replay")  # sources whose steps are all alike if no loader is involved
_WAIT = BATCH_COLUMNS.index("wait")
EARLY = 256  # records kept until it is known whether this process has steps
KINDS = {
    "optimizer": "train",
    "replay": "replay",
    "loader": "inference",
    "forward": "inference",
    "mark": "step",
    "engine": "inference",
    "host": "host",
}


class Wait(TypedDict):
    """A `wait` record."""

    t: str
    cause: str
    thread: int
    start: int
    end: int
    detail: str


class Session:
    """The recording of this process. Its file is created with the first record."""

    def __init__(self, raw: str, plan: ProbePlan, torch: Any) -> None:
        self.raw, self.plan, self.torch = raw, plan, torch
        self.started_ns = time_ns()
        self.role = "worker"
        self.room = Room(raw, plan.max_size)
        self.records = Records(raw, lambda: describe(self.role, self.started_ns), self.room)
        self.facts = StepFacts()
        self.chooser = Chooser(plan.step_on)
        self.k = -1
        self.compilations = 0  # that ended
        self._noted: set[tuple[str, str]] = set()
        self.trials = Trials(plan.what_if, self.note)
        self.conductor = Conductor(self)
        self.on_flush: list[Callable[[], None]] = []
        self.optimizers: WeakSet[Any] = WeakSet()
        self.on_clock: list[Callable[[str], None]] = []  # called with the clock's source when it is chosen
        # Called with each module whose outermost call begins, with the result of such a call, and at the end.
        self.on_root: list[Callable[[Any], None]] = []
        self.on_output: list[Callable[[Any], None]] = []
        self.on_end: list[Callable[[], None]] = []
        self.on_step: list[Callable[[int], None]] = []  # called with the number of each step that begins
        self.batches: deque[tuple[Any, ...]] = deque(maxlen=4 * EARLY)  # rows of BATCH_COLUMNS
        self._first = 0  # first step of the present clock
        self._ignored: frozenset[str] = frozenset()  # sources that the clock has ruled out for good
        self._marks = MarkRuns()
        self._summary: Summary | None = None  # of the steps since the phase `summary` began
        self.deferred = DeferredMarks(self.facts, time_ns)
        self._lock = RLock()
        self._repeated: tuple[str, int | None, int | None] = ("", None, None)  # of the last step that ended
        self._opened: tuple[str | None, int | None, int | None] = (None, None, None)
        self._query: int | None = None
        self._grad = False
        self._early: deque[Wait] = deque(maxlen=EARLY)
        self._stopped = self._ended = False
        self._host = HostWindow(self) if plan.step_on == "none" else None

    # calls of the hooks

    def signal(
        self,
        source: str,
        key: int,
        grad: bool = True,
        kind: str | None = None,
        samples: int | None = None,
        tokens: int | None = None,
        query: int | None = None,
    ) -> None:
        """Handle an event that may open a step."""
        marks, facts = self.deferred, self.facts
        if marks.like == (source, key, kind, samples, tokens) and facts.alike:
            now = time_ns()
            if now < marks.until and marks.thread == get_ident():
                marks.append(now)
                facts.alike = facts.steady
                return
        if source in self._ignored:
            return
        with self._lock:  # before the time is read, so that the marks of several threads are in order
            happened = StepSignal(source, key, time_ns(), native_id(), grad, kind, samples, tokens, query)
            self.catch_up()
            if self._ended or self.conductor.capturing:  # captured work does not run
                return
            if self.chooser.clock == (source, key):
                self.chooser.tick(happened)
                self._mark(happened)
            elif self.chooser.take(happened):
                self._take_clock()

    def say(self, record: Record) -> None:
        """Append a record."""
        self.records.add(record)

    def note(self, what: str, text: str) -> None:
        """Show the user a note, once per `what`."""
        if (what, text) not in self._noted:
            self._noted.add((what, text))
            self.say({"t": "note", "what": what, "text": text, "ns": time_ns()})

    def wait(self, cause: str, start: int, end: int, detail: str = "", thread: int | None = None) -> None:
        """Record a wait of this (or another) thread with a known cause."""
        thread = thread or native_id()
        self.compilations += cause == "compilation"
        if self._summary is not None:
            self._summarise_wait(self._summary, cause, end - start, thread)
            return
        record: Wait = {
            "t": "wait", "cause": cause, "thread": thread, "start": start, "end": end, "detail": detail,
        }  # fmt: skip
        if self.chooser.clock is None:  # it matters only with steps: until there are any, keep only the last
            self._early.append(record)
        else:
            self.say(record)

    def _summarise_wait(self, summary: Summary, cause: str, ns: int, thread: int) -> None:
        if cause == "gc":  # it may begin anywhere, so it waits for nothing
            summary.wait(cause, ns)
        elif cause != "checkpoint" or thread == summary.thread:
            with self._lock:
                self.catch_up()  # it belongs to the open step
                summary.wait(cause, ns)

    def open_step(self) -> int:
        """Return the number of the open step, deferred marks included."""
        with self._lock:
            self.catch_up()
            return self.k

    def batch(self, row: tuple[Any, ...]) -> None:
        """Record a batch that the program received, a row of BATCH_COLUMNS."""
        if self._summary is None:
            self.batches.append(row)
        else:
            self._summary.wait("input", row[_WAIT])

    def annotation(self, name: str) -> Any:
        """Return a context manager that names a region in the timeline; None if no timeline is recorded."""
        if not self.conductor.used_kineto or not self.conductor.recorder.running:
            return None
        kineto = self.conductor.recorder.kineto
        return (
            kineto.annotation(name)
            if kineto.enabled and isinstance(kineto, Kineto)
            else PlainRegion(self, name)
        )

    def step_aside(self) -> None:
        """End our burst before the program's own profiler begins, and record none until it ends."""
        with self._lock:
            self.conductor.suspend("the program's own profiler began while Fathom's ran, which ended there")
            self.conductor.foreign_profiler = True
        self.note("own-profiler", "the program ran its own profiler, so Fathom's waited")

    def save(self) -> None:
        """Write pending records now."""
        with self._lock:
            self.flush()

    def suspend(self, why: str) -> None:
        """End a burst early, keeping its data, because the process forks."""
        with self._lock:
            self.conductor.suspend(why)
            self.flush()

    # marks

    def _take_clock(self) -> None:
        """Switch to a newly chosen clock, whose earlier signals become the first marks."""
        clock = self.chooser.clock
        assert clock is not None
        self.role, self._first = "rank", self.k + 1
        self.conductor.restart()
        self._end_summary()
        self._ignored = self.chooser.ruled_out
        self.say({"t": "clock", "source": clock[0], "k": self._first, "ns": time_ns()})
        for listener in self.on_clock:
            listener(clock[0])
        self._grad = any(signal.grad for signal in self.chooser.history if signal.source == "forward")
        past = [signal for signal in self.chooser.history if (signal.source, signal.key) == clock]
        while self._early:
            record = self._early.popleft()
            if record["end"] >= past[0].ns:
                self.say(record)
        for signal in past:
            self._mark(signal)

    def _mark(self, signal: StepSignal) -> None:
        self.k += 1
        signal = self.conductor.opens(self.k, signal)
        plain = self._write(signal, self.conductor.orders)
        self.conductor.opened(self.k, signal.ns)
        for begin in self.on_step:
            begin(self.k - self._first)
        many = len(self._marks.times) >= BATCH or len(self.batches) >= EARLY
        if many or self.records.due(signal.ns):
            self.flush(signal.ns)
        if self.plan.stop_after is not None:
            self._stop_when_done()
        elif plain and self.conductor.quiet and not self.on_step:
            often = self._summary is None and (self.batches or self.torch.cuda.is_initialized())
            self.deferred.begin(signal, OFTEN_NS if often else RARELY_NS)

    def catch_up(self) -> None:
        """Count the deferred marks as steps with the same label as the step before them."""
        times = self.deferred.end()
        if not times:
            return
        self.k += len(times)
        self.facts.passed(len(times))
        self.conductor.passes(times)
        if self._summary is None:
            self._marks.repeat(times)
        else:
            self._summary.add(times, *self._repeated)

    def _write(self, signal: StepSignal, orders: Orders) -> bool:
        """Record the mark, and return whether the next marks can be recorded the same way."""
        query, self._query = self._query, signal.query
        kind, samples, tokens = self._close_step(signal)
        self._repeated = kind, samples, tokens
        if not self._summarised(signal, orders):
            self._write_mark(signal, orders, query)
        return signal.source in PLAIN and kind == (signal.kind or self._kind(signal))

    def _write_mark(self, signal: StepSignal, orders: Orders, query: int | None) -> None:
        where = signal.source, signal.thread, orders.phase, orders.burst
        label = Label(*where, *self._repeated, self.conductor.stream(), query)
        ended = self._marks.add(self.k, signal.ns, label)
        if ended is not None:
            self.say(ended)
        if orders.phase == "summary":
            self._summary = Summary(self.k, signal.ns, signal.source, signal.thread, orders.burst)

    def _summarised(self, signal: StepSignal, orders: Orders) -> bool:
        """Count the step that ends here if it is one of the summary; return whether the next one is too."""
        if self._summary is None:
            return False
        self._summary.add([signal.ns], *self._repeated)
        if orders.phase != "summary":
            self._end_summary()
            return False
        if self._summary.is_due and (record := self._summary.take()):
            self.say(record)
        return True

    def _end_summary(self) -> None:
        """Record the last window of the summary."""
        summary, self._summary = self._summary, None
        record = summary and summary.record()
        if record:
            self.say(record)

    def _close_step(self, signal: StepSignal) -> tuple[str, int | None, int | None]:
        """Return kind, samples and tokens of the ending step. Forward calls set them when the step opens."""
        kind, samples, tokens = self._opened
        kind, seen_samples, seen_tokens, micro = self.facts.close(kind or self._kind(signal), signal.ns)
        if signal.source == "forward":
            self._grad = self._grad or signal.grad
            self._opened = (signal.kind or self._kind(signal), signal.samples, signal.tokens)
        else:
            kind, samples, tokens = signal.kind or kind, signal.samples, signal.tokens
        for ns in micro:
            self.say({"t": "micro", "k": self.k - 1, "ns": ns, "source": "loader", "thread": signal.thread})
        return kind, seen_samples if samples is None else samples, seen_tokens if tokens is None else tokens

    def _kind(self, signal: StepSignal) -> str:
        if not self._grad or signal.source not in ("loader", "forward"):
            return KINDS[signal.source]
        return "evaluation" if signal.source == "forward" and not signal.grad else "train"

    def host_mark(self, k: int, phase: str, burst: int) -> None:
        """Record a boundary of the host's window, which is not a step of the program."""
        self.k, self.role = k, "rank"
        if k == 0:
            self.say({"t": "clock", "source": "host", "k": 0, "ns": time_ns()})
        here = self.conductor.annotated(k, StepSignal("host", 0, time_ns(), native_id()))
        self._write(here, Orders(phase, burst))

    def _stop_when_done(self) -> None:
        wanted = self.plan.stop_after
        done = self.conductor.finished if wanted == "recorded" else self.k - self._first >= int(wanted or 0)
        if done:
            self.stop()

    def stop(self) -> None:
        """Ask the parent to end the program, once."""
        if self._stopped:
            return
        self._stopped = True
        self.conductor.report_usage(self.conductor.orders, self.k)
        self._report_end()
        self.flush()
        end_quietly(self.raw)
        with open(os.path.join(self.raw, STOP), "w", encoding="utf-8") as file:
            file.write(str(self.k))

    def _report_end(self) -> None:
        for report in self.on_end:
            report()

    # the end

    def flush(self, ns: int = 0) -> None:
        """Write pending records, and read the completed device events."""
        self.catch_up()
        for report in self.on_flush:
            report()
        run = self._marks.take()
        if self._summary is not None:
            self.records.keep("summary", self._summary.record, ns)
        for record in ([run] if run else []) + self.conductor.read_events():
            self.say(record)
        if self.batches and self.chooser.clock is not None:
            self.say({"t": "batches", "columns": BATCH_COLUMNS, "rows": list(self.batches)})
            self.batches.clear()
        self.records.flush(ns or time_ns())

    def end(self, reason: str) -> None:
        """End the recording when the process ends normally."""
        if self._host is not None:
            self.conductor.safely(self._host.close)
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._report_end()
            if self.k >= 0:
                self.catch_up()
                self.conductor.end(self.k)
                self._end_summary()
            if self.records.opened or self._marks.times:
                self.flush()
                about = {"steps": self.k + 1 - self._first, "reason": reason, "devices": devices()}
                self.say({"t": "end", "ns": time_ns(), **about})
            self.records.close()
