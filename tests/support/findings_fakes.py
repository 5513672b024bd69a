"""Signals made by hand, and a replay that adds up what changes leave of a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fathom.analysis.communication import Collective, Communication
from fathom.analysis.entries import Entry
from fathom.analysis.replay import Change, Gain
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.rules import Candidate, rules
from fathom.diagnosis.signals import Holds, Product, Signals, Work

DEVICE = {"family": ("compute", "copy"), "all-kernels": ("compute",), "copy": ("copy",)}

NCCL = "ncclDevKernel_AllReduce"

H200 = {
    "matmul.fp32": 51e12,
    "matmul.tf32": 360e12,
    "matmul.bf16": 780e12,
    "HtoD pinned": 55e9,
    "HtoD pageable": 25e9,
}


class AddingReplay:
    """Saves of every row what the changes take of it: a program in which nothing overlaps."""

    def __init__(self, ledger: Iterable[LedgerRow]) -> None:
        self.ledger = list(ledger)
        self.asked: list[list[str]] = []

    def gain(self, changes: Sequence[Change]) -> Gain:
        self.asked.append([str(change) for change in changes])
        saved = sum(row.ms * (1 - self._left(row, changes)) for row in self.ledger)
        return Gain(saved, 0.9 * saved, 1.1 * saved)

    @staticmethod
    def _left(row: LedgerRow, changes: Sequence[Change]) -> float:
        left = 1.0
        for change in changes:
            if _about(change, row):
                left *= 1.0 if change.factor is None else change.factor
        return left


def _about(change: Change, row: LedgerRow) -> bool:
    if change.selector in DEVICE:
        named = not change.pattern or change.matches(row.detail)
        return row.entry in DEVICE[change.selector] and named
    cause = {"sync": "synchronisation", "launch-latency": "launch latency"}.get(
        change.selector, change.selector
    )
    return row.entry == f"idle: {cause}"


def signals(ledger: Sequence[LedgerRow] = (), **known: Any) -> Signals:
    """Signals of a step whose ledger this is; `known` have `_` for the `.` after their group."""
    total = sum(row.ms for row in ledger)
    usual = {
        "step.ms": total,
        "step.timeline_ms": total,
        "step.ledger": list(ledger),
        "step.replay": AddingReplay(ledger),
        "step.rank": 0,
        "step.device": "cuda:0",
        "kernels.count": 500.0,
        "kernels.median_us": 3.0,
        "device.short_pauses_ms": sum(row.ms for row in ledger if row.entry.startswith("idle")),
        "host.holds": Holds(0.0, 0.0, 0, 0.0),
        "host.asked": [],
        "host.calls": [],
    }
    return Signals(usual | {name.replace("_", ".", 1): value for name, value in known.items()})


def idle(cause: str, ms: float) -> LedgerRow:
    return LedgerRow(f"idle: {cause}", "", ms)


def compute(family: str, ms: float, **more: Any) -> LedgerRow:
    return LedgerRow("compute", family, ms, **more)


def collective(exposed: float, total: float | None = None, **more: Any) -> Collective:
    total = exposed if total is None else total
    known = {"operation": "all_reduce", "library": "NCCL", "families": [NCCL], "bytes": 25e6, "dtype": "bf16"}
    times = {"min_ms": total, "median_ms": total, "max_ms": total, "total_ms": total}
    hidden = {"overlapped_ms": total - exposed, "exposed_ms": exposed, "overlap": 1 - exposed / total}
    return Collective(**{**known, "count": 1.0, **times, **hidden, **more})


def account(computing: float, *rows: Collective) -> Communication:
    total, hidden = sum(row.total_ms for row in rows), sum(row.overlapped_ms for row in rows)
    return Communication(
        total, hidden, total - hidden, hidden / total, computing, hidden / computing, list(rows)
    )


def communication(ms: float, entry: str = Entry.COMMUNICATION, detail: str = NCCL) -> LedgerRow:
    return LedgerRow(entry, detail, ms)


def work(family: str, ms: float, *ops: str, entry: str = "compute", **more: Any) -> Work:
    return Work(entry, family, ms, more.pop("count", 1.0), tuple(ops), **more)


def product(
    family: str, ms: float, m: int, n: int, k: int, dtype: str = "bf16", op: str = "aten::mm"
) -> Product:
    return Product(m, n, k, 1, dtype, work(family, ms, op))


def raised(given: Signals, *kinds: str) -> dict[str, Candidate]:
    """The candidates of the rules of these kinds, by kind. Each must be the kind of a rule."""
    mine = [rule for rule in rules() if set(rule.kinds) & set(kinds)]
    assert {kind for rule in mine for kind in rule.kinds} >= set(kinds)
    result = [item for rule in mine for item in rule.look(given)]
    return {item.kind: item for item in result if isinstance(item, Candidate)}
