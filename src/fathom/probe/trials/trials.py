"""Run the trials of one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from fathom.probe.faults import guarded
from fathom.probe.orders import Job
from fathom.probe.process import number
from fathom.probe.threads import Alarm, get_ident
from fathom.probe.trials.ahead import Ahead
from fathom.probe.trials.garbage import Garbage
from fathom.probe.trials.rounds import BASELINE, ENOUGH, MOST_WAIT, PREFIX
from fathom.probe.trials.silence import Silence
from fathom.probe.trials.trial import Trial, stepping

KNOWN: tuple[type[Trial], ...] = (Silence, Garbage, Ahead)
MOST_CUT = 3  # consecutive restarts of a stretch
TRIED = 2  # stretches after which its usefulness is checked
LAPSE_S, LAPSE_STEPS = 10.0, 5.0  # a stretch that takes so much longer than expected is aborted
RANKS = "several ranks wait for each other, so a trial in one rank shows nothing"
LAPSED = "a trial was aborted, because its steps took much longer than those before"
UNSETTLED = f"the leftovers of a trial were not used up within {MOST_WAIT} steps"
Note = Callable[[str, str], None]


class Trials:
    """Runs one stretch at a time: `arm`, `start`, `stop`. `close` ends it early, from any thread."""

    def __init__(self, kinds: Sequence[str], note: Note) -> None:
        self._note = note
        self._of = {trial.kind: trial() for trial in KNOWN if trial.kind in kinds}
        self._done: Counter[str] = Counter()
        self._cut: Counter[str] = Counter()
        self._reported: set[str] = set()
        self._open: Trial | None = None
        self._timer: Alarm | None = None

    @property
    def refused(self) -> list[str]:
        """The phases whose trials are impossible."""
        return [PREFIX + kind for kind, trial in self._of.items() if trial.why]

    @property
    def open(self) -> bool:
        """Whether a trial is changing the program now."""
        return self._open is not None

    def get(self, kind: str) -> Trial | None:
        """Return the trial for its hooks; None if it was not requested."""
        return self._of.get(kind)

    @property
    def unsettled(self) -> bool:
        """Whether steps still differ from those before the last trial."""
        return self._open is None and not all(trial.settled for trial in self._of.values())

    def restart(self) -> None:
        """Start counting steps, or switch to another step source."""
        self.close()
        if max(number("WORLD_SIZE") or 1, number("LOCAL_WORLD_SIZE") or 1) > 1:
            for trial in self._of.values():
                self._refuse(trial, RANKS)

    def arm(self, job: Job, step_ns: float) -> bool:
        """Make the job's change, before the steps that count. Return False if the trial is impossible."""
        self.close()
        stepping.thread = get_ident()
        trial = self._trial(job)
        if trial is None:
            return True
        if trial.why:
            return False
        trial.begin(job.windows)
        if trial.open:
            self._open = trial
            self._set_alarm(LAPSE_S + LAPSE_STEPS * job.windows * step_ns / 1e9)
        return not self._refused(trial)

    def start(self, job: Job) -> bool:
        """Begin the steps that count. Return False if the trial turned out to be impossible."""
        trial = self._trial(job)
        if trial is not None:
            return not self._refused(trial) and trial.open
        for other in self._of.values():
            if not other.settled:
                self._refuse(other, UNSETTLED)
            other.watch()
        return True

    def stop(self, job: Job) -> None:
        """End the steps that count, and check whether the trial is worth continuing."""
        self.close()
        trial = self._trial(job)
        if trial is None:
            for other in self._of.values():
                other.watched(job.windows)
            return
        self._done[trial.kind] += 1
        self._cut[trial.kind] = 0
        if self._done[trial.kind] == TRIED and (why := trial.futile()):
            self._refuse(trial, why)
        self._refused(trial)

    def close(self) -> None:
        """Restore everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open = None
        for trial in self._of.values():
            trial.end()

    def cut(self, why: str) -> None:
        """End a stretch early for the reason `why`; give up the trial after MOST_CUT in a row."""
        trial = self._open
        self.close()
        if trial is not None:
            self._cut[trial.kind] += 1
            if self._cut[trial.kind] == MOST_CUT:
                self._refuse(trial, f"it was interrupted {MOST_CUT} times in a row, last because {why}")

    def forget(self) -> None:
        """End the trial in a forked process, and discard buffered output, which the parent writes."""
        if isinstance(silence := self._of.get("logging"), Silence):
            silence.forget()
        self._timer = None
        self.close()

    def hand_over(self) -> None:
        """Deliver prefetched batches, because the hooks were removed."""
        if isinstance(ahead := self._of.get("input"), Ahead):
            ahead.hand_over()

    def finish(self) -> None:
        """End all trials, and report those that the program ended too early for."""
        self.close()
        for trial in self._of.values():
            done = self._done[trial.kind]
            if done < ENOUGH and not trial.why:
                self._refuse(trial, f"the program ended after {done} of the {ENOUGH} trials required")

    def _trial(self, job: Job) -> Trial | None:
        return None if job.phase == BASELINE else self._of[job.phase[len(PREFIX) :]]

    def _refused(self, trial: Trial) -> bool:
        if trial.why:
            self._refuse(trial, trial.why)
        return bool(trial.why)

    def _refuse(self, trial: Trial, why: str) -> None:
        trial.why = why
        if trial.kind not in self._reported:
            self._reported.add(trial.kind)
            self._note(f"what-if {trial.kind}", why)  # words: ok

    def _set_alarm(self, seconds: float) -> None:
        self._timer = Alarm(seconds, self._lapse)

    @guarded("ending a trial")
    def _lapse(self) -> None:
        """End the open trial, because the program stopped stepping and its output must not stay buffered."""
        trial, self._open = self._open, None
        if trial is not None:
            trial.end()
            trial.why = LAPSED
