"""A program on a machine, event by event: what a replay must agree with. Times are in nanoseconds.

Nothing here knows of graphs: the host runs its instructions in order, streams take their work in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.support.timelines import ENGINE, MAIN, Timeline

US = 1_000


@dataclass(frozen=True)
class Do:
    """One instruction of the host, on `thread`.

    python: `ns` without a record · launch: `ns` in an op `name`, then a call that starts `work` ns of kernel
    `name` on `stream` · sync: wait for `stream`, None: the device · item: a copy of `work` ns to the host,
    waited for · wait: `stream` waits for what the stream `other` was given so far · batch: take one from the
    loader · gc: a collection of `ns` · collective: a kernel of the kind
    """

    what: str
    ns: int = 0
    work: int = 0
    name: str = "gemm"
    stream: int | None = 7
    other: int = 7
    thread: int = MAIN


@dataclass(frozen=True)
class Machine:
    """Durations of the simulated work, and the factors of a change."""

    launch: int = 4 * US
    latency: int = 6 * US
    gap: int = 1 * US
    sync: int = 4 * US
    back: int = 8 * US  # from the end of work to the return of the call that waited for it
    depth: int = 1024
    batch: int = 0  # a worker's time for a batch
    workers: int = 1  # that make batches in turn; of several, the time for a batch is recorded
    ahead: int = 4  # batches that the loader may be ahead
    take: int = 20 * US
    python_factor: float = 1.0
    gc_factor: float = 1.0
    op_factor: dict[str, float] = field(default_factory=dict)
    kernel_factor: dict[str, float] = field(default_factory=dict)
    synchronous: bool = True


@dataclass
class Run:
    """One run of a program."""

    machine: Machine
    made: Timeline = field(default_factory=Timeline)
    now: int = 1_700_000_000_000_000_000
    ends: dict[int, list[int]] = field(default_factory=dict)
    not_before: dict[int, int] = field(default_factory=dict)  # stream: not before this
    ready: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    calls: int = 0

    def steps(self, program: list[Do], count: int, before: int = 0) -> Timeline:
        """Run `before` steps that are not recorded, then `count` steps."""
        for item in program * before:
            getattr(self, item.what)(item)
        self.made = Timeline()
        marks = []
        for _ in range(count):
            marks.append(self.now)
            for item in program:
                getattr(self, item.what)(item)
        self.made.steps(*marks, self.now)
        return self.made

    def _spend(self, ns: float) -> tuple[int, int]:
        start, self.now = self.now, self.now + round(ns)
        return start, self.now

    def python(self, do: Do) -> None:
        self._spend(do.ns * self.machine.python_factor)

    def gc(self, do: Do) -> None:
        self.made.wait("gc", *self._spend(do.ns * self.machine.gc_factor))

    def launch(self, do: Do, kind: str = "compute", api: str = "cudaLaunchKernel", **more: str) -> int:
        """Returns when the work ends."""
        assert do.stream is not None
        factor = self.machine.op_factor.get(do.name, 1.0)
        begun, _ = self._spend(do.ns * factor)
        start, _ = self._spend(self.machine.launch * factor)
        ends = self.ends.setdefault(do.stream, [])
        if len(ends) >= self.machine.depth:
            self.now = max(self.now, ends[-self.machine.depth] + self.machine.back)
        before = ends[-1] + self.machine.gap if ends else 0
        at = max(self.now + self.machine.latency, before, self.not_before.pop(do.stream, 0))
        ends.append(at + round(do.work * self.machine.kernel_factor.get(do.name, 1.0)))
        self.calls += 1
        self.made.call(api, start, self.now, do.thread, self.calls)
        name = "autograd::engine::evaluate_function: " if do.thread == ENGINE else ""
        self.made.op(name + do.name, begun, self.now, do.thread)
        self.made.kernel(
            at, ends[-1], None, name=do.name, kind=kind, stream=do.stream, correlation=self.calls, **more
        )
        return ends[-1]

    def collective(self, do: Do) -> None:
        self.launch(replace(do, name="ncclDevKernel_AllReduce"), "collective")

    def sync(self, do: Do) -> None:
        start, _ = self._spend(self.machine.sync if self.machine.synchronous else 0)
        streams = list(self.ends) if do.stream is None else [do.stream]
        if self.machine.synchronous:
            last = max((self.ends[s][-1] for s in streams if self.ends.get(s)), default=0)
            if last > start:
                self.now = max(self.now, last + self.machine.back)
        api = "cudaDeviceSynchronize" if do.stream is None else "cudaStreamSynchronize"
        self.made.call(api, start, self.now, do.thread)

    def item(self, do: Do) -> None:
        self.launch(replace(do, name="copy"), "copy", "cudaMemcpyAsync", direction="DtoH pinned")
        self.sync(do)

    def wait(self, do: Do) -> None:
        assert do.stream is not None
        start, _ = self._spend(1 * US)
        self.made.call("cudaStreamWaitEvent", start, self.now, do.thread)
        if self.ends.get(do.other):
            self.not_before[do.stream] = max(
                self.not_before.get(do.stream, 0), self.ends[do.other][-1] + self.machine.gap
            )

    def batch(self, do: Do) -> None:
        free = self.taken[-self.machine.ahead] if len(self.taken) >= self.machine.ahead else 0
        workers, nth = self.machine.workers, len(self.ready)
        last = self.ready[-workers] if nth >= workers else self.now
        self.ready.append(max(last, free) + self.machine.batch)
        start, _ = self._spend(self.machine.take)
        self.now = max(self.now, self.ready[-1])
        self.taken.append(self.now)
        self.made.wait("input", start, self.now, detail="loader 0")
        if workers > 1:
            of = {"loader": 0, "batch": nth, "worker": nth % workers}
            times = {"start_ns": start, "wait_ns": self.now - start, "fetch_ns": self.machine.batch}
            self.made.add("input", **of, **times)


def simulate(program: list[Do], machine: Machine, steps: int = 6, before: int = 0) -> Timeline:
    """The timeline of a program that repeats `program` once a step, after `before` unrecorded steps."""
    return Run(machine).steps(program, steps, before)
