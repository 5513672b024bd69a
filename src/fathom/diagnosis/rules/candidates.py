"""Helpers shared by rules: common forms of candidates, sums, and places in the program."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any, TypedDict, TypeVar, cast

from fathom.analysis import CPU
from fathom.analysis.entries import Entry
from fathom.analysis.work import DTYPES
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence
from fathom.diagnosis.signals import Call, Family, Signals, UnknownSignalError, Work
from fathom.units import MS_PER_S

LAUNCHING = (Entry.DISPATCHING, Entry.LAUNCH_LATENCY, Entry.PYTHON)  # entries that shrink with fewer launches
LATE = (Entry.LAUNCH_LATENCY, Entry.DISPATCHING, Entry.PYTHON)  # idle time of a host without its lead
PLACE = ("source", "module", "region", "family")
RARELY = 0.05  # of the mean step: long steps that add less are scatter
Name = TypeVar("Name", bound=Hashable)
MOST_FAMILIES = 32  # in one change: each is matched against all names, and small ones hardly count


def mended(
    signals: Signals,
    *parts: tuple[Collection[Work], float],
    host: Iterable[str] = (),
    place: Iterable[str] = ("source", "module", "family"),
    **fields: Any,
) -> Candidate:
    """Return a candidate about device work, or a processor's ops, and the share of time that each part takes
    once fixed.

    `host` contains further changes. `place` contains the fields that locate most of the first part; ops have
    no family of kernels. The timeline of a processor is not replayed: what its ops take less is the gain.
    """
    claims = [claim for works, factor in parts for claim in claims_of(works, 1 - factor)]
    if on_processor(signals):
        saved = in_mean_step(signals, ms_of(claim for claim in claims if claim.entry == Entry.OPS))
        where = site(parts[0][0], *(field for field in place if field != "family"))
        return Candidate(claims=claims, gain_ms=saved, **where, **fields)
    total = family_totals(signals["kernels.work"])
    shrunk = (change for works, factor in parts for change in shrink(works, total, factor))
    where = site(parts[0][0], *place)
    return Candidate(claims=claims, changes=(*shrunk, *host), **where, **fields)


def saving(saved: dict[str, float], signals: Signals, **fields: Any) -> Candidate:
    """Return a candidate that saves milliseconds of the largest families; `changes` are added to its own."""
    changes = (*shorter(saved, signals), *fields.pop("changes", ()))
    claims = [Claim(Entry.COMPUTE, family, saved[family]) for family in largest_families(saved)]
    return Candidate(claims=claims, changes=changes, **fields)


def shorter(saved: dict[str, float], signals: Signals) -> Iterator[str]:
    """Yield the changes that save these milliseconds of the largest families."""
    total = family_totals(signals["kernels.work"])
    for family in largest_families(saved):
        if family and total.get(family):
            yield f"family:{family}={max(1 - saved[family] / total[family], 0):.6f}"


def largest_families(saved: dict[str, float]) -> list[str]:
    """Return the families with the most milliseconds, the largest first."""
    return sorted(saved, key=lambda family: -saved[family])[:MOST_FAMILIES]


def in_family(family: Family, factor: float, evidence: list[Evidence], **fields: Any) -> Candidate:
    """Return a candidate whose family takes `factor` of its time once fixed; `check` is a command."""
    return Candidate(
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=evidence,
        changes=(f"family:{family.name}={factor:.6f}",),
        check=f"{fields.pop('check', 'fathom dive')} SOUNDING '{family.name[:40]}'",
        family=family.name,
        **fields,
    )


def claims_of(works: Iterable[Work], share: float = 1.0) -> list[Claim]:
    """Return claims of `share` of the work, summed by row of the ledger."""
    taken = summed(((work.entry, work.family), share * work.ms) for work in works)
    return [Claim(entry, detail, ms) for (entry, detail), ms in taken.items()]


def shrink(works: Iterable[Work], total: dict[str, float], factor: float) -> tuple[str, ...]:
    """Return changes after which the work takes `factor` of its time; `total`: the time of each family."""
    largest = sorted(claims_of(works), key=lambda claim: -claim.ms)[:MOST_FAMILIES]
    return tuple(
        _smaller(claim, claim.ms / total[claim.detail], factor)
        for claim in largest
        if claim.detail and total.get(claim.detail)
    )


def _smaller(claim: Claim, share: float, factor: float) -> str:
    name = f"family:{claim.detail}"
    if claim.entry == Entry.COPY:
        name = "family:Memset" if claim.detail == "set" else f"copy:{claim.detail}"
    return f"{name}={max(1.0 - min(share, 1.0) * (1.0 - factor), 0.0):.6f}"


def family_totals(works: Iterable[Work]) -> dict[str, float]:
    """Return the milliseconds per step of each family."""
    return summed((work.family, work.ms) for work in works)


def rows(signals: Signals, *entries: str, share: float = 1.0) -> list[Claim]:
    """Return claims of `share` of the ledger's rows with these entries."""
    return [
        Claim(row.entry, row.detail, share * row.ms) for row in signals["step.ledger"] if row.entry in entries
    ]


