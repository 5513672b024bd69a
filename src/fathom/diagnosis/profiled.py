"""Findings about kernels' own flaws in a result of ncu, which has counters of kernels and no step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import polars as pl

from fathom.analysis import Abstained
from fathom.analysis.explaining import Explanation, Fact
from fathom.analysis.results import Evidence, Finding, Where
from fathom.data import load
from fathom.diagnosis.kinds import kinds
from fathom.recorder.dive import explanation_of
from fathom.sounding import Store

TIME = "gpu__time_duration.sum"
SURE = 0.9
NO_STEP = (
    "ncu's result has no step, and its counters do not say how much of the kernel's time the cause takes"
)
NOT_OF_KERNELS = "ncu's counters do not tell it"
_NAMED = 60  # letters of a family that stand for it


@cache
def table() -> dict[str, dict[str, Any]]:
    """Rows of naming.yaml by kind."""
    return load(__package__, "naming")


def profiled(store: Store, families: list[str]) -> tuple[list[Finding], list[Abstained]]:
    """(findings, those of the longest kernels first; kinds that the counters do not tell, and why).

    No gain is predicted; the kernel's share of all measured kernels' time bounds it.
    """
    told = [explanation_of(store, family) for family in families]
    share = _shares(store)
    found = [one for explanation in told for one in _found(explanation, share.get(explanation.family))]
    found.sort(key=lambda one: (-share.get(one.where.family or "", 0.0), one.id))
    others = (Abstained(f"finding {kind}", NOT_OF_KERNELS) for kind in kinds() if kind not in table())
    return found, [*_unlooked(told), *others]


def _shares(store: Store) -> dict[str, float]:
    """Percent of the measured kernels' time by family; {} where durations were not collected."""
    rows = store.table("counters").filter(counter=TIME, source="ncu").collect()
    times = rows.group_by("family").agg(ns=(pl.col("value") * pl.col("samples").clip(lower_bound=1)).sum())
    whole = times["ns"].sum()
    return {family: 100 * ns / whole for family, ns in times.iter_rows()} if whole else {}


def _found(told: Explanation, share: float | None) -> Iterator[Finding]:
    """One finding a kind of which the family shows anything."""
    for kind, row in table().items():
        facts = [fact for fact in told.limits if fact.rule in row["dive"]]
        if facts:
            yield _finding(kind, told.family, facts, share)


def _finding(kind: str, family: str, facts: list[Fact], share: float | None) -> Finding:
    known = kinds()[kind]
    evidence = [Evidence(f"{fact.words} ({fact.title})", fact.value, fact.unit) for fact in facts]
    if share is not None:
        evidence.append(Evidence("the kernel takes, of the time of all that were measured", share, "%"))
    return Finding(
        id=kind,
        title=known.title,
        where=Where(family=family),
        evidence=evidence,
        claims=[],
        gain_ms=None,
        low_ms=None,
        high_ms=None,
        share=None,
        confidence=SURE,
        mechanism=known.mechanism,
        remedy=known.remedy,
        check=f"fathom kernel SOUNDING '{family[:_NAMED]}'",
        references=list(known.references),
        technique=next(iter(known.techniques), None),
        unpredicted=NO_STEP,
    )


def _unlooked(told: list[Explanation]) -> Iterator[Abstained]:
    """Kinds with a rule that some kernel lacks the counters for, and that no kernel shows."""
    holding = {fact.rule for one in told for fact in one.limits}
    for kind, row in table().items():
        asked = {*row["dive"]}
        if asked & holding:
            continue
        lacking = [asked - {fact.rule for fact in one.facts} for one in told]
        missing = set[str]().union(*lacking)
        if missing:
            count = sum(map(bool, lacking))
            why = f"{count} of {len(told)} kernels have no counters for {', '.join(sorted(missing))}"
            yield Abstained(f"finding {kind}", why)
