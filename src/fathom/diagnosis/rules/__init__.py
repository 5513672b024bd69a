"""Rules, one small file each, grouped like the kinds: predicates over signals that yield candidates."""

from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Rule, Unlooked, needs, rule, rules

__all__ = ["Candidate", "Claim", "Evidence", "Rule", "Unlooked", "needs", "rule", "rules"]
