"""Add to the account of requests: findings by the rules, shares at the ceiling, and costs."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from fathom.analysis import Abstained
from fathom.analysis.results import Device, Energy, LedgerRow, StepKind
from fathom.analysis.serving import DecodeFloor, Entry, Serving, ServingFinding, from_spans
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.serving.bounds import bounded, holds, open_rules
from fathom.diagnosis.serving.facts import Facts, facts_of, facts_of_spans
from fathom.diagnosis.serving.replay import Replay
from fathom.diagnosis.serving.rules import FEWEST, LEAST, Rule, rules
from fathom.diagnosis.serving.speculation import explained
from fathom.machine import Ceiling, find_ceiling
from fathom.sounding import Store
from fathom.units import MS_PER_S


def serving_findings(serving: Serving, tables: dict[str, pl.DataFrame]) -> list[ServingFinding]:
    """Return the findings, largest gain first; none for fewer than FEWEST requests.

    Of imported spans, which have no iterations to replay, a gain is the most that the remedy can save.
    """
    if serving.requests < FEWEST:
        return []
    if from_spans(tables):
        means = {row.entry: row.mean_ms for row in serving.ledger}
        return bounded(facts_of_spans(serving, tables), means, serving.e2e_ms.mean)
    if not tables["iterations"].height:
        return []
    facts = facts_of(serving, tables)
    raised = [rule for rule in rules() if holds(rule, facts)]
    replay, least = Replay(tables), LEAST * serving.e2e_ms.mean
    findings = {rule.id: _finding(rule, serving, replay, facts) for rule in raised}
    worth = {name for name, finding in findings.items() if finding.gain_ms >= least}
    kept = [findings[rule.id] for rule in raised if rule.id in worth and not worth.intersection(rule.unless)]
    return sorted(kept, key=lambda finding: -finding.gain_ms)


def _finding(rule: Rule, serving: Serving, replay: Replay, facts: Facts) -> ServingFinding:
    claims = {row.entry: row.mean_ms for row in serving.ledger if row.entry in rule.claims}
    gain, low, high = replay.saves(rule.change)
    kind, mean = kinds()[rule.id], serving.e2e_ms.mean
    evidence = {name.replace("_", " "): facts[name] or 0.0 for name in rule.when}
    about = (claims, evidence, kind.action, kind.mechanism.strip())
    return ServingFinding(rule.id, kind.title, gain, low, high, gain / mean if mean else 0.0, *about)


def serving_abstained(serving: Serving, tables: dict[str, pl.DataFrame]) -> list[Abstained]:
    """Return the findings that spans or iterations leave open, with the facts that they lack."""
    spans = from_spans(tables)
    if serving.requests < FEWEST:
        return [Abstained("causes that lengthen requests", f"fewer than {FEWEST} requests")] if spans else []
    if spans:
        return open_rules(facts_of_spans(serving, tables), "spans")
    if not tables["iterations"].height:
        return []
    facts = facts_of(serving, tables)
    return explained(open_rules(facts, "iterations"), 1.0 - (facts["rejected_share"] or 0.0))


def join(serving: Serving, devices: Sequence[Device], kinds: Sequence[StepKind]) -> None:
    """Set the shares at the ceiling of the iterations' kinds, and of the slowest requests' prefills."""
    shares = dict(_shares(devices, kinds))
    for iteration in serving.iterations:
        iteration.at_ceiling = shares.get(iteration.kind)
    reads = shares.get("prefill", shares.get("mixed"))
    if reads is not None:
        for request in serving.slowest:
            request.at_ceiling_ms = reads * request.entries.get(Entry.PREFILL, 0.0)


def set_costs(serving: Serving, store: Store, ceilings: Sequence[Ceiling], energy: Energy | None) -> None:
    """Set tokens per joule, and the floor that reading the weights sets for decodes."""
    known = [store.table("iterations", rank).collect()["weights"].drop_nulls() for rank in store.ranks]
    serving.decode_floor = decode_floor(serving, next((w[0] for w in known if len(w)), None), ceilings)
    watts = (energy.mean_power_w or energy.host_mean_power_w) if energy else None
    serving.tokens_per_joule = serving.tokens_per_s / watts if watts and serving.tokens_per_s else None


def decode_floor(serving: Serving, weights: int | None, ceilings: Sequence[Ceiling]) -> DecodeFloor | None:
    """Return the least time of a decode; None if weights, bandwidth or decodes are not known."""
    bandwidth = find_ceiling(ceilings, "hbm.read") or find_ceiling(ceilings, "host.read")
    decodes = next((kind for kind in serving.iterations if kind.kind == "decode"), None)
    if not weights or bandwidth is None or decodes is None or not decodes.p50_ms:
        return None
    ms = MS_PER_S * weights / bandwidth.value
    rate = MS_PER_S * decodes.requests / ms
    return DecodeFloor(weights, bandwidth.value, bandwidth.id, ms, min(ms / decodes.p50_ms, 1.0), rate)


def _shares(devices: Sequence[Device], kinds: Sequence[StepKind]) -> list[tuple[str, float]]:
    """Return the share of each kind's time that its modelled work needs at the ceilings."""
    rows = [(kind.name, devices[0].ledger if kind.used and devices else kind.ledger) for kind in kinds]
    return [(name, _share(ledger)) for name, ledger in rows if any(row.at_ceiling_ms for row in ledger)]


def _share(ledger: Sequence[LedgerRow]) -> float:
    total = sum(row.ms for row in ledger)
    return min(sum(row.at_ceiling_ms or 0.0 for row in ledger) / total, 1.0) if total else 0.0
