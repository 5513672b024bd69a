"""The verdict: one sentence on the bound of the step, and the first remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fathom.analysis import CPU
from fathom.analysis.entries import DISTORTED, WORK, Entry
from fathom.analysis.results import NO_CEILING_FOR, Device, Finding, Verdict
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.verdict.pieces import NO_CEILING, ON_DEVICE, UNEXPLAINED, Piece
from fathom.machine import DATASHEET, DOUBTFUL, MISSING

HIDING = 2 / 3  # of the device's work: from there on a wait bounds the step (docs/decisions/0015-verdict.md)
HALF = 0.5  # of the largest gain
MAINLY = 0.5  # of the work without a ceiling: one op with more is named
KNOWN = 0.25  # of the step: a known wait of this share is named, though more time has no known bound
AT_LEAST = "at least "
MODELLED = 0.9  # of the device's work: if the ceilings of less are known, the share is a lower bound
WORTH = 0.1  # of the step: less time without requests is not worth a word
BEYOND = 1.1  # times the step: a larger share is not of this step
LEAST_EXPLAINED = 0.01  # of the step: a finding with less time of the bound does not explain it
LEAST = 0.0005  # of the peak or the speed of light: less is not worth a word
_PHRASES = {
    "input": "Input-bound: {who} waits for the next batch for {share} of {step}",
    "host": "Host-bound: {who} waits for the host for {share} of {step}",
    "launch": "Launch-bound: {who} waits for kernel launches for {share} of {step}",
    "first use": "Starting up: libraries and code are loading for {share} of {step}",
    "communication": "Communication-bound: exposed communication takes {share} of {step}",
    "workers": "The engine waits for its workers, which run the model, for {share} of {step}",
    "copy": "Copy-bound: exposed copies take {share} of {step}",
    "memory": "Memory-bound: work limited by memory bandwidth takes {share} of {step}",
    "compute": "Compute-bound: arithmetic takes {share} of {step}",
    "unknown": "The recording does not show what bounds {step}",
}

_WARM_UP = "Record later steps, with torch.profiler.schedule(wait=5, warmup=5, active=3) or with fathom run."
_WORKERS = "See their steps with fathom report --rank N."
_WITHOUT = "work without a known ceiling"
_UNKNOWN_WORK = "its FLOPs or bytes are unknown"
_NO_CEILING = {  # reasons, by the state of the ceilings
    MISSING: ", because the machine's ceilings were never measured",
    DOUBTFUL: ", because the machine was busy when its ceilings were measured",
}
_MEASURE = {
    MISSING: "Measure the machine's ceilings with fathom machine measure, while nothing else runs.",
    DOUBTFUL: "Measure them again with fathom machine measure, while nothing else runs.",
}
_OF_CPU = {
    "host": "Host-bound: work outside the framework's operations takes {share} of {step}",
    "launch": "Overhead-bound: operations with hardly any work take {share} of {step}",
}


def bounds_ms(
    pieces: Iterable[Piece], findings: Iterable[Finding] = (), stalled_ms: float = 0.0
) -> dict[str, float]:
    """Return the milliseconds by bound, without time in which no work was requested.

    `stalled_ms` is the time that rare long steps add to the mean. The ledger has usual steps only, so if the
    gain of a finding exceeds its claims, the cause is in the long steps.
    """
    pieces = list(pieces)
    claimed = summed((piece.owner, piece.ms) for piece in pieces)
    total = summed((piece.bound, piece.ms) for piece in pieces if piece.bound)
    for finding in findings:
        rare = min((finding.gain_ms or 0.0) - claimed.get(f"finding {finding.id}", 0.0), stalled_ms)
        kind = kinds().get(finding.id)
        if rare > 0 and kind and kind.bound:
            stalled_ms -= rare
            total[kind.bound[0]] = total.get(kind.bound[0], 0.0) + rare
    return total


def bound_of(total: dict[str, float]) -> str:
    """Return the bound of a step.

    Device work is compared with each kind of wait. Kernels overlap with a late host or loader, so a wait
    already sets the pace if it is as long as HIDING of the work. If work is the bound, its larger part
    decides. Time without a known bound decides only if it is longer than the work and no known wait is long.
    """
    working = sum(total.get(bound, 0.0) for bound in ON_DEVICE)
    waits = {bound: ms for bound, ms in total.items() if bound not in ON_DEVICE}
    wait = max(waits, key=lambda bound: waits[bound], default="unknown")
    if wait == "unknown" and (known := _known(total, HIDING * working)):
        return known
    if waits.get(wait, 0.0) >= (working if wait == "unknown" else HIDING * working):
        return wait if waits.get(wait) else "unknown"
    return max(ON_DEVICE, key=lambda bound: total.get(bound, 0.0))


def _known(total: dict[str, float], least_ms: float) -> str:
    """Return the longest known wait if it takes at least KNOWN of the step and `least_ms`, else ""."""
    waits = {bound: ms for bound, ms in total.items() if bound not in (*ON_DEVICE, "unknown")}
    most = max(waits, key=lambda bound: waits[bound], default="")
    return most if most and waits[most] >= max(KNOWN * sum(total.values()), least_ms) else ""


def verdict_of(
    device: Device, pieces: Sequence[Piece], findings: Sequence[Finding], stalled_ms: float, noun: str
) -> Verdict:
    """Return the verdict on the step, or `noun`, of the device's ledger, which consists of `pieces`."""
    total = bounds_ms(pieces, findings, stalled_ms)
    is_known = _unexplained(pieces) <= sum(total.values())
    bound = bound_of(total) if is_known else "unknown"
    top = None if bound == "first use" else _first(bound, pieces, findings)
    alone = bounds_ms(pieces)
    rare_ms = total.get(bound, 0.0) - alone.get(bound, 0.0)
    usual = not is_known or (bound_of(alone) == bound and rare_ms <= alone.get(bound, 0.0))
    if usual:  # the sentence is about the usual step, which rows below zero may shorten
        total, stalled_ms = alone, 0.0
    step_ms = sum(row.ms for row in device.ledger) + stalled_ms
    share = min(_ms_of(bound, total, device) / max(step_ms, 1e-9), 1.0)
    why = _why_unknown(device, pieces) if bound == "unknown" else ""
    return Verdict(
        bound=bound,
        headline=_headline(device, bound, share, None if usual else stalled_ms, noun, why),
        action=_action(device, bound, top, why),
        gain_ms=None if top is None else top.gain_ms,
        finding=None if top is None else top.id,
        explained_by=_explaining(bound, pieces, findings),
    )


