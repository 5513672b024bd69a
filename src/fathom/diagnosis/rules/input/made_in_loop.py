"""Batches that the training loop makes itself: a generator or `__next__` runs between two steps."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fathom.diagnosis.rules.candidates import ms_of, on_processor
from fathom.diagnosis.rules.input.loader import SPARE, in_loop
from fathom.diagnosis.rules.input.workers import HIDDEN, HOST, MOST, RECEIVE_MS, TENSOR_MS, TENSORS
from fathom.diagnosis.rules.rule import Candidate, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Made, Signals

LEAST = 0.01  # of the step: the least that workers have to gain at the lower end
LOCKED = 0.5  # of the iterator's time: above it, other threads make the batches
WAITING = 0.8  # of the iterator's time in system calls: a thread can wait as well as a process
BETTER = 0.97  # of the step: more workers have to shorten it to this
SLOWER = (0.2, 0.7)  # times the step on a processor whose caches workers use: typical, and at most
UNSURE = 0.3  # of the workers' effect on each other and on the step
NO_CORE = "the program may use {cores:g} cores and its step keeps all busy: no core is left to make batches"
COSTS = "worker processes would cost the step about as much as they save"
LOCKS = "the loop's iterator mostly waits for other threads, whose work was not sampled"

WORKERS = """\
class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):                                  # each worker makes its share of the batches
        worker = torch.utils.data.get_worker_info()
        for index in range(worker.id, batches, worker.num_workers):
            yield make_batch(index)
loader = DataLoader(Batches(), batch_size=None, num_workers={workers}, persistent_workers=True)
"""
THREAD = """\
def ahead(batches, most=2):                              # a thread waits for the next batches meanwhile
    ready, end = queue.Queue(most), object()
    def fill():
        for batch in batches:
            ready.put(batch)
        ready.put(end)
    threading.Thread(target=fill, daemon=True).start()
    yield from iter(ready.get, end)
for batch in ahead(make_batches()): ...
"""
FEWER_THREADS = "torch.set_num_threads({threads})                          # leaves cores for the workers\n"


class Ahead(msgspec.Struct, frozen=True):
    """A step whose batches others make: their number, and its milliseconds, expected and at most."""

    workers: int
    ms: float
    most: float


class Making(msgspec.Struct, frozen=True):
    """How the loop makes batches now: milliseconds per step with and without it, and cores."""

    made: Made
    step_ms: float
    fed_ms: float  # the step without the time that it waits for the iterator
    cores: float
    busy: float  # cores that the step keeps busy
    on_processor: bool

    @property
    def computing_ms(self) -> float:
        """The part of making a batch that needs a core."""
        return self.made.ms * (1 - self.made.blocked)

    def ahead(self, workers: int, thread: bool = False) -> Ahead:
        """The step if `workers` make batches meanwhile: computing ones slow down a step on the processor."""
        usual, most = HOST if self.on_processor else HIDDEN
        receive = 0.0 if thread else RECEIVE_MS + TENSOR_MS * TENSORS
        work = (self.computing_ms + self.busy * self.fed_ms) / self.cores

        def step(cost: float, slower: float) -> float:
            made = (self.made.ms + cost * receive) / workers
            return max(slower * self.fed_ms + cost * receive, made, work)

        computing = 1 - self.made.blocked if self.on_processor else 0.0
        slower, slowest = (1 + share * computing for share in SLOWER)
        return Ahead(workers, step(usual, slower), step(most, slowest))

    def needed(self, workers: int) -> float:
        """Cores that the step and the workers use at the same time, at most."""
        return self.busy + workers * (1 - self.made.blocked)

    def best(self) -> Ahead:
        """The fewest workers beyond which the step hardly gets shorter."""
        chosen = self.ahead(1)
        for more in self._more():
            if more.ms < BETTER * chosen.ms:
                chosen = more
        return chosen

    def _more(self) -> Iterator[Ahead]:
        return (self.ahead(workers) for workers in range(2, MOST + 1))

    @property
    def fits_a_thread(self) -> bool:
        """Whether one thread keeps up, since the iterator waits without the interpreter's lock."""
        return self.made.blocked >= WAITING and self.made.ms <= self.fed_ms


