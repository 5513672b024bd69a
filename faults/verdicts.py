"""Whether the verdict names what truly bounds a step, judged by the labels of kinds and by recorded ledgers.

A planted fault adds time to its program, and the mended twin was recorded without it. What bounds the faulty
step is therefore known from two recordings: the twin's ledger by bound, plus what the fault cost (the
difference of both clean steps) under the bounds of its kind (`bound` in diagnosis/kinds, written before any
verdict). Where the fault costs less than what bounds the twin, the twin's bound stays right. A form without a
fault is judged by its ledger.

Bounds within a third of the largest are a tie, and each of them is right. Python between operations counts as
preparing launches, which it mostly is in ordinary programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fathom.analysis.entries import WORK, Entry
from faults.labels import Program, kinds

TIE = 2 / 3  # of the largest
DEVICE = ("compute", "memory")
_ENTRIES = {
    Entry.COPY: "copy",
    Entry.COMMUNICATION: "communication",
    Entry.MOVING_BYTES: "communication",
    Entry.WAITING_FOR_PEERS: "communication",
    Entry.HOST_WAITS_FOR_PEERS: "communication",
    Entry.INPUT: "input",
    Entry.DISPATCHING: "launch",
    Entry.LAUNCH_LATENCY: "launch",
    Entry.DEVICE_GAP: "launch",
    Entry.PYTHON: "launch",
    Entry.NO_WORK: "",
    Entry.UNEXPLAINED: "unknown",
}


@dataclass(frozen=True)
class Judged:
    """One recording's verdict: what it says, and the bounds that are right."""

    case: str
    form: str
    said: str | None
    right: frozenset[str]

    @property
    def hit(self) -> bool:
        return self.said in self.right


def by_bound(ledger: Iterable[Any]) -> dict[str, float]:
    """Milliseconds of a ledger's entries by bound; work whose ceiling is not known is "device"."""
    total: dict[str, float] = {}
    for row in ledger:
        bound = _of_work(row) if row.entry in WORK else _ENTRIES.get(row.entry, "host")
        total[bound] = total.get(bound, 0.0) + row.ms
    return total


def _of_work(row: Any) -> str:
    if row.bound.startswith(("matmul.", "vector.")):
        return "compute"
    return "memory" if row.bound else "device"


def right(total: dict[str, float]) -> frozenset[str]:
    """The bounds of a step with so many milliseconds under each: the largest, and those that tie with it."""
    waits = {bound: ms for bound, ms in total.items() if bound and bound not in (*DEVICE, "device")}
    work = sum(total.get(bound, 0.0) for bound in (*DEVICE, "device"))
    most = max([work, *waits.values()])
    result = {bound for bound, ms in waits.items() if ms >= TIE * most}
    return frozenset(result | (_of_device(total) if work >= TIE * most else set()))


def _of_device(total: dict[str, float]) -> set[str]:
    """Compute, memory or both: what is not known may be either; where that is most, "unknown" is right."""
    unknown = total.get("device", 0.0)
    known = {bound: total.get(bound, 0.0) + unknown for bound in DEVICE}
    result = {bound for bound, ms in known.items() if ms >= TIE * max(known.values())}
    return result | ({"unknown"} if unknown >= sum(total.get(bound, 0.0) for bound in DEVICE) else set())


def right_of_fault(program: Program, twin: dict[str, float], cost_ms: float) -> frozenset[str]:
    """The bounds of a faulty step, from the mended twin's ledger by bound and what the fault costs.

    The fault is known, so that "unknown" is no answer.
    """
    bounds = kinds()[str(program.fault.kind)]["bound"]
    each = [right({**twin, bound: twin.get(bound, 0.0) + max(cost_ms, 0.0)}) for bound in bounds]
    return frozenset[str]().union(*each) - {"unknown"}


def judge(cases: Iterable[Any]) -> list[Judged]:
    """One for each recording with a ledger; a faulty form without a twin is judged by its kind alone."""
    known = list(cases)
    twins = {case.name: case for case in known if case.form == "mended" and case.by_bound}
    result = []
    for case in known:
        if case.by_bound:
            result.append(Judged(case.name, case.form, case.bound, _right(case, twins.get(case.name))))
    return result


def _right(case: Any, twin: Any) -> frozenset[str]:
    if case.form == "mended":
        return right(case.by_bound)
    if twin is None:
        return frozenset(kinds()[str(case.program.fault.kind)]["bound"])
    return right_of_fault(case.program, twin.by_bound, (case.step_ms or 0.0) - (twin.step_ms or 0.0))


def verdicts(cases: Iterable[Any]) -> dict[str, Any]:
    """How many were judged, the share that is right, and those that are wrong."""
    judged = judge(cases)
    wrong = [item for item in judged if not item.hit]
    return {
        "cases": len(judged),
        "verdict": sum(item.hit for item in judged) / len(judged) if judged else None,
        "wrong_verdicts": {f"{item.case} {item.form}": [item.said, sorted(item.right)] for item in wrong},
    }
