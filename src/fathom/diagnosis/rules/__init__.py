"""Rules: functions of signals that yield candidates. Each is in one small file, in its kind's group."""

from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, NotAnalysed, Rule, needs, rule, rules
