"""Cut the ledger into pieces, each with its part of the account, its owner and its bound."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fathom.analysis.communication import CALLS
from fathom.analysis.entries import COLLECTIVES, WORK, Entry, cause_of
from fathom.analysis.results import Device, Finding, Lead, LedgerRow
from fathom.analysis.work import class_of
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.kinds import kinds
from fathom.machine import MEASURED
from fathom.units import MS_PER_S

PEAK, CEILING, NO_CEILING, UNEXPLAINED = "peak", "ceiling", "no ceiling", "unexplained"
NAMED = 0.005  # of the step: a family that loses less is summed with others of its class
ROUNDING = 1e-9  # of a row: what sums of its claims may leave
SMALL_CAUSE = 0.01  # of the step: no finding is expected below it

# The order of the parts, from the peak down.
AT_PEAK, BY_NATURE, PRECISION, NEEDLESS, SLOW, COMMUNICATION, COPY, IDLE = range(8)
STAGES = {"precision": PRECISION, "needless": NEEDLESS}  # of kinds with this part of the account
DIFFERENCES = (Entry.UNATTRIBUTED, Entry.OVERHEAD)  # between the clean step and the recorded work
LAUNCHING = (Entry.DISPATCHING, Entry.LAUNCH_LATENCY, Entry.DEVICE_GAP)
ON_DEVICE = ("compute", "memory")
_IDLE_BOUNDS: dict[str, str] = {
    Entry.INPUT: "input",
    Entry.DISPATCHING: "launch",
    Entry.LAUNCH_LATENCY: "launch",
    Entry.DEVICE_GAP: "launch",
    Entry.FIRST_USE: "first use",
    Entry.HOST_WAITS_FOR_PEERS: "communication",
    Entry.WORKERS: "workers",
    Entry.NO_WORK: "",
    Entry.OWN_HOOKS: "",
    Entry.UNRECORDED: "unknown",
    Entry.UNEXPLAINED: "unknown",
}  # any other cause is the host's
_NEEDS_PLACE = Entry.PYTHON  # says nothing without the function that ran
_PLACED = (_NEEDS_PLACE, Entry.BLOCKED)  # their detail names the function
_IDLE_WORDS: dict[str, str] = {
    Entry.INPUT: "idle: waiting for input",
    Entry.FIRST_USE: "idle: first use of libraries and code",
    Entry.UNRECORDED: "idle: a copy waits for unrecorded work",
    Entry.NO_WORK: "no work requested",
    Entry.UNEXPLAINED: "idle: no cause recorded",
    Entry.BLOCKED: "idle: the host is blocked",
    Entry.OWN_HOOKS: "Fathom's own hooks",
}


class Piece(msgspec.Struct, frozen=True):
    """Milliseconds per step of one row of the ledger, assigned to one part of the account.

    `bound` is one of the verdict's bounds, "" for time without requested work.
    """

    part: str
    owner: str
    bound: str
    stage: int
    ms: float


class Known(msgspec.Struct, frozen=True):
    """Inputs for the pieces of a row: `claims` by row, families with a lead, matrix rates in FLOP/s."""

    step_ms: float
    claims: Mapping[tuple[str, str], list[tuple[Finding, float]]]
    leads: frozenset[str]
    peaks: Mapping[str, float]
    python: str  # the bound of Python between operations
    limited: Mapping[str, str]
    ceilings: str = MEASURED  # their source
    on_processor: bool = False

    @property
    def ceiling(self) -> str:
        """The words for a ceiling of the matrix units."""
        return "measured ceiling" if self.ceilings == MEASURED else "datasheet peak"


def pieces(
    device: Device,
    findings: Iterable[Finding],
    leads: Iterable[Lead],
    peaks: Mapping[str, float],
    limited: Mapping[str, str] | None = None,
) -> list[Piece]:
    """Return pieces that sum to the device's ledger. Claims on the mean step are scaled to the clean step.

    `peaks` are the rates of the matrix units by name (`matmul.bf16`) in FLOP/s; empty if MFU is
    unknown, so that no work counts as done at the peak. `limited` is the limit of each kernel family.
    """
    claims: dict[tuple[str, str], list[tuple[Finding, float]]] = {}
    scale = _to_clean(device)
    for finding in findings:
        for claim in finding.claims:
            row = claim.entry, claim.detail
            claims.setdefault(row, []).append((finding, claim.ms * scale.get(row, 1.0)))
    named = frozenset(lead.where.family or "" for lead in leads)
    step_ms = sum(row.ms for row in device.ledger)
    known = Known(
        step_ms,
        claims,
        named,
        peaks,
        _bound_of_python(device.ledger),
        limited or {},
        device.ceilings,
        device.device == "cpu",
    )
    taking = [row for row in device.ledger if row.ms]
    return [piece for row in taking for piece in _row(row, known) if piece.ms]


def _to_clean(device: Device) -> dict[tuple[str, str], float]:
    """Return factors from rows of the mean step to rows of the clean step; {} if steps are even."""
    clean = {(row.entry, row.detail): row.ms for row in device.ledger}
    rows = {(row.entry, row.detail): row.ms for row in device.mean_ledger}
    return {row: clean.get(row, 0.0) / ms for row, ms in rows.items() if ms > 0}


def _bound_of_python(ledger: list[LedgerRow]) -> str:
    """Return the bound of Python time: launching if it takes no longer than the launches, else the host."""
    took = summed((row.entry, row.ms) for row in ledger)
    launching = sum(took.get(entry, 0.0) for entry in LAUNCHING)
    return "launch" if took.get(_NEEDS_PLACE, 0.0) <= launching else "host"


def _row(row: LedgerRow, known: Known) -> Iterator[Piece]:
    if row.entry in DIFFERENCES or row.ms < 0:
        yield Piece("difference from the profiled steps", UNEXPLAINED, "", IDLE, row.ms)
    elif row.entry in WORK:
        yield from _work(row, known)
    elif row.entry in COLLECTIVES or row.entry == Entry.COPY:
        yield from _moved(row, known)
    else:
        claimed, left = _claimed(row, row.ms, known)
        yield from claimed
        yield _idle(row, left, known)


def _claimed(row: LedgerRow, most: float, known: Known) -> tuple[list[Piece], float]:
    """Return the findings' pieces of at most `most` milliseconds of a row, and the unclaimed time."""
    wanted = known.claims.get((row.entry, row.detail), [])
    total = sum(ms for _, ms in wanted)
    share = min(1.0, most / total) if total > 0 else 0.0
    pieces = [_of_finding(row, finding, ms * share, known) for finding, ms in wanted]
    left = most - total * share
    return pieces, left if left > ROUNDING * most else 0.0


