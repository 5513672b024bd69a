"""Results as short structures for programs with little room to read: single facts, and rows.

Names end in their units, as in the JSON of the commands. Values that are unknown are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from fathom.machine.model import Machine
from fathom.report import findings as cards
from fathom.report import heading, own_code
from fathom.report import serving as requests
from fathom.report.ledger import groups, name, step_ms
from fathom.units import NS_PER_MS

if TYPE_CHECKING:
    import polars as pl

    from fathom.analysis.compare import Cause, SoundingComparison
    from fathom.analysis.measures import Portrait
    from fathom.analysis.replay import Prediction
    from fathom.analysis.results import Device, Examination, Finding, Lead
    from fathom.analysis.serving import Serving
    from fathom.diagnosis import Kind
    from fathom.lab import Listed
    from fathom.machine.checks import Result
    from fathom.referee import Verdict

Facts = dict[str, Any]
REASONS = 4  # analyses without data that the overview names
SLOWEST = 3  # requests that the overview explains
MEASURES = 40  # of a kernel family


@dataclass
class Digest:
    """Facts, and rows: dicts, or lists of the values of `columns`."""

    facts: Facts
    rows: list[Any] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)


def known(facts: Mapping[str, Any]) -> Facts:
    """Return the facts without those that are unknown or empty."""
    return {key: value for key, value in facts.items() if value is not None and value not in ("", [], {})}


def overview(examination: Examination) -> Digest:
    """Return the verdict, the step and its rates; rows are the groups and entries of its ledger."""
    step, device = examination.step, _shown(examination)
    facts = {
        "sounding": examination.sounding.name,
        "command": " ".join(examination.sounding.command),
        "settings": examination.sounding.settings,
        "machine": examination.sounding.machine,
        **_verdict(examination),
        "step": known(msgspec.to_builtins(step)),
        **(_reached(device) if device else {}),
        "integrity_ok": examination.integrity.ok,
        "problems": [problem.text or problem.what for problem in examination.integrity.problems],
        **_resources(examination),
        "findings": [finding.id for finding in examination.findings],
        **_requests(examination.serving),
        "not_analysed": _reasons(examination),
    }
    rows = list(_ledger(device)) if device else []
    return Digest(known(facts), rows, ["group", "entry", "ms", "share_percent"] if rows else [])


def _requests(serving: Serving | None) -> Facts:
    """Return the latencies of a server's requests, where their time goes, and the slowest one's story."""
    if serving is None:
        return {}
    return {
        "requests": requests.headline(serving),
        "request_latencies": [
            ": ".join([cells[0], ", ".join(cells[1:])]) for _, cells in requests.latencies(serving)
        ],
        "request_ms": {row.entry: row.mean_ms for row in serving.ledger},
        "slowest_requests": [requests.story(request) for request in serving.slowest[:SLOWEST]],
        "findings_on_requests": [finding.id for finding in serving.findings],
    }


def _on_requests(serving: Serving | None, kind: str | None) -> list[Facts]:
    """Return the findings on requests, whose gains are per request."""
    return [
        known(msgspec.to_builtins(finding))
        for finding in (serving.findings if serving else ())
        if kind in (None, finding.id)
    ]


def _shown(examination: Examination) -> Device | None:
    return next((device for device in examination.devices if device.ledger), None)


def _verdict(examination: Examination) -> Facts:
    verdict = examination.verdict
    if verdict is None or not examination.integrity.ok:
        return {}
    shown = {"bound": verdict.bound, "headline": verdict.headline}
    if beyond := heading.beyond_verdict(examination):
        shown["beyond"] = beyond
    return {"verdict": shown | {"advice": heading.advice(examination), "finding": verdict.finding or "none"}}


def _overhead(device: Device) -> float | None:
    """Return by how much the usual profiled step is longer than the clean one; None without a clean step."""
    if device.added_ms is not None:
        return device.added_ms
    return None if device.observer_ms is None else -device.observer_ms


def _reached(device: Device) -> Facts:
    used = device.utilisation
    return {
        "speed_of_light_ms": device.at_ceiling_ms,
        "mfu_percent": None if used is None or used.mfu is None else 100 * used.mfu,
        "profiling_overhead_ms": _overhead(device),
    }


def _resources(examination: Examination) -> Facts:
    loaded, memory, energy = examination.input, examination.memory, examination.energy
    return {
        "input_wait_ms": loaded.wait_ms if loaded else None,
        "peak_allocated_bytes": memory.peak_allocated_bytes if memory else None,
        "peak_resident_bytes": memory.peak_resident_bytes if memory else None,
        "energy_per_step_j": energy.per_step_j if energy else None,
        "cost": known(msgspec.to_builtins(examination.cost)) if examination.cost else None,
        "kinds_of_steps": [kind.name for kind in examination.kinds] if len(examination.kinds) > 1 else None,
        "functions_in_mean_step": [
            f"{own_code.place(function)} {100 * function.share:.1f} %, lines {own_code.lines(function)}"
            for function in own_code.shown(examination.code)
        ],
        "ranks": len(examination.ranks) or None,
        "late_ranks": [rank.rank for rank in examination.late],
    }


def _reasons(examination: Examination) -> list[str]:
    lines = [f"{entry.what}: {entry.why}" for entry in examination.abstained[:REASONS]]
    left = len(examination.abstained) - len(lines)
    return lines + ([f"and {left} more"] if left > 0 else [])


def _ledger(device: Device) -> Iterator[list[Any]]:
    total = step_ms(device)
    for group in groups(device):
        for entry in group.entries:
            share = 100 * entry.ms / total if total else None
            yield [str(group.kind.title or group.kind.name), name(entry), entry.ms, share]


def account(examination: Examination) -> Digest:
    """Return the parts of the account, which sum to the step."""
    total = sum(part.ms for part in examination.account)
    rows = [
        [part.part, part.ms, 100 * part.ms / total if total else None, part.owner]
        for part in examination.account
    ]
    facts = {"sounding": examination.sounding.name, "total_ms": total, **_verdict(examination)}
    return Digest(facts, rows, ["part", "ms", "share_percent", "owner"])


def findings(examination: Examination, kind: str | None = None) -> Digest:
    """Return the findings, largest gain first; of one `kind`, also mechanism, claims and how to check it."""
    chosen = [finding for finding in examination.findings if kind in (None, finding.id)]
    facts = {
        "sounding": examination.sounding.name,
        "count": len(chosen),
        "step_ms": examination.step.basis_ms,
        "checks_without_data": cards.unseen_of(examination.abstained),
    }
    if not chosen:
        facts["result"] = cards.none(examination)
    elif sum(finding.gain_ms is not None for finding in chosen) > 1:
        facts["gains"] = cards.ALONE
    rows = [_finding(finding, in_full=kind is not None) for finding in chosen]
    return Digest(known(facts), [*_on_requests(examination.serving, kind), *rows])


def _finding(finding: Finding, in_full: bool) -> Facts:
    card = {
        "id": finding.id,
        "title": finding.title,
        "gain_ms": finding.gain_ms,
        "gain_low_ms": finding.low_ms,
        "gain_high_ms": finding.high_ms,
        "gain_percent": None if finding.share is None else 100 * finding.share,
        "observed": finding.observed or None,
        "unpredicted": finding.unpredicted,
        "confidence_percent": 100 * finding.confidence,
        "where": cards.place(finding),
        "evidence": [cards.shown(line) for line in finding.evidence],
        "remedy": finding.remedy.rstrip(),
        "check": finding.check,
        "technique": finding.technique,
        "saves_per_day": msgspec.to_builtins(finding.saves_per_day),
    }
    more = {
        "mechanism": finding.mechanism,
        "claims": [cards.claimed(claim) for claim in finding.claims],
        "changes": finding.changes,
        "references": finding.references,
    }
    return known(card | (more if in_full else {}))


def headroom(examination: Examination) -> Digest:
    """Return kernel families far below their ceilings, without a known cause."""
    facts = {"sounding": examination.sounding.name, "count": len(examination.leads)}
    return Digest(facts, [_lead(lead) for lead in examination.leads])


def _lead(lead: Lead) -> Facts:
    return known({
        "family": lead.where.family, "op": lead.op, "ms": lead.ms, "bound": lead.bound,
        "of_ceiling_percent": 100 * lead.of_ceiling, "gain_ms": lead.gain_ms, "gain_low_ms": lead.low_ms,
        "gain_high_ms": lead.high_ms, "hint": lead.hint, "technique": lead.technique,
    })  # fmt: skip


def families(portraits: Sequence[Portrait]) -> Digest:
    """Return one row per kernel family, longest first."""
    rows = [
        [p.family, p.rank, p.ms, 100 * p.share, p.launches, p.bound, None if p.used is None else 100 * p.used]
        for p in portraits
    ]
    columns = ["family", "rank", "ms", "share_percent", "launches", "bound", "used_percent"]
    return Digest({"count": len(rows)}, rows, columns)


def kernel(portrait: Portrait, others: Sequence[str] = ()) -> Digest:
    """Return one kernel family: its limit and the reasons; rows are its measures, unhealthy ones first."""
    facts = {
        "family": portrait.family, "rank": portrait.rank, "device": portrait.device, "ms": portrait.ms,
        "share_percent": 100 * portrait.share, "launches": portrait.launches, "time_us": portrait.time_us,
        "launch": known(asdict(portrait.launch)),
        "occupancy": known(asdict(portrait.occupancy)) if portrait.occupancy else None,
        "work": known(asdict(portrait.work)), "bound": portrait.bound,
        "used_percent": None if portrait.used is None else 100 * portrait.used,
        "reasons": [reason.text for reason in portrait.reasons],
        "counted_as": portrait.counted_as if portrait.counted_as != portrait.family else None,
        "not_analysed": [f"{entry.what}: {entry.why}" for entry in portrait.abstained],
        "other_matches": list(others),
    }  # fmt: skip
    measures = sorted(portrait.measures, key=lambda measure: (not measure.advice, not measure.resource))
    rows = [[m.title, m.value, m.error, m.unit, m.advice or m.meaning] for m in measures[:MEASURES]]
    return Digest(known(facts), rows, ["measure", "value", "error", "unit", "meaning"] if rows else [])


def table(frame: pl.DataFrame) -> Digest:
    """Return the rows of a query."""
    return Digest({"count": frame.height}, [list(row) for row in frame.iter_rows()], frame.columns)


def prediction(predicted: Prediction) -> Digest:
    """Return a predicted step; rows are the entries of the ledger before and after."""
    facts = {
        "changes": predicted.changes, "rank": predicted.rank, "device": predicted.device,
        "clean_ms": predicted.clean_ms, "clean_predicted_ms": predicted.clean_predicted_ms,
        "clean_gain_ms": msgspec.to_builtins(predicted.clean_gain),
        "profiled_ms": predicted.recorded_ms, "profiled_predicted_ms": predicted.predicted_ms,
        "profiled_gain_ms": predicted.gain_ms, "profiled_gain_ci_ms": predicted.gain_ci_ms,
        "replay_error_percent": None if predicted.error is None else 100 * predicted.error,
        "notes": predicted.notes,
        "not_analysed": [f"{entry.what}: {entry.why}" for entry in predicted.abstained],
    }  # fmt: skip
    rows = [[row.entry, row.before_ms, row.after_ms] for row in predicted.moved]
    return Digest(known(facts), rows, ["entry", "before_ms", "after_ms"] if rows else [])


def comparison(compared: SoundingComparison) -> Digest:
    """Return what changed between two sides; rows are entries, whose changes sum to that of the step."""
    facts = {
        "verdict": compared.verdict, "headline": compared.headline, "ratio": compared.ratio,
        "ratio_ci_99": compared.interval, "kind": compared.kind, "basis": compared.basis,
        "baseline_ms": compared.baseline_ns / NS_PER_MS, "candidate_ms": compared.candidate_ns / NS_PER_MS,
        "change_ms": compared.change_ns / NS_PER_MS, "causes": [_cause(cause) for cause in compared.causes],
        "figures": [
            [figure.of, figure.name, figure.baseline, figure.candidate, figure.unit]
            for figure in compared.figures if figure.moved
        ],
        "not_analysed": [f"{entry.what}: {entry.why}" for entry in compared.abstained],
        "damaged": compared.damaged,
    }  # fmt: skip
    rows = [
        [f"{change.entry} {change.detail}".rstrip(), change.baseline_ns / NS_PER_MS,
         change.candidate_ns / NS_PER_MS, change.change_ms,
         None if change.band_ns is None else change.band_ns / NS_PER_MS, change.moved]
        for change in compared.entries
    ]  # fmt: skip
    columns = ["entry", "baseline_ms", "candidate_ms", "change_ms", "noise_ms", "moved"]
    return Digest(known(facts), rows, columns)


def _cause(cause: Cause) -> Facts:
    return known({
        "kind": cause.kind, "what": cause.what, "baseline": cause.baseline, "candidate": cause.candidate,
        "change_ms": cause.change_ms,
    })  # fmt: skip


def kind(explained: Kind) -> Digest:
    """Return a kind of finding in full."""
    from fathom.diagnosis import described

    return Digest(known(described(explained)))


def all_kinds(every: Sequence[Kind]) -> Digest:
    """Return one row per kind of finding."""
    return Digest({"count": len(every)}, [[k.id, k.title] for k in every], ["id", "title"])


def techniques(listed: Sequence[Listed]) -> Digest:
    """Return one row per technique of the lab."""
    rows = [
        [
            t.name,
            t.saves,
            t.why_not is None,
            t.last.verdict if t.last else None,
            t.last.ratio if t.last else None,
        ]
        for t in listed
    ]
    reasons = sorted({t.why_not for t in listed if t.why_not})
    columns = ["name", "saves", "runs_here", "last_verdict", "last_ratio"]
    return Digest(known({"count": len(rows), "why_not_here": reasons}), rows, columns)


def inventory(machine: Machine) -> Digest:
    """Return the main facts of a machine; rows are its measured ceilings."""
    host = machine.get("host") or {}
    cpu = host.get("cpu") or {}
    facts = {
        "cpu": known({key: cpu.get(key) for key in ("model", "usable_cores", "numa_nodes")}),
        "memory_bytes": host.get("memory_bytes"), "os": host.get("os"), "container": host.get("container"),
        "gpus": [known(gpu) for gpu in machine.get("gpus") or []], "why_no_gpu": machine.get("why_no_gpu"),
        "versions": known(machine.get("versions") or {}), "fingerprint": machine.get("fingerprint"),
    }  # fmt: skip
    rows = [known(row) for row in machine.get("ceilings") or []]
    return Digest(known(facts), rows)


def checks(results: Sequence[Result]) -> Digest:
    """Return the number of checks of the host by result; rows are those that failed, costliest first."""
    shown = ("id", "problem", "observed", "why", "fix", "commands", "costs")
    rows = [{key: getattr(result, key) for key in shown} for result in results if result.status == "fail"]
    counts = Counter(result.status for result in results)
    return Digest({"checks": dict(counts)}, [known(row) for row in rows])


def proof(verdict: Verdict) -> Digest:
    """Return a verdict: `ratio` is the candidate's time over the baseline's; rows are the timings."""
    facts = {
        "verdict": verdict.verdict, "ratio": verdict.ratio, "ratio_ci_99": verdict.interval,
        "margin": verdict.margin, "baseline": verdict.baseline, "candidate": verdict.candidate,
        "device": verdict.device, "seconds_s": verdict.seconds, "notes": verdict.notes,
        "compared_calls": verdict.compared or None, "wrong_calls_below": verdict.fault_rate,
        "refused_because": [f"{r.says} ({r.code}): {r.detail}" for r in verdict.reasons],
        "allowed": [f"{r.says} ({r.code}): {r.detail}" for r in verdict.excused],
    }  # fmt: skip
    rows = [
        [
            t.cache,
            t.decision,
            t.ratio,
            t.interval,
            t.baseline.ns / NS_PER_MS,
            t.candidate.ns / NS_PER_MS,
            t.pairs,
        ]
        for t in verdict.timings
    ]
    columns = ["cache", "decision", "ratio", "ratio_ci_99", "baseline_ms", "candidate_ms", "pairs"]
    return Digest(known(facts), rows, columns if rows else [])
