"""Reconstruct the calls that launched device work when CUPTI recorded only the work.

Recording calls makes a launch-bound step a quarter longer, because CUPTI then examines all calls of the
runtime, including the dozen queries per launch by which PyTorch asks for the current device. A kernel's own
record holds the time at which it was queued, at no extra cost. One burst with both shows how long before
that time the call began, and how long after it the call returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import NamedTuple

ENOUGH = 20  # launches with a recorded call, to learn from
SPARSE_PER_MS = 2.5  # launches per millisecond: below it, recording their calls costs less than 1 %
LAUNCH = "cudaLaunchKernel"
CALLS = {"copy": "cudaMemcpyAsync", "set": "cudaMemsetAsync"}  # by kind of work
DRIVER = "cuLaunchKernelEx"  # of kernels launched by libraries, which call the driver


class WorkItem(NamedTuple):
    """A kernel, copy or fill on the device. Times are in ns; `queued` and `submitted` are 0 if unknown."""

    correlation: int
    kind: str  # kernel, copy, set
    name: int | str  # of a kernel: the address at which CUPTI keeps its name
    start: int
    end: int
    queued: int = 0
    submitted: int = 0
    node: int = 0  # in a CUDA graph
    blocks: bool = False  # a copy whose call returns after it has ended


class RuntimeCall(NamedTuple):
    """A call of the runtime; `thread` is 0 if unknown."""

    correlation: int
    name: str
    thread: int
    start: int
    end: int


@dataclass
class CallReconstruction:
    """Adds missing calls to a process's bursts. `known`: some burst had both calls and queue times."""

    known: bool = False
    lead_ns: int = 2_500  # from the start of a call to the queue time of its kernel
    tail_ns: int = 500  # from the submission of a kernel to the end of its call
    rest_ns: int = 3_500  # from the queue time of a kernel to the end of its call
    lag_ns: int = 6_000  # from the start of a call to the start of its work on an idle device
    names: dict[int | str, str] = field(default_factory=dict)  # calls by kernel

    def learn(self, work: Sequence[WorkItem], calls: Sequence[RuntimeCall]) -> None:
        """Learn the calls' names and typical delays by comparing queue times with recorded calls."""
        by = {call.correlation: call for call in calls}
        queued = [item for item in work if item.queued]
        pairs = [(item, by[item.correlation]) for item in queued if item.correlation in by]
        self.names.update({item.name: DRIVER for item in queued if item.correlation not in by})
        self.names.update({item.name: call.name for item, call in pairs})
        if len(pairs) < ENOUGH:
            return
        self.known = True
        self.lead_ns = max(0, round(median(item.queued - call.start for item, call in pairs)))
        self.tail_ns = max(0, round(median(call.end - item.submitted for item, call in pairs)))
        self.rest_ns = max(0, round(median(call.end - item.queued for item, call in pairs)))
        self.lag_ns = max(0, round(quantiles((item.start - call.start for item, call in pairs), n=10)[0]))

    def missing(
        self, work: Sequence[WorkItem], calls: Sequence[RuntimeCall], thread: int
    ) -> list[RuntimeCall]:
        """Return a reconstructed call for each item of work without one, except work of CUDA graphs.

        A call's thread is that of the preceding call, or `thread` if there is none.
        """
        recorded = {call.correlation for call in calls}
        todo = [item for item in work if item.correlation not in recorded and not item.node]
        timed = self._in_turn(calls, {item.correlation: item for item in todo if item.queued})
        untimed = sorted((item for item in todo if not item.queued), reverse=True)
        missing: list[RuntimeCall] = []
        before = RuntimeCall(0, "", thread, 0, 0)
        for call in [*timed, None]:
            while untimed and (call is None or untimed[-1].correlation < call.correlation):
                before = self._estimated(untimed.pop(), before, call)
                missing.append(before)
            if call is None:
                break
            if call.correlation not in recorded:
                call = call._replace(thread=before.thread, start=max(call.start, min(before.end, call.end)))
                missing.append(call)
            before = call if call.thread else call._replace(thread=before.thread)
        return missing

    def _in_turn(self, calls: Sequence[RuntimeCall], queued: dict[int, WorkItem]) -> list[RuntimeCall]:
        """Return `calls` and a reconstructed call for each queued kernel, in order.

        While the device lags behind the host, so do CUPTI's submission times, by up to many ms. A time after
        the next call has begun does not tell when a call ended.
        """
        result = sorted([*calls, *(self._launch(item) for item in queued.values())])
        following = result[-1].start + self.lead_ns + self.rest_ns if result else 0
        for at, call in reversed(list(enumerate(result))):
            item = queued.get(call.correlation)
            if item and call.end > following:
                usual = item.queued + self.rest_ns
                end = min(usual, following) if following > call.start else usual
                result[at] = call._replace(end=end)
            following = min(following, call.start)  # its own queue time may be late too
        return result

    def _launch(self, item: WorkItem) -> RuntimeCall:
        start = min(item.queued - self.lead_ns, item.start)
        name = self.names.get(item.name, LAUNCH)
        return RuntimeCall(item.correlation, name, 0, start, max(item.submitted + self.tail_ns, item.queued))

    def _estimated(self, item: WorkItem, before: RuntimeCall, after: RuntimeCall | None) -> RuntimeCall:
        """Return an estimated call between its neighbours, shortly before its work if the device was idle."""
        last = item.start if after is None else min(item.start, after.start)
        start = min(max(item.start - self.lag_ns, before.end), max(last, 0))
        end = max(start, item.end if item.blocks else min(start + self.lead_ns + self.tail_ns, last))
        return RuntimeCall(item.correlation, CALLS.get(item.kind, LAUNCH), before.thread, start, end)


def is_sparse(work: Sequence[WorkItem]) -> bool:
    """Return whether to record every call, because launches are rare or made by CUDA graphs."""
    if not work or any(item.node for item in work):
        return True
    lasted = max(item.end for item in work) - min(item.start for item in work)
    return len(work) < SPARSE_PER_MS * lasted / 1e6
