"""Rules, one small file each, in the groups of the kinds: predicates over signals that yield candidates."""

from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, NotAnalysed, Rule, needs, rule, rules

__all__ = ["Candidate", "Claim", "Evidence", "NotAnalysed", "Rule", "needs", "rule", "rules"]