def _of_finding(row: LedgerRow, finding: Finding, ms: float, known: Known) -> Piece:
    kind = kinds().get(finding.id)
    stage = STAGES.get(kind.account if kind else "", _stage(row))
    return Piece(finding.title, f"finding {finding.id}", _bound_of_claim(row, finding, known), stage, ms)


def _stage(row: LedgerRow) -> int:
    if row.entry in WORK:
        return SLOW
    return COMMUNICATION if row.entry in COLLECTIVES else COPY if row.entry == Entry.COPY else IDLE


def _bound_of_claim(row: LedgerRow, finding: Finding, known: Known) -> str:
    """Return the kind's bound that fits the row; work has a bound on the device, waits do not.

    Work of an unknown bound takes the kind's, and "host", which is time outside work, only if the kind has no
    other: a rank that is late because of its host has nothing else. A processor launches nothing, so time
    outside its operations is the host's.
    """
    kind, own = kinds().get(finding.id), _bound(row)
    on_device = row.entry in WORK
    suiting = [bound for bound in (kind.bound if kind else ()) if (bound in ON_DEVICE) == on_device]
    keeps = own in suiting and not cause_of(row.entry)
    if own == "unknown" and not suiting and kind and kind.bound:
        return next((bound for bound in kind.bound if bound != "host"), kind.bound[0])
    bound = own if keeps or not suiting else suiting[0]
    return own if bound == "launch" and known.on_processor and not on_device else bound


def _bound(row: LedgerRow) -> str:
    """Return the bound of a row's time that no finding explains."""
    if row.entry in WORK:
        return _bound_of_work(row)
    if row.entry in COLLECTIVES:
        return "communication"
    if row.entry == Entry.COPY:
        return "copy"
    return _IDLE_BOUNDS.get(row.entry, "host")


def _bound_of_work(row: LedgerRow) -> str:
    if row.is_overhead:
        return "launch"
    if row.bound.startswith(("matmul.", "vector.")):
        return "compute"
    if row.bound:
        return "memory"
    if row.entry == Entry.OPS:  # processors differ too much to go by the name of an op
        return "unknown"
    return "compute" if row.product_flops else class_of(row.detail).bound or "unknown"