def _ms_of(bound: str, total: dict[str, float], device: Device) -> float:
    """Return the time of the bound. A GPU that waits for launches waits for the host, too."""
    launches = bound == "host" and device.device != CPU
    return total.get(bound, 0.0) + (total.get("launch", 0.0) if launches else 0.0)


def _explaining(bound: str, pieces: Sequence[Piece], findings: Sequence[Finding]) -> list[str]:
    """Return the ids of the findings about the bound: those that own part of its time in the ledger."""
    least_ms = LEAST_EXPLAINED * sum(piece.ms for piece in pieces)
    owned = summed((piece.owner, piece.ms) for piece in pieces if piece.bound == bound)
    about = {owner for owner, ms in owned.items() if ms >= least_ms}
    own = [f.id for f in findings if f"finding {f.id}" in about or _without_rows(f, bound)]
    return list(dict.fromkeys(own))


def _without_rows(finding: Finding, bound: str) -> bool:
    """Return whether the finding's kind has the bound, and its time is not in rows of the usual step."""
    kind, claimed = kinds().get(finding.id), sum(claim.ms for claim in finding.claims)
    return bool(kind and bound in kind.bound) and (not claimed or claimed < (finding.gain_ms or 0.0))


def _unexplained(pieces: Iterable[Piece]) -> float:
    """Return the time by which clean steps exceed their recorded parts; 0 if shorter."""
    return max(sum(piece.ms for piece in pieces if piece.owner == UNEXPLAINED), 0.0)


def _first(bound: str, pieces: Sequence[Piece], findings: Sequence[Finding]) -> Finding | None:
    """Return the finding to act on: the largest, or one of the verdict's bound that saves half as much."""
    costly = [f for f in findings if f.gain_ms or (f.gain_ms is None and (f.claims or f.unpredicted))]
    owners = {piece.owner for piece in pieces if piece.bound == bound}
    own = next((finding for finding in costly if f"finding {finding.id}" in owners), None)
    most = max((finding.gain_ms or 0.0 for finding in costly), default=0.0)
    if own is not None and (own.gain_ms or 0.0) >= HALF * most:
        return own
    return costly[0] if costly else None


def _remedy(finding: Finding) -> str:
    kind = kinds().get(finding.id)
    action = finding.action or (kind.action if kind else "")
    return f"{action}." if action else ""


def _why_unknown(device: Device, pieces: Iterable[Piece]) -> str:
    """Return the reason for most of the time without a known bound; "" if it has several."""
    step_ms = sum(row.ms for row in device.ledger)
    longer = sum(row.ms for row in device.ledger if row.entry == Entry.UNATTRIBUTED)
    no_ceiling = sum(piece.ms for piece in pieces if piece.owner == NO_CEILING and piece.bound == "unknown")
    if step_ms <= 0 or max(longer, no_ceiling) < KNOWN * step_ms:
        return ""
    if any(row.detail == DISTORTED and row.ms >= KNOWN * step_ms for row in device.ledger):
        return f": {DISTORTED}, so the host's part of them is unknown"
    if longer > no_ceiling:
        return f": {_duration(longer)} of it is not in the profiled steps"
    return f": {_percent(no_ceiling / step_ms)} of it is {_WITHOUT}{_why_no_ceiling(device)}"


