"""The running steps of one process, from its records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fathom.analysis.live import RankView
from fathom.redaction import redact_text
from fathom.regular import read_json
from fathom.units import NS_PER_MS, NS_PER_S
from fathom.watch.counted import Counted, Window
from fathom.watch.following import Follower, Record
from fathom.watch.rule import Detector, Rule
from fathom.watch.wall import EVALUATION, Wall

RECENT_NS, RECENT_LEAST = 10 * NS_PER_S, 20  # the recent steps: so much time, but at least so many
MOST = 4096  # recent steps and waits that are kept
POINTS = 120  # of the curve, at least a second each
NOTES = 5
STALLED_NS, STALLED_STEPS = 5 * NS_PER_S, 10  # without a mark, the program stalls
BASELINE = Rule(10.0, 50)  # gives the baseline that is shown if there is no alert rule
COUNTED_NS = 10 * NS_PER_S  # between two reports of steps that are only counted
# A burst empties the device's queue, which takes steps to fill again. They do not count for alerts.
CALM_STEPS, CALM_NS = 10, NS_PER_S
CLEAN, SUMMARY, TIMELINES = "clean", "summary", ("timeline", "slow")  # phases
QUIET = (CLEAN, SUMMARY)


class Step(NamedTuple):
    """A complete step, or several that were counted together."""

    start: int
    end: int
    phase: str
    samples: int | None
    tokens: int | None
    steps: int = 1


class Crossing(NamedTuple):
    """A step at which the alert rule began or ceased to hold, with the baseline and the steps until then."""

    step: int
    ns: int
    began: bool
    baseline_ms: float
    step_ms: float


class Rank:
    """Follows the records of one process. `crossings` are those that nobody has taken yet."""

    def __init__(self, file: Path, start_ns: int, rule: Rule | None) -> None:
        self.follower = Follower(file)
        self.unfinished = file.with_name(f"{file.stem.replace('proc', SUMMARY, 1)}.json")
        self.start_ns = start_ns
        self.detector = Detector(rule or BASELINE)
        self.pid = int(file.stem.removeprefix("proc-")) if file.stem[5:].isdigit() else 0
        self.head: Record = {}
        self.source = ""
        self.notes: deque[str] = deque(maxlen=NOTES)
        self._restart()

    def _restart(self) -> None:
        """Start counting: with the first record, and when another source marks the steps."""
        self.wall = Wall(self.start_ns)
        self.window = Window()
        self.detector.restart()
        self.steps: deque[Step] = deque(maxlen=MOST)
        self.points: deque[float] = deque(maxlen=POINTS)
        self.k, self.mark_ns, self.phase = -1, 0, ""
        self.count = self.total_ns = self.samples = self.tokens = 0
        self.input_ns, self._inputs = 0, deque[tuple[int, int]](maxlen=MOST)
        self.loader = self.ended = False
        self.bursts: dict[int, int] = {}  # the end in ns of each timeline, by its number
        self._burst_ns = self._calm = 0  # the end of the latest timeline, and the clean steps since
        self.crossings: list[Crossing] = []
        self._point = [0, 0]  # ns and steps of the curve's next point

    @property
    def has_steps(self) -> bool:
        """Whether the process marks steps: others load data or compile."""
        return self.mark_ns > 0

    def poll(self) -> None:
        """Read what was appended since the last call."""
        for record in self.follower.records():
            if self.follower.restarted:
                self.follower.restarted = False
                self._restart()
            if take := _TAKE.get(str(record.get("t"))):
                self._try(take, record)
        if self.phase == SUMMARY:
            with suppress(OSError, ValueError):
                self._try(Rank._unfinished, read_json(self.unfinished))

    def _try(self, take: Callable[[Rank, Record], None], record: Record) -> None:
        try:
            take(self, record)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):  # a damaged record
            self.follower.torn += 1

    def _process(self, record: Record) -> None:
        self.head = record

    def _clock(self, record: Record) -> None:
        self._restart()
        self.source = str(record["source"])

    def _marks(self, run: Record) -> None:
        phase, kind = str(run["phase"]), str(run.get("kind") or "")
        for place, ns in enumerate(run["ns"]):
            if self.mark_ns and run["k"] + place == self.k + 1:
                self._step(ns, kind, run.get("samples"), run.get("tokens"))
            else:
                self.wall.begin(ns)
            self.k, self.mark_ns, self.phase = run["k"] + place, ns, phase
        if phase in TIMELINES:
            self.bursts[int(run["burst"])] = self._burst_ns = self.mark_ns
            self._calm = 0

    def _step(self, ns: int, kind: str, samples: int | None, tokens: int | None) -> None:
        rest = self.wall.step(ns, self.phase, kind)
        self._add(Step(self.mark_ns, ns, self.phase, samples, tokens))
        if self.phase == CLEAN and EVALUATION not in kind:
            self._clean(ns, rest, 1)

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.count, self.total_ns = self.count + step.steps, self.total_ns + step.end - step.start
        self.samples, self.tokens = self.samples + (step.samples or 0), self.tokens + (step.tokens or 0)

    def _clean(self, end: int, ns: int, steps: int) -> None:
        """Add clean steps, `ns` long together, to the curve and to the alert rule."""
        self._add_point(ns, steps)
        self._calm += steps
        calm = self._calm > CALM_STEPS and end - self._burst_ns > CALM_NS
        if calm and self.detector.add(ns, steps):
            self._cross(end)

    def _summary(self, record: Record) -> None:
        """Count the steps of a window that were not counted yet."""
        known = self.window.known(record["k"])
        if record["n"] <= known:
            return
        if not self._follows(record):
            self.wall.begin(record["start"])
            self.mark_ns = record["start"]
        self._count(record["end"], self.window.grow(record))
        self.k, self.mark_ns, self.phase = record["k"] + record["n"], record["end"], SUMMARY

    def _unfinished(self, record: Record) -> None:
        """Count the steps of the open window; its file may be older or newer than the log as read."""
        if self._follows(record):
            self._summary(record)

    def _follows(self, record: Record) -> bool:
        return bool(self.mark_ns) and record["k"] + self.window.known(record["k"]) == self.k

    def _count(self, end: int, kinds: list[Counted]) -> None:
        samples, tokens = _sum(kind.samples for kind in kinds), _sum(kind.tokens for kind in kinds)
        count = sum(kind.steps for kind in kinds)
        self._add(Step(self.mark_ns, end, SUMMARY, samples, tokens, count))
        if waited := sum(kind.waits.get("input", 0) for kind in kinds):
            self.loader = True
            self._waited(end, waited)
        self.wall.counted(end, kinds)
        usual = [kind for kind in kinds if EVALUATION not in kind.kind]
        if steps := sum(kind.steps for kind in usual):
            self._clean(end, sum(kind.ns for kind in usual), steps)

    def _cross(self, ns: int) -> None:
        detector = self.detector
        times = (detector.baseline_ns or 0) / NS_PER_MS, detector.recent_ns / NS_PER_MS
        self.crossings.append(Crossing(self.k, ns, detector.alerting, *times))

    def _add_point(self, ns: int, steps: int) -> None:
        self._point = [self._point[0] + ns, self._point[1] + steps]
        if self._point[0] >= NS_PER_S:
            self.points.append(self._point[0] / self._point[1] / NS_PER_MS)
            self._point = [0, 0]

    def _batches(self, table: Record) -> None:
        start, wait = (table["columns"].index(name) for name in ("start", "wait"))
        self.loader = True
        for row in table["rows"]:
            self._waited(row[start] + row[wait], row[wait])

    def _waited(self, end: int, ns: int) -> None:
        self.input_ns += ns
        self._inputs.append((end, ns))

    def _wait(self, record: Record) -> None:
        self.wall.wait(str(record["cause"]), record["start"], record["end"])

    def _resettled(self, record: Record) -> None:
        self.detector.restart()

    def _note(self, record: Record) -> None:
        self.notes.append(redact_text(f"{record['what']}: {record['text']}"))

    def _end(self, record: Record) -> None:
        self.ended = True

    def view(self, now_ns: int) -> RankView:
        """Return the state at `now_ns`."""
        recent = self._recent()
        quiet = [step for step in recent if step.phase in QUIET]
        clean = quiet or recent
        since = max(now_ns - self.mark_ns, 0) if self.mark_ns and not self.ended else 0
        seconds = sum(step.end - step.start for step in recent) / NS_PER_S
        clean_s = sum(step.end - step.start for step in clean) / NS_PER_S
        baseline = self.detector.baseline_ns
        delay = int(COUNTED_NS) if self.phase == SUMMARY else 0
        entries = self.wall.entries(self.mark_ns if self.ended else now_ns, delay)
        return RankView(
            rank=self.head.get("rank") or 0,
            pid=self.pid,
            source=self.source,
            phase=self.phase,
            step=max(self.k, 0),
            steps=self.count,
            steps_s=self.total_ns / NS_PER_S,
            window_s=seconds,
            step_ms=_mean_ms(clean),
            profiled=bool(recent) and not quiet,
            baseline_ms=None if baseline is None else baseline / NS_PER_MS,
            samples_per_s=_rate([step.samples for step in clean], clean_s),
            tokens_per_s=_rate([step.tokens for step in clean], clean_s),
            input_share=self._input_share(recent),
            input_s=self.input_ns / NS_PER_S,
            since_mark_s=since / NS_PER_S,
            stalled=since - delay > max(STALLED_NS, STALLED_STEPS * (self.wall.usual_ns or 0)),
            samples=self.samples,
            tokens=self.tokens,
            entries_s={entry: ns / NS_PER_S for entry, ns in entries.items()},
            goodput=entries.get("productive", 0) / sum(entries.values()) if entries else None,
            recent_ms=list(self.points),
            notes=list(self.notes),
            ended=self.ended,
        )

    def _recent(self) -> list[Step]:
        recent: list[Step] = []
        count = 0
        for step in reversed(self.steps):
            if step.end < self.mark_ns - RECENT_NS and count >= RECENT_LEAST:
                break
            recent.append(step)
            count += step.steps
        return recent[::-1]

    def _input_share(self, recent: list[Step]) -> float | None:
        if not self.loader or not recent:
            return None
        since = recent[0].start
        waited = sum(ns for end, ns in self._inputs if since < end <= self.mark_ns)
        return min(waited / (recent[-1].end - since), 1.0)


def _mean_ms(steps: list[Step]) -> float | None:
    count = sum(step.steps for step in steps)
    return sum(step.end - step.start for step in steps) / count / NS_PER_MS if count else None


def _sum(amounts: Iterable[int | None]) -> int | None:
    """Return the sum; None if an amount is unknown."""
    known = list(amounts)
    return None if None in known else sum(amount or 0 for amount in known)


def _rate(amounts: list[int | None], seconds: float) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) / seconds if known and len(known) == len(amounts) and seconds else None


_TAKE: dict[str, Any] = {
    "process": Rank._process,
    "clock": Rank._clock,
    "marks": Rank._marks,
    "summary": Rank._summary,
    "batches": Rank._batches,
    "wait": Rank._wait,
    "resettled": Rank._resettled,
    "note": Rank._note,
    "end": Rank._end,
}
