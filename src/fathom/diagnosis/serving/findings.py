"""Compare the facts of a recording with the rules, and predict what each remedy saves per request."""

from __future__ import annotations

from functools import cache

import msgspec
import polars as pl

from fathom.analysis.serving import Serving, ServingFinding
from fathom.data import load
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.serving.facts import facts_of
from fathom.diagnosis.serving.replay import Change, Replay

LEAST = 0.02  # of the mean request: findings that save less are not worth a change
FEWEST = 8  # requests


class Rule(msgspec.Struct, frozen=True):
    """A row of rules.yaml."""

    id: str
    claims: list[str]
    when: dict[str, float]
    change: Change
    unless: list[str] = []


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
    replay, least = Replay(tables), LEAST * serving.e2e_ms.mean
    findings = {rule.id: _finding(rule, serving, replay, facts) for rule in raised}
    worth = {name for name, finding in findings.items() if finding.gain_ms >= least}
    kept = [findings[rule.id] for rule in raised if rule.id in worth and not worth.intersection(rule.unless)]
    return sorted(kept, key=lambda finding: -finding.gain_ms)


def _finding(rule: Rule, serving: Serving, replay: Replay, facts: dict[str, float]) -> ServingFinding:
    claims = {row.entry: row.mean_ms for row in serving.ledger if row.entry in rule.claims}
    gain, low, high = replay.saves(rule.change)
    kind, mean = kinds()[rule.id], serving.e2e_ms.mean
    evidence = {name.replace("_", " "): facts[name] for name in rule.when}
    about = (claims, evidence, kind.action, kind.mechanism.strip())
    return ServingFinding(rule.id, kind.title, gain, low, high, gain / mean if mean else 0.0, *about)