def _why_no_ceiling(device: Device) -> str:
    """Return the op with most of the work without a ceiling, or else the reason for most of it.

    "" if it is unknown, as in older reports.
    """
    if not device.ceilings:
        return _NO_CEILING.get(device.no_ceilings, "")
    lacking = [row for row in device.ledger if row.entry in WORK and row.at_ceiling_ms is None]
    longest = max(lacking, key=lambda row: row.ms, default=None)
    mainly = longest is not None and longest.ms > MAINLY * sum(row.ms for row in lacking)
    if longest is not None and mainly and len(lacking) > 1 and longest.entry == Entry.OPS:
        return f", mainly {longest.detail}"
    reasons = summed(
        (row.unbounded if row.unbounded.startswith(NO_CEILING_FOR) else _UNKNOWN_WORK, row.ms)
        for row in lacking
    )
    most = max(reasons, key=lambda reason: reasons[reason], default=_UNKNOWN_WORK)
    return f", mostly because {most}" if len(reasons) > 1 else f": {most}"


def _action(device: Device, bound: str, top: Finding | None, why: str) -> str:
    """Return the first remedy; without one, where to look, or for the reason `why`, how to know."""
    if bound == "first use":
        return _WARM_UP
    if top:
        return _remedy(top)
    if bound == "workers":
        return _WORKERS
    return _MEASURE[device.no_ceilings or MISSING] if _WITHOUT in why and not device.ceilings else ""


def _headline(device: Device, bound: str, share: float, stalled_ms: float | None, noun: str, why: str) -> str:
    """Return one sentence. With `stalled_ms`, rare long steps decide, so the share is of the mean step."""
    cpu = device.device == CPU
    step_ms = sum(row.ms for row in device.ledger)
    usual = f"{_duration(step_ms)} {noun}"
    step = f"the {usual}" if stalled_ms is None else f"the mean {noun} of {_duration(step_ms + stalled_ms)}"
    phrase = _OF_CPU.get(bound, _PHRASES[bound]) if cpu else _PHRASES[bound]
    said = phrase.format(who="the program" if cpu else "the GPU", share=_percent(share), step=step) + why
    said += _most_exposed(device) if bound == "communication" else ""
    said += _not_requested(device, step_ms) if stalled_ms is None else ""
    reached = list(filter(None, (_mfu(device), _speed_of_light(device, step_ms))))
    which = f"the {noun}" if stalled_ms is None else f"the usual {usual}"
    return f"{said}; {which} reaches {' and '.join(reached)}." if reached else f"{said}."


def _not_requested(device: Device, step_ms: float) -> str:
    """Return the part of the usual step in which no work was requested; "" if it is small."""
    share = sum(row.ms for row in device.ledger if row.entry == Entry.NO_WORK) / max(step_ms, 1e-9)
    return f", and no work was requested for {_percent(share)}" if share >= WORTH else ""


def _most_exposed(device: Device) -> str:
    """Return the operation with most of the exposed communication, and its share of it; "" if unknown."""
    account = device.communication
    if account is None or not account.exposed_ms:
        return ""
    sums: dict[str, float] = {}
    for row in account.collectives:
        sums[row.operation] = sums.get(row.operation, 0.0) + row.exposed_ms
    most = max(sums, key=lambda operation: sums[operation])
    return f", {_percent(min(sums[most] / account.exposed_ms, 1.0))} of it in {most}"


def _mfu(device: Device) -> str:
    used = device.utilisation
    if used is None or used.mfu is None or used.mfu < LEAST:
        return ""
    return f"{AT_LEAST if used.partial else ''}{_percent(used.mfu)} MFU"


def _speed_of_light(device: Device, step_ms: float) -> str:
    if device.at_ceiling_ms is None or not step_ms:
        return ""
    share = device.at_ceiling_ms / step_ms
    if not LEAST <= share <= BEYOND:
        return ""
    published = " from the datasheet" if device.ceilings == DATASHEET else ""
    lower = AT_LEAST if (device.at_ceiling_known or 0.0) < MODELLED else ""
    return f"{lower}{_percent(min(share, 1.0))} of the speed of light{published}"


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.5 else f"{percent:.1f} %"


def _duration(ms: float) -> str:
    for unit, scale in (("s", 1e-3), ("ms", 1.0)):
        if ms * scale >= 1:
            return f"{ms * scale:.3g} {unit}"
    return f"{ms * 1e3:.3g} µs"
