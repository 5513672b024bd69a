"""Switch recorders on and off: Kineto bursts, counter samples, allocator snapshots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fathom.pristine import os, time
from fathom.probe.collecting import uncollected
from fathom.probe.counters.activities import Activities, activities, launch
from fathom.probe.counters.sampler import CounterSampler
from fathom.probe.device import device_in_use
from fathom.probe.kineto import Kineto, profiles_itself
from fathom.probe.memory import AllocatorSnapshot, Holds
from fathom.probe.orders import Job
from fathom.probe.plain import Plain, is_plain
from fathom.probe.reporter import Reporter
from fathom.probe.threads import get_ident, is_main, native_id

TOO_MANY = "modules and source lines are unknown, because a step has too many events to record their stacks"
OWN_PROFILE = "modules and source lines are unknown, because the program has its own profile function"
NO_CUPTI = "CUPTI could not be used directly"
DEVICE_ONLY = (
    "Kineto recorded the timeline, without the framework's ops; steps take up to 20 % longer than clean ones"
)
WITH_OPS = (
    "Kineto recorded the timeline with the framework's ops; steps take up to 80 % longer than clean ones"
)
MOST_CAPTURES = 8
CAPTURE_BURSTS = 10_000  # bursts around captures are numbered from here


class Recorder:
    """Starts and stops the recorders of a process. `foreign` returns whether the program profiles itself."""

    def __init__(self, session: Reporter, foreign: Callable[[], bool]) -> None:
        self._session, self._foreign = session, foreign
        self.kineto: Kineto | Plain = Plain() if is_plain(session.torch) else Kineto()
        self.sampler = CounterSampler(session)
        self._tracer: Kineto | Plain | Activities = self.kineto
        self._cupti_taken = False  # whether Kineto holds CUPTI, from its first burst on
        self._snapshot: AllocatorSnapshot | None = None
        self._holds: Holds | None = None  # of the attribution phase, if it records allocations
        self._job: Job | None = None
        self._first = 0
        self._burst = 0
        self._prepared = False
        self._bound: int | None = None  # the only thread that can begin and end the prepared burst
        self._several = False  # several threads open steps
        self.stranded = False  # a burst of `_bound` that another thread should have ended
        self._captures = 0
        self._capturing = False
        self.light = self.bare = False  # the last timeline hardly disturbed the program; it holds no ops

    @property
    def running(self) -> bool:
        """Whether anything besides marks is being recorded."""
        return self._job is not None

    def arm(self, job: Job) -> bool:
        """Prepare a job one step ahead. Return False if it cannot run now."""
        if not self.land():
            return False
        if job.phase == "memory":
            self._snapshot = AllocatorSnapshot.possible(self._session)
            return self._snapshot is not None
        if self._foreign() or self.kineto.foreign():
            self._session.note("own-profiler", "the program ran its own profiler, so Fathom's waited")
            return False
        if job.phase == "counters":
            return self._arm_counters(job)
        self.sampler.close()  # Kineto may finalise CUPTI after this burst, and the sampler with it
        self._let_go()
        deep = job.phase == "attribution"
        if not deep:
            return self._arm_timeline(job)
        self._tracer = self.kineto
        self._holds = Holds.possible(self._session) if job.stacks else None
        watched = job.stacks and profiles_itself()
        stacks = job.stacks and not watched
        self.kineto.prepare(
            shapes=True, stacks=stacks, everywhere=self._everywhere(), memory=self._holds is not None
        )
        self._prepared = True
        if not stacks:
            self._session.note("attribution", OWN_PROFILE if watched else TOO_MANY)
        return True

    def _arm_timeline(self, job: Job) -> bool:
        """Use CUPTI directly, else Kineto without ops if it records runtime calls, else Kineto with ops."""
        torch = self._session.torch
        on_cuda = torch.cuda.is_initialized() and _is_cuda(torch)
        direct = activities() if on_cuda and not job.ops else None
        ready = direct if direct is not None and direct.ready(self._wait_for_device) else None
        self._tracer, self.light, self.bare = ready or self.kineto, ready is not None, on_cuda and not job.ops
        if ready is None:
            self.kineto.prepare(everywhere=self._everywhere(), device_only=self.bare)
            self._explain(on_cuda)
        self._prepared = True
        return True

    def _explain(self, on_cuda: bool) -> None:
        """Note why the timeline disturbs the program more than usual, or lacks something."""
        if self.bare:
            self._session.note("timeline", f"{NO_CUPTI}: {DEVICE_ONLY}")
        elif not on_cuda and self._session.torch.cuda.is_initialized():
            self._session.note("timeline", WITH_OPS)

    def _arm_counters(self, job: Job) -> bool:
        """Prepare a counter burst; record the device's work with CUPTI, or Kineto if it still holds CUPTI."""
        direct = activities()
        ready = direct if direct is not None and direct.ready(self._wait_for_device) else None
        self._cupti_taken = ready is None
        if not self.sampler.arm(job):
            return False
        self._tracer = ready or self.kineto
        if ready is None:
            self.kineto.prepare(everywhere=self._everywhere(), device_only=True)
        self._prepared = True
        return True

    def close(self) -> None:
        """Release what would delay the program's exit: counters, and Kineto's hold on CUPTI."""
        self.sampler.close()
        self._let_go()

    def _let_go(self) -> None:
        """Wait until Kineto has released CUPTI, because the release would end the burst about to begin."""
        in_use = self._session.torch.cuda.is_initialized()
        direct = activities() if self._cupti_taken and in_use else None
        if direct is not None:
            direct.free(self._wait_for_device)

    def _everywhere(self) -> bool:
        """Return whether to record the ops of all threads, and set the thread that must end the burst."""
        several = self._several or self._borrowed_thread()
        self._bound = None if several and self.kineto.any_thread else get_ident()
        return several

    def _borrowed_thread(self) -> bool:
        """Return whether this is an autograd or another side thread, where a bound profiler would be lost."""
        in_backward = self._session.torch._C._current_graph_task_id() != -1
        return in_backward or not is_main()

    def start(self, job: Job, k: int, burst: int) -> bool:
        """Start the job: step k opens now. Return False if it is not ready, or another profiler runs."""
        ready = self._prepared or self._snapshot is not None  # enabling an unprepared profiler is fatal
        if self._foreign() or not ready:
            return False
        if self._snapshot is None and self._elsewhere():
            self._several = self.disarm()
            return False
        self._prepared = False
        self._job, self._first, self._burst = job, k, burst
        if job.phase == "attribution" and self._holds is not None:
            self._holds.say("begin")
        if self._snapshot is not None:
            self._snapshot.begin()
        elif isinstance(self._tracer, Activities):
            calls = job.phase != "counters"
            self._tracer.enable(lambda: launch(self._session.torch.cuda), calls=calls)
        else:
            self._tracer.enable()
        if job.phase == "counters":
            self.sampler.start()
        return True

    def _elsewhere(self) -> bool:
        """Return whether the prepared or running burst belongs to another thread."""
        return self._tracer is self.kineto and self._bound not in (None, get_ident())

    def land(self) -> bool:
        """Close a stranded burst if it belongs to this thread; return whether none is left open."""
        if self.stranded and not self._elsewhere():
            self.stranded = False
            self.kineto.disable()
            self.kineto.drop()
            self._cupti_taken = True
        return not self.stranded

    def disarm(self) -> bool:
        """Undo `arm` if the job has not begun; torch can only do this by starting and stopping."""
        if not self.land() or not self._prepared:
            return False
        self._prepared = False
        if self._tracer is self.kineto:
            self.kineto.enable()
            self.kineto.disable()
            self._cupti_taken = True
        self._tracer.drop()
        self._detach()
        return True

    def mark(self, k: int) -> int | None:
        """Annotate the mark if Kineto runs, and return the annotation's time in ns; None otherwise."""
        return self.kineto.mark(k) if self.kineto.enabled else None

    def stop(self, k: int, longest_ns: int = 0) -> tuple[int, bool, int]:
        """Stop the job at mark k and save it. Return (events, whether it was kept, its end in ns)."""
        job, self._job = self._job, None
        if job is None:
            return 0, False, 0
        if self._snapshot is not None:
            self._session.say(self._snapshot.end())
            self._snapshot = None
            return 0, True, 0
        self._wait_for_device()
        stop_ns = time.time_ns()
        self.sampler.stop()
        if self._elsewhere():  # torch would abort the program
            self._several = self.stranded = True
            self.sampler.close()  # its samples belong to no later burst
            self._session.note("interrupted", "a burst's last step was opened by another thread")
            return 0, False, stop_ns
        self._tracer.disable()
        self._cupti_taken = self._tracer is self.kineto
        if job.phase == "attribution" and self._holds is not None:
            self._holds.say("end")
        if job.keep_above_ns is not None and longest_ns <= job.keep_above_ns:
            self._tracer.drop()
            self._detach()
            return 0, False, stop_ns
        events = self._save(job, k, stop_ns)
        self.sampler.save(self._burst, self._first, k)
        self._detach()
        return events, not self._rehearsed(), stop_ns

    def _detach(self) -> None:
        """Remove CUPTI, which would slow clean steps down, unless more counters are about to be sampled."""
        if isinstance(self._tracer, Activities) and not self.sampler.is_open:
            self._tracer.detach(self._wait_for_device)

    def _rehearsed(self) -> bool:
        return isinstance(self._tracer, Activities) and self._tracer.rehearsal

    def _wait_for_device(self) -> None:
        """Wait for the last step's kernels, which belong to the burst; Kineto would also wait for them."""
        cuda = self._session.torch.cuda
        if cuda.is_initialized():
            with suppress(RuntimeError):  # the program failed: keep what was recorded
                cuda.synchronize(device_in_use(cuda))

    def begin_capture(self) -> None:
        """Record the capture of a CUDA graph, because its replays show only kernels and no ops."""
        taken = self._foreign() or self.kineto.foreign() or self.stranded
        if taken or self._captures >= MOST_CAPTURES:
            return
        self._let_go()
        self.kineto.prepare(shapes=True)
        self.kineto.enable()
        self._capturing = True

    def end_capture(self, k: int) -> None:
        """Save the capture; step k is open."""
        if not self._capturing:
            return
        self._capturing = False
        self._first, self._burst = k, CAPTURE_BURSTS + self._captures
        self._captures += 1
        stop_ns = time.time_ns()
        self._tracer, self._cupti_taken = self.kineto, True
        self.kineto.disable()
        self._save(Job("attribution", 0), k, stop_ns, kind="capture")

    def _save(self, job: Job, k: int, stop_ns: int, kind: str = "") -> int:
        if isinstance(self._tracer, Plain):
            return 0
        file = f"trace-{os.getpid()}-{self._burst}-{kind or job.phase}.json"
        begun, path = time.time_ns(), os.path.join(self._session.raw, file)
        ours = self._tracer if isinstance(self._tracer, Activities) else None
        with uncollected():
            events = self._tracer.save(path) if ours is None else ours.save(path, native_id())
        if self._rehearsed():
            self._session.say({"t": "rehearsal", "burst": self._burst})
            return events
        self._session.say(
            {
                "t": "trace",
                "phase": job.phase,
                "burst": self._burst,
                "file": file,
                "k0": self._first,
                "k1": k,
                "stop_ns": stop_ns,
                "export_ns": time.time_ns() - begun,
                **({"way": "cupti", "clock": ours.clock} if ours else {}),
            }
        )
        return events


def _is_cuda(torch: Any) -> bool:
    """Return whether this torch was built for CUDA: on AMD, torch.cuda means ROCm."""
    return bool(getattr(getattr(torch, "version", None), "cuda", None))
