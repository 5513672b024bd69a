"""Apply the rules to both machines, then decide for each kind of result whether it carries over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fathom.machine.compare.facts import Facts, facts
from fathom.machine.compare.headline import headline, summary
from fathom.machine.compare.ratios import ratios
from fathom.machine.compare.readers import Value, value
from fathom.machine.compare.results import ORDER, Comparison, Difference, Kind, Severity, Side, Unknown
from fathom.machine.compare.rules import Rule, rules

UNSAID = "the same, whatever it is"


def compare(
    a: dict[str, Any], b: dict[str, Any], name_a: str = "A", name_b: str = "B", *, itself: bool = False
) -> Comparison:
    """Compare machine file `a`, where a result comes from, with `b`, where it is to be used.

    `itself` says that both are the same recording, so values that it lacks are equal too. Raises
    MachineFileError if one of them is damaged.
    """
    facts_a, facts_b = facts(a, name_a), facts(b, name_b)
    differences, unknown = _differences(facts_a, facts_b, name_a, name_b, itself)
    kinds = [_kind(name, what, differences, unknown) for name, what in _kinds(facts_a, facts_b)]
    ceilings, missing = ratios(facts_a, facts_b, name_a, name_b)
    sides = _side(facts_a, name_a), _side(facts_b, name_b)
    return Comparison(
        a=sides[0],
        b=sides[1],
        headline=headline(sides[0], sides[1], kinds, differences),
        kinds=kinds,
        differences=differences,
        ceilings=ceilings,
        abstained=[*(Unknown(what=rule.what, why=why) for rule, why in unknown), *missing],
    )


def _kinds(a: Facts, b: Facts) -> Iterator[tuple[str, str]]:
    """Yield the kinds of results that apply: some mean nothing without a GPU."""
    known = rules()
    return ((k, what) for k, what in known.kinds.items() if a.gpus or b.gpus or k not in known.of_gpu)


def _side(machine: Facts, name: str) -> Side:
    return Side(
        name=name,
        fingerprint=machine.fingerprint,
        summary=summary(machine),
        gpus=len(machine.gpus),
        measured_ns=machine.measured_ns,
    )


def _differences(
    a: Facts, b: Facts, name_a: str, name_b: str, itself: bool
) -> tuple[list[Difference], list[tuple[Rule, str]]]:
    """Return what was compared, and the rules for which a machine lacks data."""
    differences, unknown = [], []
    for rule in rules().rules:
        if not _applies(rule, a, b):
            continue
        pair = _read(rule, a, b)
        silent = [name for name, read in zip((name_a, name_b), pair, strict=True) if read is None]
        if silent and (itself or (rule.built_in and a.fingerprint == b.fingerprint)):
            differences.append(_alike(rule, *pair))
        elif silent:
            names = [*dict.fromkeys(silent)]
            unknown.append((rule, f"{' and '.join(names)} {'do' if len(names) > 1 else 'does'} not say"))
        else:
            differences.append(_difference(rule, *pair))
    return differences, unknown


def _applies(rule: Rule, a: Facts, b: Facts) -> bool:
    fewest = min(len(a.gpus), len(b.gpus))
    return fewest >= {"": 0, "gpus": 1, "several": 2}[rule.needs]


def _read(rule: Rule, a: Facts, b: Facts) -> tuple[Value, Value]:
    """Read by the first reader that knows both values, else by the last."""
    pair: tuple[Value, Value] = (None, None)
    for name in rule.reads:
        pair = value(name, a), value(name, b)
        if None not in pair:
            break
    return pair


def _alike(rule: Rule, *pair: Value) -> Difference:
    """Describe one machine compared with itself, even where its recording lacks the value."""
    known = next((read for read in pair if read is not None), UNSAID)
    return _difference(rule, known, known)


def _difference(rule: Rule, a: Value, b: Value) -> Difference:
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
    name: str, what: str, differences: Sequence[Difference], unknown: Sequence[tuple[Rule, str]]
) -> Kind:
    """Return the worst severity for this kind; anything unknown must be checked."""
    touching = [d for d in differences if name in d.spoils and d.severity != "carries over"]
    silent = [rule.what for rule, _ in unknown if name in rule.spoils and rule.severity != "carries over"]
    worst = max((ORDER[d.severity] for d in touching), default=0)
    severity: Severity = _SEVERITIES[max(worst, 1 if silent else 0)]
    return Kind(id=name, what=what, severity=severity, because=list(_worst(touching, worst)), unknown=silent)


_SEVERITIES: tuple[Severity, ...] = ("carries over", "check again", "does not carry over")


def _worst(touching: Sequence[Difference], worst: int) -> Iterator[str]:
    """Yield the ids of the differences that decide."""
    return (d.id for d in touching if ORDER[d.severity] == worst)
