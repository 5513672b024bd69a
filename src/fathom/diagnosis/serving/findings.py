"""Compare the facts of a recording with the rules, and predict what each remedy saves per request."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import polars as pl

from fathom.analysis.serving import Entry, Serving, ServingFinding
from fathom.data import load
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.serving.engine import saved
from fathom.diagnosis.serving.facts import facts_of

LEAST = 0.02  # of the mean request: findings whose upper end is below save nothing worth a change
FEWEST = 8  # requests
IN_ENGINE = (Entry.QUEUE, Entry.PREFILL, Entry.DECODE, Entry.WAITING, Entry.SCHEDULER)
OWN = 0.7  # of the claimed time, which a remedy saves at least


class Rule(msgspec.Struct, frozen=True):
    """A row of rules.yaml."""

    id: str
    claims: list[str]
    when: dict[str, float]
    gain: str
    unless: list[str] = []
    shares: list[float] = []
    changes: dict[str, int | None] = {}


@cache
def rules() -> list[Rule]:
    """Return the rules in order: the first of several causes of one entry comes first."""
    return [msgspec.convert(row, Rule) for row in load(__package__, "rules")]


def serving_findings(serving: Serving, tables: dict[str, pl.DataFrame]) -> list[ServingFinding]:
    """Return the findings, largest gain first; none for fewer than FEWEST requests."""
    if serving.requests < FEWEST or not tables["iterations"].height:
        return []
    facts = facts_of(serving, tables)
    raised = [rule for rule in rules() if all(facts[name] >= least for name, least in rule.when.items())]
    ids = {rule.id for rule in raised}
    kept = [rule for rule in raised if not ids.intersection(rule.unless)]
    findings = [_finding(rule, serving, tables, facts) for rule in kept]
    worth = [finding for finding in findings if finding.high_ms >= LEAST * serving.e2e_ms.mean]
    return sorted(worth, key=lambda finding: -finding.gain_ms)


def _finding(
    rule: Rule, serving: Serving, tables: dict[str, pl.DataFrame], facts: dict[str, float]
) -> ServingFinding:
    claims = {row.entry: row.mean_ms for row in serving.ledger if row.entry in rule.claims}
    low, high = _gain(rule, serving, tables, facts, sum(claims.values()))
    mean = serving.e2e_ms.mean
    low, high = min(low, mean), min(high, mean)
    middle = (low + high) / 2
    evidence: dict[str, Any] = {name.replace("_", " "): facts[name] for name in rule.when}
    kind, share = kinds()[rule.id], middle / mean if mean else 0.0
    about = (claims, evidence, kind.action, kind.mechanism.strip())
    return ServingFinding(rule.id, kind.title, middle, low, high, share, *about)


def _gain(
    rule: Rule, serving: Serving, tables: dict[str, pl.DataFrame], facts: dict[str, float], claimed: float
) -> tuple[float, float]:
    """Return both ends of the predicted gain, in milliseconds per request."""
    if rule.gain == "model":
        low, high = saved(tables, rule.changes)
        inside = serving.e2e_ms.mean
        return low * inside, high * inside
    if rule.gain in ("tokenise", "detokenise"):  # it may hold the interpreter, and with it all other requests
        ms = facts[f"{rule.gain}_ms"]
        engine = sum(row.mean_ms for row in serving.ledger if row.entry in IN_ENGINE)
        others = ms * facts["concurrency"] + engine * facts["uneven"]
        return OWN * min(ms, claimed), max(ms, claimed) + others
    return rule.shares[0] * claimed, rule.shares[1] * claimed
