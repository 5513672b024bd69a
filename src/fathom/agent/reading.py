"""Tools that only read: soundings in the roots, Fathom's catalogues, and this machine."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import RLock
from typing import Annotated, Literal

from pydantic import Field

from fathom.agent.roots import Roots
from fathom.api import Sounding, compare, open
from fathom.report import digest
from fathom.report.digest import Digest

OPEN = 4  # soundings that are kept open
MOST_ROWS, MOST_BYTES = 50_000, 32 << 20  # of a query's result

Name = Annotated[
    str, Field(description="A sounding, NAME.fathom or NAME.fathom.zip, relative to the first root.")
]
Kind = Annotated[
    str | None, Field(description="Kind of step, like prefill; by default the one that takes the most time.")
]
Rank = Annotated[int | None, Field(description="Rank of a job; by default the first.")]


@dataclass
class Reading:
    """The tools that read. One call at a time, so that memory stays bounded."""

    roots: Roots
    _lock: RLock = field(default_factory=RLock)
    _open: OrderedDict[tuple[str, int], Sounding] = field(default_factory=OrderedDict)

    def report(
        self,
        sounding: Name,
        kind: Kind = None,
        price: Annotated[str | None, Field(description="Price of a GPU, like 3.50/h.")] = None,
    ) -> Digest:
        """Show what bounds the step, what to do first, and where its time goes. Call this first.

        `verdict` is the result in one sentence, with the first remedy. Rows are the ledger: entries that add
        up to the step, in ms per step. If `integrity_ok` is false, the recording is damaged: record again.
        """
        with self._lock:
            return digest.overview(self.opened(sounding).examine(kind, price))

    def findings(
        self,
        sounding: Name,
        id: Annotated[str | None, Field(description="Only this finding, with mechanism and claims.")] = None,
        headroom: Annotated[
            bool, Field(description="Kernels far below their ceiling, cause unknown.")
        ] = False,
        price: Annotated[str | None, Field(description="Price of a GPU, like 3.50/h.")] = None,
    ) -> Digest:
        """List the causes of lost time, largest predicted gain first, with evidence, place and remedy.

        Gains are predictions with an interval and do not add up. Fix the first, prove it, record again.
        """
        with self._lock:
            examination = self.opened(sounding).examine(price=price)
        return digest.headroom(examination) if headroom else digest.findings(examination, id)

    def account(self, sounding: Name, kind: Kind = None) -> Digest:
        """Show what the step is made of: work at its measured ceilings, then each loss with its owner.

        The parts add up to the step. An owner is a finding, a kernel family with headroom, a cause, or
        unexplained.
        """
        with self._lock:
            return digest.account(self.opened(sounding).examine(kind))

    def kernel(
        self,
        sounding: Name,
        pattern: Annotated[str | None, Field(description="A family's name, a part of it, or a glob.")] = None,
        rank: Rank = None,
    ) -> Digest:
        """List kernel families by time; with a pattern, show what limits the longest match, with counters."""
        with self._lock:
            portraits = self.opened(sounding).kernel(pattern, rank)
        if pattern is None:
            return digest.families(portraits)
        return digest.kernel(portraits[0], [portrait.family for portrait in portraits[1:]])

    def query(self, sounding: Name, sql: Annotated[str, Field(description="One SELECT.")]) -> Digest:
        """Run one SELECT over a sounding. Times are ns since the epoch, `*_ns` durations ns, `ms` per step.

        Tables: steps, ops, launches, kernels, waits, stacks, samples, counters, input, memory, telemetry,
        usage; and computed: windows, ledger (the clean step's), profiled_ledger, collectives, ranks,
        late_ranks, jitter, pipeline, experts.
        Columns: `SELECT * FROM kernels LIMIT 1`. Aggregate in SQL; large results are refused.
        """
        with self._lock:
            return digest.table(self.opened(sounding).sql(sql, most_rows=MOST_ROWS, most_bytes=MOST_BYTES))

    def what_if(
        self,
        sounding: Name,
        changes: Annotated[
            list[str], Field(description="SELECTOR=FACTOR or SELECTOR=DURATION, one or more.")
        ],
        rank: Rank = None,
    ) -> Digest:
        """Predict the step with changed durations by replaying its dependencies; nothing runs.

        Selectors: family:NAME, op:NAME, entry:ROW of the ledger, all-kernels, copy, communication, launch,
        launch-latency, device-gap, input, sync (=0 only), recomputed, waiting (=0 only), late:RANK (=0 only),
        link, exposed (=0 only), bucket (=25MiB), python, dispatching, blocked, gc, allocator, compilation,
        checkpoint. Example:
        ["family:softmax=0.5", "input=0"].
        """
        with self._lock:
            return digest.prediction(self.opened(sounding).what_if(*changes, rank=rank))

    def compare(
        self,
        baseline: Annotated[list[str], Field(description="One sounding, or several of the same program.")],
        candidate: Annotated[list[str], Field(description="Likewise, after the change.")],
        kind: Kind = None,
        rank: Rank = None,
    ) -> Digest:
        """Compare recordings: which entries of the step moved by more than noise, and why.

        `change_ms` of all rows add up to that of the step; noise alone can change an entry by `noise_ms`.
        """
        with self._lock:
            before, after = ([self.opened(name) for name in side] for side in (baseline, candidate))
            return digest.comparison(compare(before, after, kind, rank))

    def explain(
        self, kind: Annotated[str | None, Field(description="Id of a finding; omit to list all.")] = None
    ) -> Digest:
        """Explain a kind of finding: mechanism, signs, remedy, and techniques of the lab that fix it."""
        from fathom.diagnosis import kind_called, kinds

        if kind is None:
            return digest.all_kinds(list(kinds().values()))
        return digest.kind(kind_called(kind, "call without a kind to list all"))

    def lab_show(
        self,
        name: Annotated[
            str | None, Field(description="A technique, a group, or a finding; omit to list all.")
        ] = None,
    ) -> Digest:
        """Show a technique, a runnable pair of plain and tuned code: idea, cost, when not to use it.

        The rows of a technique are the lines of its code; several techniques get a row each.
        lab_run proves a technique here.
        """
        from fathom import lab
        from fathom.machine import inventory

        chosen = list(lab.techniques().values())
        if name:
            chosen = lab.naming(name) or lab.chosen([name], listing="lab_show without a name lists all")
        if name and len(chosen) == 1:
            described = {k: v for k, v in lab.described(chosen[0]).items() if k != "sources"}
            return Digest(digest.known(described), chosen[0].code.splitlines())
        machine = inventory()
        at = lab.here(machine)
        return digest.techniques([lab.listed(t, machine["fingerprint"], at, lambda _: None) for t in chosen])

    def machine(
        self,
        show: Annotated[
            Literal["inventory", "checks"], Field(description="Part of it to show.")
        ] = "inventory",
    ) -> Digest:
        """Show this machine: inventory and measured ceilings, or the settings of the host that cost speed."""
        from fathom.machine import described, with_datasheet
        from fathom.machine.checks import examine, this_host

        if show == "inventory":
            return digest.inventory(with_datasheet(described([])))
        return digest.checks(examine(this_host()))

    def opened(self, text: str) -> Sounding:
        """Return a sounding in the roots, kept open until it changes."""
        path = self.roots.sounding(text)
        key = (str(path), path.stat().st_mtime_ns)
        if key not in self._open:
            self._open[key] = open(path)
        self._open.move_to_end(key)
        while len(self._open) > OPEN:
            self._open.popitem(last=False)
        return self._open[key]