@rule("input-made-in-the-loop")
def made_in_loop(signals: Signals) -> Outcomes:
    """Predict the step if workers make the batches while the step computes, from the cores that are left."""
    claims, made = in_loop(signals), signals["input.made"]
    if not claims:
        return
    if made.locked > LOCKED:
        yield NotAnalysed(LOCKS)
        return
    making = _making(signals, made, ms_of(claims))
    ahead = making.ahead(1, thread=True) if making.fits_a_thread else making.best()
    if ahead.ms >= BETTER * making.step_ms:
        full = making.needed(1) > making.cores
        yield NotAnalysed(NO_CORE.format(cores=making.cores) if full else COSTS)
        return
    gain = making.step_ms - ahead.ms
    yield Candidate(
        claims=claims,
        evidence=_evidence(making, ahead),
        gain_ms=gain,
        doubt=max((ahead.most - ahead.ms) / gain, _doubt(making, ahead)),
        confidence=0.85,
        least=LEAST,
        check="time the loop over the iterator alone: no step can be shorter than one of its batches takes",
        remedy=_remedy(making, ahead),
        source=made.source,
    )


def _making(signals: Signals, made: Made, lost: float) -> Making:
    """Scale the profiled step's time in the iterator to the clean step."""
    clean: dict[tuple[str, str], float] = signals.get("step.clean_ledger").value or {}
    rows = {(claim.entry, claim.detail) for claim in in_loop(signals)}
    waited = sum(ms for row, ms in clean.items() if row in rows) or lost
    step = signals["step.ms"]
    cores = signals.get("host.cores").value or float("inf")
    on_cpu = on_processor(signals)
    busy = float(made.threads or cores) if on_cpu else float(SPARE)
    made = msgspec.structs.replace(made, ms=max(made.ms, waited))
    return Making(made, step, max(step - waited, 0.0), cores, min(busy, cores), on_cpu)


def _doubt(making: Making, ahead: Ahead) -> float:
    """Larger if workers share cores with the step, or if several have to divide the batches."""
    return UNSURE if making.needed(ahead.workers) > making.cores or ahead.workers > 1 else UNSURE / 2


def _evidence(making: Making, ahead: Ahead) -> list[Evidence]:
    made = making.made
    return [
        Evidence("the loop's iterator takes to make the batches of a step", made.ms, "ms"),
        *([Evidence("of which blocked in system calls", 100 * made.blocked, "%")] if made.blocked else []),
        *([Evidence("of which in calls on files", 100 * made.reading, "%")] if made.reading else []),
        *([Evidence("mean time at one instruction", made.dwell_us, "µs")] if made.dwell_us else []),
        Evidence("the step without this time", making.fed_ms, "ms"),
        Evidence("the step if one worker makes the batches meanwhile", making.ahead(1).ms, "ms"),
        *_more_workers(ahead),
        *([Evidence("cores available", making.cores, "cores")] if making.cores < float("inf") else []),
    ]


def _more_workers(ahead: Ahead) -> list[Evidence]:
    if ahead.workers == 1:
        return []
    return [Evidence(f"the step if {ahead.workers} workers make them", ahead.ms, "ms")]


def _remedy(making: Making, ahead: Ahead) -> str:
    if making.fits_a_thread:
        return THREAD
    left = int(making.cores - ahead.workers) if making.cores < float("inf") else 0
    shares = making.on_processor and making.needed(ahead.workers) > making.cores and left >= 1
    return (FEWER_THREADS.format(threads=left) if shares else "") + WORKERS.format(workers=ahead.workers)
