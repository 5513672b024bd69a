"""Apply the rules of `rules.yaml` to one family's counters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from fathom.analysis.measures.formula import names, value_of
from fathom.data import load


class Fact(msgspec.Struct, frozen=True):
    """The result of one rule; `weight`, roughly per cent of the kernel's time, is only used to sort facts."""

    rule: str
    title: str
    value: float
    unit: str
    holds: bool  # the value is beyond its threshold
    weight: float
    words: str
    remedy: str
    counters: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True):
    """Facts about a family by weight, first those beyond a threshold; `unseen`: rules without counters."""

    family: str
    facts: list[Fact] = msgspec.field(default_factory=list)
    unseen: list[dict[str, str]] = msgspec.field(default_factory=list)

    @property
    def limits(self) -> list[Fact]:
        """The facts beyond their threshold."""
        return [fact for fact in self.facts if fact.holds]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule of rules.yaml, which explains the fields."""

    title: str
    of: list[str]
    words: str
    remedy: str
    unit: str = "%"
    weight: list[str] = []
    above: float = math.inf
    below: float = -math.inf


@cache
def rules() -> dict[str, Rule]:
    """Return the rules of `rules.yaml` by ID; those for stall reasons are expanded from one template."""
    read = load(__package__, "rules")
    template, reasons = read["stalls"]["template"], read["stalls"]["reasons"]
    stalls = {f"stall_{reason}": {**_spelled(template, reason), **words} for reason, words in reasons.items()}
    return msgspec.convert({**read["rules"], **stalls}, dict[str, Rule])


def _spelled(template: dict[str, Any], reason: str) -> dict[str, object]:
    of = [expression.replace("REASON", reason) for expression in template["of"]]
    return {**template, "of": of, "title": template["title"].replace("REASON", reason.replace("_", " "))}


def explain(family: str, counters: Mapping[str, float]) -> Explanation:
    """Apply every rule to the counters (by name, in base units) of `family`."""
    facts, unseen = [], []
    for name, rule in rules().items():
        fact = _fact(name, rule, counters)
        if fact:
            facts.append(fact)
        else:
            unseen.append({"what": rule.title, "why": f"without {_missing(rule, counters)}"})
    facts.sort(key=lambda fact: (not fact.holds, -fact.weight, fact.rule))
    return Explanation(family, facts, unseen)


def _fact(name: str, rule: Rule, counters: Mapping[str, float]) -> Fact | None:
    for expression in rule.of:
        value = value_of(expression, counters)
        if value is None:
            continue
        holds = value > rule.above or value < rule.below
        weights = (value_of(weight, counters) for weight in rule.weight or rule.of)
        weight = next((w for w in weights if w is not None), 0.0)
        words, used = rule.words.format(value=value), names(expression)
        return Fact(name, rule.title, value, rule.unit, holds, max(weight, 0.0), words, rule.remedy, used)
    return None


def _missing(rule: Rule, counters: Mapping[str, float]) -> str:
    wanted = names(rule.of[0])
    return next((name for name in wanted if name not in counters), f"a {wanted[0]} above 0")
