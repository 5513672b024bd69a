"""What is right and wrong in the answers about each program."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.ordinary.runs import FAULTY, LARGE, MENDED, Outcome

NOTHING = "-"
SLOWER = 1.05  # a remedy that makes steps this much longer does harm
COLUMNS = ("first", "place", "bound", "inside", "mended_clean", "no_harm")
TOLD = {"first": "first_finding", "place": "source", "bound": "verdict_bound"}


def row(seen: Outcome) -> dict[str, Any]:
    """One program: what was found, what was measured, and whether they agree."""
    label, faulty = seen.label, seen.examined[FAULTY]
    others = set(label.allowed) - set(label.kinds)
    findings = [one for one in faulty["findings"] if one["id"] not in others]
    causes = [one for one in findings if one["id"] in label.kinds]
    first = findings[0]["id"] if findings else NOTHING
    source = (causes[0]["where"] or {}).get("source") if causes else None
    bound = (faulty.get("verdict") or {}).get("bound")
    gain, predicted = realised(seen), prediction(causes)
    false, harm = false_findings(seen), harms(seen)
    return {
        "program": label.name,
        "first_finding": first,
        "first": first in label.kinds,
        "source": source,
        "place": label.place(source),
        "verdict_bound": bound,
        "bound": bound in label.bound,
        "clean_ms": {form: statistics.median(runs) for form, runs in seen.clean.items()},
        "recorded_clean_ms": {form: one["step"]["clean_ms"] for form, one in seen.examined.items()},
        **gain,
        **predicted,
        "inside": inside(gain, predicted),
        "false_in_mended": false,
        "mended_clean": not false,
        "remedies_ms": {name: statistics.median(runs) for name, runs in seen.remedies.items()},
        "harmful": harm,
        "no_harm": not harm,
    }


def realised(seen: Outcome) -> dict[str, float]:
    """What mending gained in unrecorded steps, with the spread over the runs."""
    faulty, mended = seen.clean[FAULTY], seen.clean[MENDED]
    return {
        "realised_ms": statistics.median(faulty) - statistics.median(mended),
        "realised_low_ms": min(faulty) - max(mended),
        "realised_high_ms": max(faulty) - min(mended),
    }


def prediction(causes: list[dict[str, Any]]) -> dict[str, float | None]:
    """Of all findings that name the cause: they claim different milliseconds."""
    keys = {"predicted_ms": "gain_ms", "low_ms": "low_ms", "high_ms": "high_ms"}
    known = [one for one in causes if one["gain_ms"] is not None]
    return {name: sum(one[key] for one in known) if known else None for name, key in keys.items()}


def inside(gain: dict[str, float], predicted: dict[str, float | None]) -> bool:
    """Whether the realised gain is in the predicted interval."""
    low, high = predicted["low_ms"], predicted["high_ms"]
    return low is not None and high is not None and low <= gain["realised_ms"] <= high


def false_findings(seen: Outcome) -> list[str]:
    """Large findings of the mended form that nothing in it justifies."""
    return [
        f"{one['id']} {one['share']:.0%}"
        for one in seen.examined[MENDED]["findings"]
        if (one["share"] or 0) > LARGE and one["id"] not in seen.label.allowed
    ]


def harms(seen: Outcome) -> list[str]:
    """Remedies that made their form slower, in every run."""
    slower = []
    for name, runs in seen.remedies.items():
        before = seen.clean[name.partition(" ")[0]]
        if min(runs) > SLOWER * max(before):
            slower.append(f"{name}: {statistics.median(before):.1f} -> {statistics.median(runs):.1f} ms")
    return slower


def figures(rows: list[dict[str, Any]]) -> dict[str, str]:
    """How many programs pass each test; `place` passes at the marked line or in its function."""
    passed = {column: sum(good(one, column) for one in rows) for column in COLUMNS}
    return {column: f"{number} of {len(rows)}" for column, number in passed.items()}


def good(one: dict[str, Any], column: str) -> bool:
    return one[column] in ("line", "function") if column == "place" else bool(one[column])


def table(rows: list[dict[str, Any]]) -> str:
    """A line a program, then the figures."""
    head = f"{'':<14}{'first finding':<28}{'place':<10}{'bound':<14}{'step ms':>16}{'gain ms':>9}  interval"
    lines = [head]
    for one in rows:
        steps = f"{one['clean_ms'][FAULTY]:.1f} -> {one['clean_ms'][MENDED]:.1f}"
        interval = NOTHING if one["low_ms"] is None else f"[{one['low_ms']:.1f}, {one['high_ms']:.1f}]"
        marks = [_mark(one, "first", 28), _mark(one, "place", 10, one["place"]), _mark(one, "bound", 14)]
        end = f"{steps:>16}{one['realised_ms']:>9.1f}  {interval}{'' if one['inside'] else ' !'}"
        lines.append(f"{one['program']:<14}{''.join(marks)}{end}")
        lines += [f"{'':<14}mended form: {false}" for false in one["false_in_mended"]]
        lines += [f"{'':<14}harm: {harm}" for harm in one["harmful"]]
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in figures(rows).items())])


def _mark(one: dict[str, Any], column: str, width: int, text: str | None = None) -> str:
    told = text or str(one[TOLD[column]])
    return f"{told if good(one, column) else told + ' !':<{width}}"