def _work(row: LedgerRow, known: Known) -> Iterator[Piece]:
    """Yield the time at the matrix units' peak, the findings' claims, that at the ceiling, and the loss."""
    bound = _bound(row)
    peak = known.peaks.get(row.unit or "", 0.0)
    flops = (row.product_flops - row.recomputed_flops, row.recomputed_flops)
    at_peak, again = (count / peak * MS_PER_S if peak else 0.0 for count in flops)
    ideal = min(at_peak, row.ms)
    yield Piece(f"matrix work at its {known.ceiling}", PEAK, bound, AT_PEAK, ideal)
    claimed, left = _claimed(row, row.ms - ideal, known)
    yield from claimed
    if row.entry == Entry.OPS and re.match(CALLS, row.detail):
        yield Piece("calls of collectives", "cause communication", "communication", COMMUNICATION, left)
        return
    kept = left / (row.ms - ideal) if row.ms > ideal else 0.0
    repeated = min(again, row.ms - ideal) * kept
    yield Piece(f"recomputation at its {known.ceiling}", "cause recomputation", bound, NEEDLESS, repeated)
    left = max(left - repeated, 0.0)  # not below by rounding
    if row.is_overhead:
        yield Piece("operations with hardly any work", "cause overhead", bound, SLOW, left)
        return
    if row.at_ceiling_ms is None:
        yield Piece("work without a known ceiling", NO_CEILING, bound, SLOW, left)
        return
    nature = min(max(row.at_ceiling_ms - ideal - again, 0.0) * kept, left)
    yield Piece(_nature(row, known), CEILING, bound, BY_NATURE, nature)
    yield _slow(row, left - nature, bound, known)


def _nature(row: LedgerRow, known: Known) -> str:
    """Return the reason why a row cannot run at the matrix units' peak."""
    if row.bound.startswith("vector."):
        return "arithmetic outside the matrix units at its ceiling"
    if row.bound.startswith("matmul."):
        return "other matrix work at its ceiling"
    products = " of matrix work" if row.product_flops else ""
    bandwidth = "measured" if known.ceilings == MEASURED else "datasheet's"
    return f"memory traffic{products} at the {bandwidth} bandwidth"


def _slow(row: LedgerRow, ms: float, bound: str, known: Known) -> Piece:
    """Return the loss below the ceiling, by family if it is large, else by class."""
    if row.detail in known.leads or ms >= NAMED * known.step_ms:
        why = known.limited.get(row.detail)
        words = f"{row.detail} below its ceiling" + (f": limited by {why}" if why else "")
        return Piece(words, f"lead {row.detail}", bound, SLOW, ms)
    name = class_of(row.detail).name
    if not name:
        return Piece("small kernels below their ceilings", UNEXPLAINED, bound, SLOW, ms)
    return Piece(f"small {name} kernels below their ceilings", f"kernels {name}", bound, SLOW, ms)


def _moved(row: LedgerRow, known: Known) -> Iterator[Piece]:
    """Yield the time of exposed collectives and copies at the link's ceiling, and beyond it."""
    claimed, left = _claimed(row, row.ms, known)
    yield from claimed
    stage, bound = _stage(row), _bound(row)
    if left < NAMED * known.step_ms:
        small = "copies" if stage == COPY else "communication"
        yield Piece(f"small exposed {small}", f"cause {small}", bound, stage, left)
        return
    name = f"{row.detail} copies" if stage == COPY else f"{row.entry} {row.detail}".strip()
    owner = f"cause {name}"
    at_best = min(row.at_ceiling_ms or 0.0, row.ms) * (left / row.ms)
    yield Piece(f"exposed {name} at the ceiling", owner, bound, stage, at_best)
    waits = row.entry == Entry.WAITING_FOR_PEERS
    beyond = f"exposed {name}" + ("" if waits or row.at_ceiling_ms is None else " below the ceiling")
    yield Piece(beyond, owner, bound, stage, max(left - at_best, 0.0))  # not below by rounding


def _idle(row: LedgerRow, ms: float, known: Known) -> Piece:
    """Return idle time that no finding explains; its cause owns it, except for Python without a place."""
    cause, needs_place = cause_of(row.entry), row.entry == _NEEDS_PLACE
    bound = known.python if needs_place else _bound(row)
    if row.entry == Entry.UNEXPLAINED or not cause:
        return Piece(_IDLE_WORDS[Entry.UNEXPLAINED], UNEXPLAINED, "unknown", IDLE, ms)
    words = _IDLE_WORDS.get(row.entry, row.entry)
    if needs_place and known.on_processor:  # it runs Python, so it is not idle
        words = "Python between operations"
    if needs_place and known.python == "launch" and not row.detail:
        return Piece(words, f"cause {cause}", bound, IDLE, ms)
    if needs_place and not row.detail and ms >= SMALL_CAUSE * known.step_ms:
        return Piece(words, UNEXPLAINED, bound, IDLE, ms)
    placed = row.entry in _PLACED and row.detail
    return Piece(f"{words}: {row.detail}" if placed else words, f"cause {cause}", bound, IDLE, ms)
