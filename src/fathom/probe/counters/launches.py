"""Calls that launched device work, where CUPTI recorded the work alone.

Recording every call of the runtime costs a launch-bound step 4 to 8 %: CUPTI then looks at all of them, the
device's number that PyTorch asks for a dozen times per launch included. A kernel's own record says when it
was queued, which costs nothing more. How much earlier its call began, and how much later it returned, is
learned from a burst with both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import NamedTuple

ENOUGH = 20  # launches with a recorded call, to learn from
SPARSE_A_MS = 10.0  # fewer launches a millisecond than this: recording their calls costs below 1 %
COPY, SET = "cudaMemcpyAsync", "cudaMemsetAsync"
DRIVER = "cuLaunchKernelEx"  # of kernels that the runtime did not launch: libraries call the driver


class Work(NamedTuple):
    """A piece of device work; times in ns, `queued` and `submitted` 0 where they are not known."""

    correlation: int
    kind: str  # kernel, copy, set
    name: int | str  # of a kernel: the address that CUPTI keeps its name at
    start: int
    end: int
    queued: int = 0
    submitted: int = 0
    node: int = 0  # of a graph
    blocks: bool = False  # a copy whose call returns when it has ended


class Call(NamedTuple):
    """A call of the runtime; `thread` 0: not known."""

    correlation: int
    name: str
    thread: int
    start: int
    end: int


@dataclass
class Launches:
    """Fills in the calls of a process's bursts. `known`: a burst with calls and queue times was seen."""

    known: bool = False
    lead_ns: int = 2_500  # from a call's begin to its kernel's queue time
    tail_ns: int = 500  # from the kernel's submission to the call's end
    lag_ns: int = 6_000  # from a call's begin to its work's start, on an idle device
    names: dict[int | str, str] = field(default_factory=dict)  # call by kernel

    def learn(self, work: Sequence[Work], calls: Sequence[Call]) -> None:
        """Compare queue times with the calls that were recorded beside them."""
        by = {call.correlation: call for call in calls}
        pairs = [(one, by[one.correlation]) for one in work if one.correlation in by and one.queued]
        self.names.update({one.name: DRIVER for one in work if one.queued and one.correlation not in by})
        self.names.update({one.name: call.name for one, call in pairs})
        if len(pairs) < ENOUGH:
            return
        self.known = True
        self.lead_ns = max(0, round(median(one.queued - call.start for one, call in pairs)))
        self.tail_ns = max(0, round(median(call.end - one.submitted for one, call in pairs)))
        self.lag_ns = max(0, round(quantiles((one.start - call.start for one, call in pairs), n=10)[0]))

    def missing(self, work: Sequence[Work], calls: Sequence[Call], thread: int) -> list[Call]:
        """The calls of work that has none, in the order of correlations; those of graphs stay missing.

        Their thread is that of the call before, or `thread`.
        """
        recorded = {call.correlation for call in calls}
        todo = [one for one in work if one.correlation not in recorded and not one.node]
        fixed = sorted([*calls, *(self._launch(one) for one in todo if one.queued)])
        return self._in_order(fixed, [one for one in todo if not one.queued], recorded, thread)

    def _launch(self, one: Work) -> Call:
        start = min(one.queued - self.lead_ns, one.start)
        name = self.names.get(one.name, "cudaLaunchKernel")
        return Call(one.correlation, name, 0, start, max(one.submitted + self.tail_ns, one.queued))

    def _in_order(self, fixed: list[Call], rest: list[Work], recorded: set[int], thread: int) -> list[Call]:
        """Merge calls at known times with work whose call's time has to be estimated."""
        found: list[Call] = []
        before = Call(0, "", thread, 0, 0)
        rest = sorted(rest, reverse=True)
        for call in [*fixed, None]:
            while rest and (call is None or rest[-1].correlation < call.correlation):
                before = self._estimated(rest.pop(), before, call)
                found.append(before)
            if call is None:
                break
            if call.correlation not in recorded:
                call = call._replace(thread=before.thread, start=max(call.start, min(before.end, call.end)))
                found.append(call)
            before = call if call.thread else call._replace(thread=before.thread)
        return found

    def _estimated(self, one: Work, before: Call, after: Call | None) -> Call:
        """The call of a copy: it begins shortly before the copy, where the device was idle, and between its
        neighbours."""
        last = one.start if after is None else min(one.start, after.start)
        start = min(max(one.start - self.lag_ns, before.end), max(last, 0))
        end = max(start, one.end if one.blocks else min(start + self.lead_ns + self.tail_ns, last))
        name = COPY if one.kind == "copy" else SET if one.kind == "set" else "cudaLaunchKernel"
        return Call(one.correlation, name, before.thread, start, end)


def sparse(work: Sequence[Work]) -> bool:
    """Whether launches are so far apart, or so often a graph's, that their calls are better recorded."""
    if not work or any(one.node for one in work):
        return True
    lasted = max(one.end for one in work) - min(one.start for one in work)
    return len(work) < SPARSE_A_MS * lasted / 1e6
