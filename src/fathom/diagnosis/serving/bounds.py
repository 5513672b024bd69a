"""Findings from facts without iterations: of imported spans, and of a server's metrics.

The rules and thresholds are those of recordings. A fact may be unknown: a rule whose known facts all reach
their thresholds, but which has unknown ones, is open, and is reported as not analysed. So is one that an open
rule could explain. Nothing can be replayed, so the gain is a bound: all the time of the entries that the rule
claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fathom.analysis import Abstained
from fathom.analysis.serving import ServingFinding
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.serving.rules import LEAST, Rule, rules

Known = Mapping[str, float | None]


def bounded(facts: Known, means: Mapping[str, float], mean_ms: float) -> list[ServingFinding]:
    """Return the findings whose facts are all known and reach the thresholds, largest bound first.

    `means` has the milliseconds of the mean request by entry of the ledger, and `mean_ms` all of it.
    """
    left = _open(facts)
    raised = {rule.id for rule in rules() if holds(rule, facts)}
    findings = [
        _finding(rule, facts, means, mean_ms)
        for rule in rules()
        if rule.id in raised and not raised.union(left).intersection(rule.unless)
    ]
    return sorted((f for f in findings if f.gain_ms >= LEAST * mean_ms), key=lambda finding: -finding.gain_ms)


def open_rules(facts: Known, source: str) -> list[Abstained]:
    """Return the findings that unknown facts leave open, as one row for each set of these facts."""
    left = _open(facts)
    lacking: dict[str, list[str]] = {}
    for rule in rules():
        others = [name for name in rule.unless if name in left]
        if rule.id in left:
            lacking.setdefault(_names(left[rule.id]), []).append(rule.id)
        elif others and holds(rule, facts):
            unknown = dict.fromkeys(name for other in others for name in left[other])
            lacking.setdefault(f"{_names(unknown)}, so {' or '.join(others)} may explain it", []).append(
                rule.id
            )
    return [Abstained(", ".join(ids), f"{source} do not give {why}") for why, ids in lacking.items()]


def _open(facts: Known) -> dict[str, list[str]]:
    """Return the rules that only unknown facts keep from being raised or not, with these facts."""
    result = {}
    for rule in rules():
        unknown = [name for name in rule.when if facts.get(name) is None]
        known = ((name, least) for name, least in rule.when.items() if name not in unknown)
        if unknown and all(_reaches(facts, *limit) for limit in known):
            result[rule.id] = unknown
    return result


def _names(facts: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in facts)


def holds(rule: Rule, facts: Known) -> bool:
    """Return whether all facts of the rule are known and reach their thresholds."""
    return all(_reaches(facts, name, least) for name, least in rule.when.items())


def _reaches(facts: Known, name: str, least: float) -> bool:
    value = facts.get(name)
    return value is not None and value >= least


def _finding(rule: Rule, facts: Known, means: Mapping[str, float], mean_ms: float) -> ServingFinding:
    claims = {entry: means[entry] for entry in rule.claims if means.get(entry)}
    repeated = facts.get("repeated_share") if rule.change.repeated else None
    most = min(sum(claims.values()), mean_ms) * min(1.0 if repeated is None else repeated, 1.0)
    kind = kinds()[rule.id]
    evidence = {name.replace("_", " "): facts[name] or 0.0 for name in rule.when}
    about = (claims, evidence, kind.action, kind.mechanism.strip())
    share = most / mean_ms if mean_ms else 0.0
    return ServingFinding(rule.id, kind.title, most, 0.0, most, share, *about, at_most=True)
