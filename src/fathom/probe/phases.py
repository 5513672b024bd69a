"""The phases of a recording as a state machine: marks and times go in, orders come out."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import pairwise

from fathom.probe.counters import budget
from fathom.probe.orders import Job, Orders
from fathom.probe.plan import MOST_SETTLING_NS, MOST_SETTLING_STEPS, ProbePlan
from fathom.probe.settling import DRIFT_STEPS, ENOUGH_LEAST, CleanSteps, settled
from fathom.probe.trials import rounds

EVENTS_PER_BURST = 100_000
FIRST_WINDOWS = 2  # in a first burst, which shows the number of events per step; 1 if steps are long
SLOW = "slow"  # phase of steps that are recorded because they are slow
SLOW_WINDOWS, SLOW_KEPT, SLOW_ROUNDS = 6, 3, 200
RECOVERY = 2  # irregular steps after an export, during which the device ran out of work
SETTLE_LEAST = 3
RECENT = 3  # bursts, of which the one with the longest steps sets the size of the next
MOST_AGAIN = 2  # a lasting change of the step time restarts the recording
STACKS_BELOW = 20_000  # events per step: stacks multiply them
# Length of a timeline with sampled stacks alone, which costs the program nothing.
SAMPLED_NS, SAMPLED_STEPS = 1_500_000_000, 300
# If recording hardly disturbs the program, bursts are short, and some come later, between clean steps.
LIGHT_BURST, LIGHT_MORE_NS, LIGHT_DISTANCE = 2, 3_000_000_000, 6
OPS_PER_EVENT, STACKED = 3, 3  # ops per event of a timeline without ops; factor of events with stacks
MOST_AHEAD = 256  # steps by which another rank is waited for
DEEP_MOST = 3  # steps of an attribution burst


class Phases:
    """Decides at every mark. Call `at(k, ns)` for each mark in order, and `stopped` after a stop.

    With `lead` > 0, decisions take effect that many steps after the `furthest` rank's, so that other ranks
    can learn of them; `appointments` maps steps to jobs, or to None at the start of the clean phase. Bursts
    begin at `burst`.
    """

    def __init__(self, plan: ProbePlan, lead: int = 0, memory: bool = False, burst: int = 0) -> None:
        self.plan, self.lead, self.memory = plan, lead, memory
        self._groups = plan.groups
        self._tally = budget.Tally((), {})
        self.appointments: dict[int, Job | None] = {}
        self.settled_in_time = True
        self.finished = False
        self.light = self.bare = False  # timelines hardly disturb the program; they hold no ops
        self.sampled_alone = False  # timelines hold only marks and sampled stacks, which cost nothing
        self.furthest = 0  # the latest step that is open on any rank
        self.blocked = False  # another profiler or a capture runs: no burst can begin, and no step is clean
        self.kept = 0
        self.resettled: int | None = None  # steps before this one were unlike those that follow
        self._again = 0
        self._state, self._burst = "settle", burst
        self._last = Orders("settle", burst)
        self._marks: list[int] = []
        self.clean = CleanSteps()
        self._jobs: list[Job] = []
        self._trials = list(plan.what_if)
        self.unsettled = False  # steps still differ from those before a trial
        self._at = list(plan.at)
        self._begun = self._looked_deeper = False
        self._job: Job | None = None
        self._wanted = self._left = self._recover = self._rounds = self._armed = self._warm = 0
        self._events_per_step = self._last_ns = self._in_phase = self._started_ns = 0
        self._lead_in = 0  # lead-in steps of a burst
        self._more = 0  # timeline windows that come later, between clean steps
        self._recent_ns: deque[float] = deque([0.0], maxlen=RECENT)  # a step of each recent burst

    # calls of the conductor

    @property
    def following(self) -> int:
        """A burst number higher than all so far."""
        return self._burst + 1

    @property
    def quiet(self) -> bool:
        """Whether the next marks may be deferred: everything is recorded, and only clean steps remain."""
        recorded = self._begun and self._looked_deeper and not self._at and not self._more
        alone = self.lead >= 0 or self.plan.depth == "surface"  # no other rank decides anything from here on
        done = self.plan.depth == "surface" or recorded
        waiting = self._jobs or self._trials or self.appointments or self._watches
        return self._state in ("clean", "summary") and alone and done and not waiting

    @property
    def _watches(self) -> bool:
        """Whether slow steps are still to be recorded."""
        return self.plan.on_slow_step and self.kept < SLOW_KEPT and self._rounds < SLOW_ROUNDS

    def passed(self, times: list[int]) -> None:
        """Count steps that opened at these times in a quiet phase, without deciding anything."""
        if self._state == "clean":
            self.clean.add_all(times, self._last_ns)
        else:
            self.clean.passed(len(times), times[-1] - self._last_ns)
        self._in_phase += len(times)
        self._last_ns = times[-1]

    def at(self, k: int, ns: int) -> Orders:
        """Return the orders for step k, which opens at `ns`."""
        self._account(ns)
        if self._state == "running" and self._job is not None:
            self._left -= 1
            if self._left > 0:
                return self._orders(self._job.phase)
            return Orders("transition", self._burst, stop=self._job)
        if self._state == "armed":
            return self._orders("transition") if self._waits() else self._start()
        self._decide(k)
        return self._keep(k)

    def stopped(self, events: int, kept: bool = True, active: float = 0.0, ended_ns: int = 0) -> Orders:
        """Return the next orders after a burst with about `events` events and `active` samples.

        `ended_ns` is when the device finished its work, which may lag far behind the host.
        """
        job, self._job = self._job, None
        if job is not None and job.phase in ("counters", "timeline"):
            took_ns = (max(self._last_ns, ended_ns) - self._started_ns) / (job.windows + self._lead_in)
            if job.phase == "counters":
                self._sampled(job, took_ns, active)
            else:
                self._traced(job, took_ns, events, kept)
        self.kept += kept and job is not None and job.keep_above_ns is not None
        self._state, self._recover = "recover", RECOVERY
        self._burst += 1
        if self._jobs and self.lead == 0:
            return self._arm(self._next_job())
        return self._orders("transition")

    def interrupted(self) -> None:
        """Schedule the armed or aborted burst again."""
        if self._job is not None:
            self._jobs.insert(0, self._job)
        self._job, self._state, self._recover = None, "recover", RECOVERY
        self._burst += 1

    def give_up(self) -> None:
        """Record no more bursts."""
        self.plan.depth = "surface"
        self._jobs.clear()
        self._trials = []
        self._job = None
        self._more = 0
        self._begun = self._looked_deeper = True
        if self._state in ("armed", "running"):
            self.interrupted()

    def without_counters(self) -> None:
        """Drop all counter bursts, because counters cannot be sampled here."""
        self._groups = []
        self._jobs = [job for job in self._jobs if job.phase != "counters"]
        if self._job is not None and self._job.phase == "counters":
            self._job = None

    def without(self, phase: str) -> None:
        """Drop the trials of this phase, because they are impossible or useless here."""
        self._trials = [kind for kind in self._trials if rounds.PREFIX + kind != phase]
        self._jobs = rounds.without(self._jobs, phase)

    def request(self, slow: bool = False) -> None:
        """Schedule one more timeline burst, requested by the user.

        `slow`: the steps became slow, so they enter no mean; short bursts are repeated, as often as those
        with which they are compared, unless that takes long.
        """
        if self.plan.depth == "surface":
            return
        windows = self._fitting(self.plan.steps)
        wanted = min(self.plan.steps, max(SLOW_WINDOWS, int(LIGHT_MORE_NS / max(self.clean.step_ns, 1))))
        bursts = -(-wanted // windows) if slow else 1
        self._jobs += [Job(SLOW if slow else "timeline", windows)] * bursts

    def appoint(self, appointments: dict[int, Job | None], resettled: int | None = None) -> None:
        """Follow another rank's decisions instead of deciding."""
        self.appointments.update(appointments)
        self.resettled = resettled

    # decisions

    def _account(self, ns: int) -> None:
        if self._state == "settle":
            self._marks.append(ns)
        elif self._state == "clean" and self._in_phase:
            self.clean.add(ns - self._last_ns)
        elif self._state == "summary":
            self.clean.passed(1, ns - self._last_ns)
        self._in_phase += 1
        self._last_ns = ns

    def _decide(self, k: int) -> None:
        if self.lead < 0 or (self.appointments and max(self.appointments) >= k):
            return
        if self.blocked:
            return
        if self._state == "settle":
            if self._has_settled():
                self.appointments[self._ahead(k)] = None
        elif self._state in ("clean", "summary"):
            self._plan_jobs(k)
            if self._jobs:
                self.appointments[self._ahead(k)] = self._next_job()

    def _ahead(self, k: int) -> int:
        """Return the step at which a decision of step k takes effect, on all ranks."""
        return max(k, min(self.furthest, k + MOST_AHEAD)) + self.lead

    def _has_settled(self) -> bool:
        count = len(self._marks) - 1
        if self.plan.settle is not None:
            return count >= self.plan.settle
        if count >= SETTLE_LEAST and settled([after - before for before, after in pairwise(self._marks)]):
            return True
        late = count >= MOST_SETTLING_STEPS or self._marks[-1] - self._marks[0] >= MOST_SETTLING_NS
        self.settled_in_time = not (late and count >= 1)
        return not self.settled_in_time

    def _plan_jobs(self, k: int) -> None:
        if self._jobs:
            return
        named = self._at and self.plan.depth != "surface"
        if self._trials and not named:  # named steps come first
            if self.clean.are_enough:
                self._jobs += rounds.jobs(self._trials, self.clean.step_ns)
                self._trials = []
        elif self.plan.depth == "surface":
            self._finish()
        elif self._at and k >= self._at[0]:
            self._at.pop(0)
            self._begin_timeline()
        elif self._at:
            return
        elif not self._begun:
            if self.clean.are_enough:
                self._begin_timeline()
        elif self.light and self._wanted > 0 and not self._looked_deeper:
            self._schedule_burst(self._wanted)
        elif self._state == "clean" and self._is_quicker():
            self._record_again(k)
        elif self._more:
            self._schedule_burst(self._more)
        elif not self.clean.doubtful:
            self._finish()
            if self.finished and self._watches:
                self._watch_for_slow()

    def _begin_timeline(self) -> None:
        self._begun, self._wanted = True, self.plan.steps
        if self.sampled_alone:
            self._wanted = max(self._wanted, min(SAMPLED_STEPS, int(SAMPLED_NS / max(self.clean.step_ns, 1))))
        self.clean.refer_to(self._burst)
        self._jobs.append(Job("timeline", self._fitting(self._wanted)))

    def _traced(self, job: Job, took_ns: float, events: int, kept: bool) -> None:
        """Plan the next phase after a timeline burst: another burst if windows are missing, else the others.

        A burst that was not kept only helps to size the next ones.
        """
        self._events_per_step = max(1, events // (job.windows + 1))
        self._recent_ns.clear()
        self._recent_ns.append(took_ns)
        if self._looked_deeper:
            self._more = max(0, self._more - job.windows) if self.light else 0
            return
        self._wanted -= job.windows * kept
        if self._wanted <= 0:
            self._look_deeper(took_ns)
        elif not self.light:
            self._jobs.insert(0, Job("timeline", self._fitting(self._wanted)))

    def _look_deeper(self, step_ns: float) -> None:
        """Schedule the other phases after the timeline's first windows, then more windows if cheap."""
        self._looked_deeper = True
        events = self._events_per_step * (1 + OPS_PER_EVENT * self.bare)
        windows = max(1, min(DEEP_MOST, EVENTS_PER_BURST // (STACKED * events))) if self.light else 1
        self._jobs.append(Job("attribution", windows, stacks=events <= STACKS_BELOW))
        self._jobs += self._counter_jobs()
        if self.memory:
            self._jobs.append(Job("memory", 1))
        if self.light and not self.plan.at:
            self._more = min(self.plan.steps, int(LIGHT_MORE_NS / max(step_ns, 1)))

    def _schedule_burst(self, windows: int) -> None:
        """Schedule the next timeline burst, separated from the last one by clean steps."""
        if self._in_phase >= LIGHT_DISTANCE:
            self._jobs.append(Job("timeline", self._fitting(windows)))

    def _counter_jobs(self) -> list[Job]:
        wanted = self.plan.counters or {}
        jobs = budget.jobs(self._groups, wanted)
        self._tally = budget.Tally(() if wanted.get("rounds") else jobs, wanted)
        return jobs

    def _sampled(self, job: Job, took_ns: float, active: float) -> None:
        """Schedule a counter burst again, after the others, if its group has too few active samples."""
        self._recent_ns.append(took_ns)
        if self._tally.again(job, active):
            self._jobs.insert(sum(other.phase == "counters" for other in self._jobs), job)

    def _next_job(self) -> Job:
        """Take the next job; size a counter burst by the recent step time, which may vary fivefold."""
        job = self._jobs.pop(0)
        if job.phase != "counters":
            return job
        job = budget.fitted(job, max(self._recent_ns), self._groups, self.plan.counters or {})
        last = all(other.phase != "counters" for other in self._jobs)
        return replace(job, windows=self._fitting(job.windows), last=last)

    def _is_quicker(self) -> bool:
        """Return whether steps are shorter now than before the timeline, so that they had not settled then.

        Longer steps mean nothing, because the profiler may still interfere. A user's `--settle` is trusted.
        """
        if self.plan.at or self.plan.settle is not None or self._again >= MOST_AGAIN:
            return False
        return self.clean.became_shorter(self._burst, self._in_phase)

    def _record_again(self, k: int) -> None:
        self._again += 1
        like_now = DRIFT_STEPS // 2  # of the steps that changed the median
        self.resettled = k - like_now
        self.clean.forget_all_but(like_now)
        self._looked_deeper, self._more = False, 0
        self._trials = list(self.plan.what_if)
        self._begin_timeline()

    def _fitting(self, windows: int) -> int:
        if not self._events_per_step:
            return min(windows, 1 if self.clean.are_long else FIRST_WINDOWS)
        most = LIGHT_BURST if self.light else windows
        return max(1, min(windows, most, EVENTS_PER_BURST // self._events_per_step))

    def _finish(self) -> None:
        self.finished = self.finished or self.clean.are_complete

    def _watch_for_slow(self) -> None:
        if self._in_phase >= ENOUGH_LEAST:
            self._rounds += 1
            limit = self.clean.slow_ns
            self._jobs.append(Job(SLOW, self._fitting(SLOW_WINDOWS), keep_above_ns=limit))

    # movements

    def _keep(self, k: int) -> Orders:
        if self.blocked and self._state in ("clean", "summary", "recover"):
            self._burst += self._state != "recover"
            self._state, self._recover = "recover", RECOVERY
        if self._state == "recover":
            self._recover -= 1
            if self._recover >= 0:
                return self._orders("transition")
            self._enter_clean()
        self._drop_missed(k)
        if k in self.appointments:
            job = self.appointments.pop(k)
            if job is not None:
                return self._arm(job)
            if self._state == "settle":
                self._enter_clean()
        elif self._state == "clean" and self.quiet and self.plan.count_after < self._in_phase:
            self._state = "summary"
            self._burst += 1
        return self._orders(self._state)

    def _drop_missed(self, k: int) -> None:
        """Drop the appointments that this rank learned of too late, and record nothing for them."""
        for step in [step for step in self.appointments if step < k]:
            if self.appointments.pop(step) is None and self._state == "settle":
                self._enter_clean()

    def _enter_clean(self) -> None:
        self._state, self._in_phase = "clean", 1
        self._burst += 1

    def _waits(self) -> bool:
        """Return whether the armed job must wait for some more steps before it starts."""
        assert self._job is not None
        self._armed += 1
        self._warm = 0 if self.unsettled else self._warm + 1
        if self._job.phase == "counters" or self._is_light:
            return self._armed <= RECOVERY  # writing the last burst leaves the host's caches cold
        trial = self._job.phase.startswith(rounds.PREFIX)
        return trial and self._warm < rounds.WARM and self._armed < rounds.MOST_WAIT

    @property
    def _is_light(self) -> bool:
        """Whether the job is a timeline that hardly disturbs, and need not begin at once."""
        job = self._job
        planned = job is not None and job.phase in ("timeline", SLOW) and job.keep_above_ns is None
        return self.light and planned

    def _arm(self, job: Job) -> Orders:
        self._state, self._job, self._armed, self._warm = "armed", job, 0, 0
        self._burst += 1
        return Orders("transition", self._burst, arm=job)

    def _start(self) -> Orders:
        assert self._job is not None
        self._lead_in = int(self._is_light)  # absorbs the cost of starting
        self._state, self._started_ns = "running", self._last_ns
        self._left = self._job.windows + self._lead_in
        self._burst += 1
        phase = "transition" if self._lead_in else self._job.phase
        return Orders(phase, self._burst, start=self._job)

    def _orders(self, phase: str) -> Orders:
        if (phase, self._burst) != (self._last.phase, self._last.burst):
            self._last = Orders(phase, self._burst)
        return self._last
