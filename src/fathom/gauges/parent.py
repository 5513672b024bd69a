"""Measure in one child process after another, and keep the results of a process that dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from fathom.gauges.catalogue import BY_ID, LINKS, scope
from fathom.gauges.child import Child, Record, records
from fathom.gauges.contention import refuse_busy, traces
from fathom.gauges.planning import Batch, MeasurementPlan, batches, unplaced
from fathom.machine import Ceiling, Missing

PATIENCE_S, PATIENCE_FACTOR = 90.0, 10  # the first gauge of a process imports torch
DEATHS = 4  # after this many deaths, the remaining gauges of a batch are given up
START_S = 8.0  # time to import torch and create a CUDA context

Outcome = tuple[list[Ceiling], list[Missing]]
StartChild = Callable[[str, Mapping[str, str]], Child]


@dataclass(frozen=True)
class GaugeProgress:
    """The gauge `name` begins on `device`, after about `done_s` of `total_s` seconds of measuring."""

    name: str
    device: int | None
    done_s: float
    total_s: float


Report = Callable[[GaugeProgress], None]


def measure(plan: MeasurementPlan, progress: Report | None = None, start: StartChild = Child) -> Outcome:
    """Measure `plan`, and return the ceilings, and those that could not be measured with their reasons.

    `progress` is called when a gauge begins. Raises BusyGpuError if another process uses a GPU, unless the
    plan has `force`.
    """
    uses_links = any(scope(name) == LINKS for name in plan.ids)
    used = {*plan.devices, *(plan.linked if uses_links else ())}
    if not plan.force:
        refuse_busy(used)
    doubts = {device: traces(device) for device in used}
    missing = [Missing(id=name, why=why) for name, why in unplaced(plan)]
    session = _Session(batches(plan), progress or (lambda _: None), start, doubts)
    ceilings, more = session.run()
    return ceilings, [*missing, *more]


def seconds(plan: MeasurementPlan) -> float:
    """Return the approximate duration of `plan` in seconds."""
    return sum(_expected(batch) for batch in batches(plan))


def _expected(batch: Batch) -> float:
    return START_S + sum(BY_ID[name].seconds for name in batch.job.ids)


class _Session:
    """Run batches and collect their results."""

    def __init__(
        self, todo: list[Batch], report: Report, start: StartChild, doubts: Mapping[int, list[str]]
    ) -> None:
        self.todo, self.report, self.start, self.doubts = todo, report, start, doubts
        self.ceilings: list[Ceiling] = []
        self.missing: list[Missing] = []
        self.done_s, self.total_s = 0.0, sum(map(_expected, todo))

    def run(self) -> Outcome:
        for batch in self.todo:
            self._batch(batch)
        return self.ceilings, self.missing

    def _batch(self, batch: Batch) -> None:
        """Run a batch. A gauge whose process dies or times out is lost; a new process measures the rest."""
        left, deaths = list(batch.job.ids), 0
        while left and deaths < DEATHS:
            why = self._process(batch, left)
            if left:
                self._lose(batch, left.pop(0), why)
                deaths += 1
        for name in left:
            self._lose(batch, name, "the measuring process died repeatedly")
        self.done_s += START_S

    def _process(self, batch: Batch, left: list[str]) -> str:
        """Measure in one process, removing finished gauges from `left`; return why it ended early, or ""."""
        patience = {name: PATIENCE_S + PATIENCE_FACTOR * BY_ID[name].seconds for name in left}
        job = replace(batch.job, ids=tuple(left))
        with self.start(job.to_json(), batch.environment) as child:
            try:
                for record in records(child, patience):
                    self._take(record, batch, left)
            except TimeoutError:
                return f"it took longer than {patience[left[0]]:.0f} s" if left else ""
            return child.ending() if left else ""

    def _take(self, record: Record, batch: Batch, left: list[str]) -> None:
        if "begin" in record:
            self.report(GaugeProgress(record["begin"], batch.device, self.done_s, self.total_s))
        elif "end" in record and left and record["end"] == left[0]:
            self.done_s += BY_ID[left.pop(0)].seconds
        elif "ceiling" in record:
            self._add(record["ceiling"], batch)
        elif "missing" in record:
            self._lose(batch, record["missing"]["id"], record["missing"]["why"])

    def _add(self, record: Record, batch: Batch) -> None:
        ceiling = checked(record)
        if ceiling is None:
            self._lose(batch, str(record.get("id")), "its measurement returned no usable number")
            return
        device = batch.device if ceiling.device is None else ceiling.device
        flags = sorted({flag for number in batch.job.devices for flag in self.doubts.get(number, ())})
        self.ceilings.append(replace(ceiling, device=device, flags=[*ceiling.flags, *flags]))

    def _lose(self, batch: Batch, name: str, why: str) -> None:
        self.missing.append(Missing(id=name, why=why, device=batch.device))


def checked(record: Record) -> Ceiling | None:
    """Return a record as a ceiling; None if a field is wrong or a number is not finite and positive."""
    try:
        ceiling = Ceiling(**record)
        numbers = (ceiling.value, ceiling.low, ceiling.high)
        sound = all(isfinite(number) and number > 0 for number in numbers)
    except TypeError:
        return None
    return ceiling if sound else None
