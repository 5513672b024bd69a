"""Apply the rules to both machines, then decide for each kind of result whether it carries over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from fathom.machine.ceilings import Ceiling
from fathom.machine.compare.contract import (
    CHECK,
    KEPT,
    LOST,
    ORDER,
    CeilingRatio,
    ComparedMachine,
    Difference,
    MachineComparison,
    ResultKind,
    Unknown,
)
from fathom.machine.compare.facts import Facts, facts
from fathom.machine.compare.rules import ComparedProperty, Value, rules, value
from fathom.machine.model import Machine

UNSAID = "the same, whatever it is"
MOST_CAUSES = 3


def settings_carried(
    kinds: Sequence[ResultKind], named: Mapping[str, str], carries: Mapping[str, str]
) -> list[ResultKind]:
    """Return whether settings carry over: their values by knob, and the kind of result that decides for each.

    Kinds that do not apply to these machines, such as those of a GPU, have to be checked again.
    """
    known = {kind.id: kind for kind in kinds}
    unclear = ResultKind(id="", what="", severity=CHECK, unknown=["a kind of result that applies here"])
    rows = [(knob, value, known.get(carries.get(knob, ""), unclear)) for knob, value in named.items()]
    return [replace(kind, id=knob, what=f"{knob}: {value}") for knob, value, kind in rows]


def settings_lost(a: Machine, b: Machine, named: Mapping[str, str], carries: Mapping[str, str]) -> list[str]:
    """Return the settings proven on machine `a` that do not carry over to `b`. Raises MachineFileError."""
    compared = compare(a, b, "the machine of the settings", "this machine")
    rows = settings_carried(compared.kinds, named, carries)
    return [row.what for row in rows if row.severity == LOST]


def compare(
    a: Machine, b: Machine, name_a: str = "A", name_b: str = "B", *, itself: bool = False
) -> MachineComparison:
    """Compare machine file `a`, where a result comes from, with `b`, where it is to be used.

    `itself` says that both are the same recording, so values that it lacks are equal too. Raises
    MachineFileError if one of them is damaged.
    """
    facts_a, facts_b = facts(a, name_a), facts(b, name_b)
    differences, unknown = _differences(facts_a, facts_b, name_a, name_b, itself)
    known, gpus = rules(), facts_a.gpus or facts_b.gpus
    applying = {name: what for name, what in known.kinds.items() if gpus or name not in known.of_gpu}
    kinds = [_kind(name, what, differences, unknown) for name, what in applying.items()]
    ceilings, missing = ratios(facts_a, facts_b, name_a, name_b)
    sides = _side(facts_a, name_a), _side(facts_b, name_b)
    return MachineComparison(
        a=sides[0],
        b=sides[1],
        headline=headline(sides[0], sides[1], kinds, differences),
        kinds=kinds,
        differences=differences,
        ceilings=ceilings,
        abstained=[*(Unknown(what=rule.what, why=why) for rule, why in unknown), *missing],
    )


def _side(machine: Facts, name: str) -> ComparedMachine:
    return ComparedMachine(
        name=name,
        fingerprint=machine.fingerprint,
        summary=summary(machine),
        gpus=len(machine.gpus),
        measured_ns=machine.measured_ns,
    )


def _differences(
    a: Facts, b: Facts, name_a: str, name_b: str, itself: bool
) -> tuple[list[Difference], list[tuple[ComparedProperty, str]]]:
    """Return what was compared, and the rules for which a machine lacks data."""
    differences, unknown = [], []
    fewest = min(len(a.gpus), len(b.gpus))
    for rule in rules().rules:
        if fewest < {"": 0, "gpus": 1, "several": 2}[rule.needs]:
            continue
        pair = _read(rule, a, b)
        silent = [name for name, read in zip((name_a, name_b), pair, strict=True) if read is None]
        if silent and (itself or (rule.built_in and a.fingerprint == b.fingerprint)):
            known = next((read for read in pair if read is not None), UNSAID)
            differences.append(_difference(rule, known, known))
        elif silent:
            names = [*dict.fromkeys(silent)]
            unknown.append((rule, f"{' and '.join(names)} {'do' if len(names) > 1 else 'does'} not say"))
        else:
            differences.append(_difference(rule, *pair))
    return differences, unknown


def _read(rule: ComparedProperty, a: Facts, b: Facts) -> tuple[Value, Value]:
    """Read by the first reader that knows both values, else by the last."""
    pair: tuple[Value, Value] = (None, None)
    for name in rule.reads:
        pair = value(name, a), value(name, b)
        if None not in pair:
            break
    return pair


def _difference(rule: ComparedProperty, a: Value, b: Value) -> Difference:
    return Difference(
        id=rule.id,
        what=rule.what,
        a=words(a, rule.unit),
        b=words(b, rule.unit),
        severity=rule.judge(a, b),
        why=rule.why,
        spoils=rule.spoils,
    )


def words(read: Value, unit: str) -> str:
    """Format a value for people: `140 GiB`, `700 W`, `63 GB/s`."""
    if not isinstance(read, int | float):
        return str(read)
    if unit == "B":
        scale, prefix = (2**30, "GiB") if read >= 2**30 else (2**20, "MiB")
        return f"{read / scale:.4g} {prefix}"
    if unit == "B/s":
        return f"{read / 1e9:.3g} GB/s"
    return f"{read:.4g} {unit}".strip()


def _kind(
    name: str, what: str, differences: Sequence[Difference], unknown: Sequence[tuple[ComparedProperty, str]]
) -> ResultKind:
    """Return the worst severity for this kind; anything unknown must be checked."""
    touching = [d for d in differences if name in d.spoils and d.severity != "carries over"]
    silent = [rule.what for rule, _ in unknown if name in rule.spoils and rule.severity != "carries over"]
    worst = max((ORDER[d.severity] for d in touching), default=0)
    decisive = [d.id for d in touching if ORDER[d.severity] == worst]
    severity = list(ORDER)[max(worst, 1 if silent else 0)]
    return ResultKind(id=name, what=what, severity=severity, because=decisive, unknown=silent)


def summary(machine: Facts) -> str:
    """Summarise a machine in a few words: its GPUs, or its processor if it has none."""
    names = [gpu.name or "unknown GPU" for gpu in machine.gpus]
    if not names:
        return f"no GPU, {machine.host.cpu.model or 'unknown CPU'}"
    return ", ".join(f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names))


def headline(
    a: ComparedMachine, b: ComparedMachine, kinds: Sequence[ResultKind], differences: Sequence[Difference]
) -> str:
    """Say in one to three sentences what does not carry over and why, what to check, and what does."""
    lost, check, kept = ([k.what for k in kinds if k.severity == s] for s in (LOST, CHECK, KEPT))
    if len(kept) == len(kinds):
        return f"Everything compared carries over from {a.name} to {b.name}."
    sentences = []
    if lost:
        do = "does" if len(lost) == 1 else "do"
        what = "nothing carries" if len(lost) == len(kinds) else f"{_list(lost)} {do} not carry"
        sentences.append(f"From {a.name} to {b.name} {what} over: {_reason(a, b, differences)}.")
    if check:
        sentences.append(f"Check again{'' if lost else f' from {a.name} to {b.name}'}: {_list(check)}.")
    if kept:
        sentences.append(f"The rest carries over: {_list(kept)}.")
    return " ".join(sentences)


def _reason(a: ComparedMachine, b: ComparedMachine, differences: Sequence[Difference]) -> str:
    """Give the reason: a missing GPU, or the first differences with both values."""
    if bool(a.gpus) != bool(b.gpus):
        with_gpu, without = (a, b) if a.gpus else (b, a)
        return f"{without.name} has no GPU, {with_gpu.name} has {with_gpu.summary}"
    causes = [d for d in differences if d.severity == LOST]
    more = f", and {len(causes) - MOST_CAUSES} more" if len(causes) > MOST_CAUSES else ""
    return "; ".join(f"{d.what} {d.a} → {d.b}" for d in causes[:MOST_CAUSES]) + more


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def ratios(a: Facts, b: Facts, name_a: str, name_b: str) -> tuple[list[CeilingRatio], list[Unknown]]:
    """Return a row for each ceiling that both measured on their first GPU or host, and the unmatched ones."""
    of_a, of_b = _first(a), _first(b)
    bare = [name for name, ceilings in ((name_a, of_a), (name_b, of_b)) if not ceilings]
    if bare:
        why = "; `fathom machine measure` measures them"
        names = [*dict.fromkeys(bare)]
        who = f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} none"
        return [], [Unknown(what="ceilings", why=who + why)]
    shared = [
        (of_a[name], of_b[name]) for name in of_a if name in of_b and of_a[name].unit == of_b[name].unit
    ]
    unmatched = [_only(of_a, of_b, name_a), _only(of_b, of_a, name_b)]
    return [_ratio(x, y) for x, y in shared], [ceilings for ceilings in unmatched if ceilings]


def _first(machine: Facts) -> dict[str, Ceiling]:
    """Return the ceilings of the host and of the first measured GPU, by id."""
    ordered = sorted(machine.ceilings, key=lambda c: -1 if c.device is None else c.device, reverse=True)
    latest = {ceiling.id: ceiling for ceiling in ordered}
    return {c.id: latest[c.id] for c in machine.ceilings}


def _only(ceilings: dict[str, Ceiling], other: dict[str, Ceiling], name: str) -> Unknown | None:
    ids = [i for i in ceilings if i not in other or ceilings[i].unit != other[i].unit]
    return Unknown(what=", ".join(ids), why=f"measured on {name} only") if ids else None


def _ratio(a: Ceiling, b: Ceiling) -> CeilingRatio:
    low, high = b.low / a.high, b.high / a.low
    verdict: Literal["same", "faster", "slower"] = "same"
    if not low <= 1 <= high:
        more = low > 1
        verdict = "faster" if more != (a.unit == "s") else "slower"
    return CeilingRatio(
        id=a.id,
        unit=a.unit,
        a=a.value,
        b=b.value,
        ratio=b.value / a.value,
        low=low,
        high=high,
        verdict=verdict,
    )