def part_of(claims: list[Claim], ms: float) -> list[Claim]:
    """Return claims of `ms` of the time that `claims` have, but at most all of it, in proportion to each."""
    total = ms_of(claims)
    share = min(ms / total, 1.0) if total else 0.0
    return [Claim(claim.entry, claim.detail, share * claim.ms) for claim in claims]


def spent(signals: Signals, *entries: str) -> float:
    """Return the milliseconds per step of these entries."""
    return ms_of(rows(signals, *entries))


def contended(signals: Signals) -> bool:
    """Return whether other programs used up the processors of a program without devices."""
    return on_processor(signals) and bool(signals.get("communication.contended").value)


def undisturbed(signals: Signals) -> float:
    """Return the share of a CPU's profiled step that its clean step takes: calls are slower if profiled."""
    timeline = signals["step.timeline_ms"]
    return min(signals.number("step.mean_ms", timeline) / timeline, 1.0)


def in_mean_step(signals: Signals, ms: float) -> float:
    """Return the milliseconds of the mean step for those of the profiled step on a processor.

    The share of the profiled step holds for the time that records explain, and not for longer steps without
    a known cause.
    """
    recorded = signals["step.timeline_ms"]
    clean: dict[tuple[str, str], float] = signals.get("step.clean_ledger").value or {}
    unknown = sum(ms for (entry, _), ms in clean.items() if entry == Entry.UNATTRIBUTED)
    return ms / recorded * (signals.number("step.mean_ms", recorded) - unknown)


def in_clean_rows(signals: Signals, claims: Iterable[Claim]) -> float:
    """Return the milliseconds of the clean step for claims of the profiled one: equal shares of each row."""
    clean: dict[tuple[str, str], float] = signals.get("step.clean_ledger").value or {}
    profiled = {(row.entry, row.detail): row.ms for row in signals["step.ledger"]}
    shares = (((claim.entry, claim.detail), claim.ms) for claim in claims)
    return sum(ms / profiled[row] * max(clean.get(row, 0.0), 0.0) for row, ms in shares if profiled.get(row))


def stalled(signals: Signals) -> float:
    """Return the milliseconds that rare long steps add to the mean step; 0 if none, or if unknown."""
    ms, mean = signals.get("step.stalled_ms").value, signals.get("step.mean_ms").value
    return float(ms) if ms and mean and ms >= RARELY * mean else 0.0


def ms_of(timed: Iterable[Any]) -> float:
    """Return the sum of `ms` over works, calls or claims."""
    return sum(each.ms for each in timed)


def count_of(counted: Iterable[Any]) -> float:
    """Return the sum of `count` over works or calls."""
    return sum(each.count for each in counted)


def number_of_kernels(works: Iterable[Work]) -> Evidence:
    """Return the last line of evidence of most rules on device work: the number of kernels."""
    return Evidence("number of these kernels", count_of(works), "per step")


def types_of(works: Iterable[Work]) -> str:
    """Return the dtypes of the works' first inputs as text."""
    types = sorted({DTYPES.get(name, name) for work in works for name in work.types[:1]} - {""})
    return ", ".join(types) or "unknown types"


def on_processor(signals: Signals) -> bool:
    """Return whether the program computes on a CPU."""
    return bool(signals.get("step.device").value == CPU)


def rates_of(signals: Signals) -> dict[str, float]:
    """Return the measured ceilings by name; empty if unknown."""
    return signals.get("kernels.ceilings").value or {}


def memory_rate(signals: Signals, reached: float, mine: Iterable[Work]) -> float:
    """Bytes per second: `reached` of the measured ceiling, or the rate of the kernels of `mine`.

    The library's kernel is at least as fast as these kernels, so their rate is used if the ceiling was not
    measured. Raises UnknownSignalError if their bytes are unknown too.
    """
    measured = rates_of(signals).get("memory")
    if measured:
        return reached * measured
    families = {work.family for work in mine}
    known = [row for row in signals["step.ledger"] if row.detail in families and row.bytes and row.ms > 0]
    if not known:
        raise UnknownSignalError(signals.get("kernels.ceilings").why or "the memory ceiling is unknown")
    return MS_PER_S * sum(row.bytes for row in known) / ms_of(known)


def l2_bytes(signals: Signals) -> int:
    """Return the size of the device's L2 cache in bytes; 0 if unknown."""
    return (signals.get("device.gpu").value or {}).get("l2_bytes") or 0


def usual(values: Iterable[tuple[Name | None, float]]) -> Name | None:
    """Return the name (or place) with the largest total weight; None if there are none."""
    weight = summed((name, ms) for name, ms in values if name is not None)
    return max(weight, key=lambda name: weight[name], default=None)


class Site(TypedDict, total=False):
    """Where most of the work is, as fields of a Candidate."""

    source: str | None
    module: str | None
    region: str | None
    family: str | None


def site(works: Collection[Work | Call], *fields: str) -> Site:
    """Return where most of the work is, as Candidate's `source`, `module`, `region` or `family`."""
    usuals = {field: usual((getattr(work, field), work.ms) for work in works) for field in fields}
    return cast(Site, usuals)
