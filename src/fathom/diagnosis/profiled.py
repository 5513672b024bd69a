"""Findings about kernels from an ncu result, which has counters but no steps."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import polars as pl

from fathom.analysis import Abstained
from fathom.analysis.explaining import Explanation, Fact
from fathom.analysis.results import Evidence, Finding, Where
from fathom.diagnosis.kinds import declared, kinds, kinds_of_steps
from fathom.recorder.dive import explanation_of
from fathom.sounding import Store

TIME = "gpu__time_duration.sum"
SURE = 0.9
NO_STEP = (
    "ncu's result has no step, and its counters do not say how much of the kernel's time the cause takes"
)
NOT_OF_KERNELS = "ncu's counters cannot show it"
_NAMED = 60  # letters of a family's name that identify it


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules over ncu's counters that show a kind (analysis/explaining/rules.yaml).

    `counters`: recordings without kernel counters cannot show the kind.
    """

    rules: frozenset[str]
    counters: bool = False


ROWS = msgspec.convert(declared("dive"), dict[str, Row])


def profiled(store: Store, families: list[str]) -> tuple[list[Finding], list[Abstained]]:
    """Return the findings, longest kernels first, and the kinds that the counters cannot show, with reasons.

    Gains are not predicted; they are at most the kernel's share of the time of all measured kernels.
    """
    explanations = [explanation_of(store, family) for family in families]
    share = _shares(store)
    findings = [
        finding
        for explanation in explanations
        for finding in _findings_of(explanation, share.get(explanation.family))
    ]
    findings.sort(key=lambda finding: (-share.get(finding.where.family or "", 0.0), finding.id))
    others = (Abstained(f"finding {kind}", NOT_OF_KERNELS) for kind in kinds_of_steps() if kind not in ROWS)
    return findings, [*_unlooked(explanations), *others]


def _shares(store: Store) -> dict[str, float]:
    """Percent of the measured kernels' time by family; {} without durations."""
    rows = store.table("counters").filter(counter=TIME, source="ncu").collect()
    times = rows.group_by("family").agg(ns=(pl.col("value") * pl.col("samples").clip(lower_bound=1)).sum())
    total = times["ns"].sum()
    return {family: 100 * ns / total for family, ns in times.iter_rows()} if total else {}


def _findings_of(explanation: Explanation, share: float | None) -> Iterator[Finding]:
    """Return one finding for each kind that the family's counters show."""
    for kind, row in ROWS.items():
        facts = [fact for fact in explanation.limits if fact.rule in row.rules]
        if facts:
            yield _finding(kind, explanation.family, facts, share)


def _finding(kind: str, family: str, facts: list[Fact], share: float | None) -> Finding:
    known = kinds()[kind]
    evidence = [Evidence(f"{fact.words} ({fact.title})", fact.value, fact.unit) for fact in facts]
    if share is not None:
        evidence.append(Evidence("share of the time of all measured kernels", share, "%"))
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
        technique=known.technique(),
        unpredicted=NO_STEP,
    )


def _unlooked(explanations: list[Explanation]) -> Iterator[Abstained]:
    """Return the kinds that no kernel shows and for which at least one kernel lacks counters."""
    holding = {fact.rule for explanation in explanations for fact in explanation.limits}
    for kind, row in ROWS.items():
        if row.rules & holding:
            continue
        lacking = [row.rules - {fact.rule for fact in explanation.facts} for explanation in explanations]
        missing = set[str]().union(*lacking)
        if missing:
            count = sum(map(bool, lacking))
            why = f"{count} of {len(explanations)} kernels have no counters for {', '.join(sorted(missing))}"
            yield Abstained(f"finding {kind}", why)
