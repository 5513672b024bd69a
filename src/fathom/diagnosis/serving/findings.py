"""Compare the facts of a recording with the rules, and predict what each remedy saves per request."""

from __future__ import annotations

import polars as pl

from fathom.analysis import Abstained
from fathom.analysis.serving import Serving, ServingFinding, from_spans
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.serving.bounds import bounded, open_rules
from fathom.diagnosis.serving.facts import facts_of, facts_of_spans
from fathom.diagnosis.serving.replay import Replay
from fathom.diagnosis.serving.rules import FEWEST, LEAST, Rule, rules


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


def serving_abstained(serving: Serving, tables: dict[str, pl.DataFrame]) -> list[Abstained]:
    """Return the findings that imported spans leave open, with the facts that they lack."""
    if not from_spans(tables):
        return []
    if serving.requests < FEWEST:
        return [Abstained("causes that lengthen requests", f"fewer than {FEWEST} requests")]
    return open_rules(facts_of_spans(serving, tables), "spans")
