"""Right and wrong in the answers about each program."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.ordinary.runs import FAULTY, LARGE, MENDED, Outcome

NOTHING = "-"
SLOWER = 1.05  # a remedy that makes steps this much longer does harm
COLUMNS = ("first", "place", "bound", "inside", "mended_clean", "no_harm")
READ_FROM = {"first": "first_finding", "place": "source", "bound": "verdict_bound"}


def row(seen: Outcome) -> dict[str, Any]:
    """One program: what was found, what was measured, and whether they agree."""
    label, faulty = seen.label, seen.examined[FAULTY]
    others = set(label.allowed) - set(label.kinds)
    findings = [finding for finding in faulty["findings"] if finding["id"] not in others]
    causes = [finding for finding in findings if finding["id"] in label.kinds]
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
        "recorded_clean_ms": {form: item["step"]["clean_ms"] for form, item in seen.examined.items()},
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
    """The gain of the mended form in unrecorded steps, with the spread over the runs."""
    faulty, mended = seen.clean[FAULTY], seen.clean[MENDED]
    return {
        "realised_ms": statistics.median(faulty) - statistics.median(mended),
        "realised_low_ms": min(faulty) - max(mended),
        "realised_high_ms": max(faulty) - min(mended),
    }


def prediction(causes: list[dict[str, Any]]) -> dict[str, float | None]:
    """Of all findings that name the cause: they claim different milliseconds."""
    keys = {"predicted_ms": "gain_ms", "low_ms": "low_ms", "high_ms": "high_ms"}
    known = [cause for cause in causes if cause["gain_ms"] is not None]
    return {name: sum(item[key] for item in known) if known else None for name, key in keys.items()}


def inside(gain: dict[str, float], predicted: dict[str, float | None]) -> bool:
    """Whether the realised gain is in the predicted interval."""
    low, high = predicted["low_ms"], predicted["high_ms"]
    return low is not None and high is not None and low <= gain["realised_ms"] <= high


def false_findings(seen: Outcome) -> list[str]:
    """Large findings of the mended form that nothing in it justifies."""
    return [
        f"{finding['id']} {finding['share']:.0%}"
        for finding in seen.examined[MENDED]["findings"]
        if (finding["share"] or 0) > LARGE and finding["id"] not in seen.label.allowed
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
    passed = {column: sum(good(item, column) for item in rows) for column in COLUMNS}
    return {column: f"{number} of {len(rows)}" for column, number in passed.items()}


def good(item: dict[str, Any], column: str) -> bool:
    return item[column] in ("line", "function") if column == "place" else bool(item[column])


def table(rows: list[dict[str, Any]]) -> str:
    """A line a program, then the figures."""
    head = f"{'':<14}{'first finding':<28}{'place':<10}{'bound':<14}{'step ms':>16}{'gain ms':>9}  interval"
    lines = [head]
    for item in rows:
        steps = f"{item['clean_ms'][FAULTY]:.1f} -> {item['clean_ms'][MENDED]:.1f}"
        interval = NOTHING if item["low_ms"] is None else f"[{item['low_ms']:.1f}, {item['high_ms']:.1f}]"
        marks = [_mark(item, "first", 28), _mark(item, "place", 10, item["place"]), _mark(item, "bound", 14)]
        end = f"{steps:>16}{item['realised_ms']:>9.1f}  {interval}{'' if item['inside'] else ' !'}"
        lines.append(f"{item['program']:<14}{''.join(marks)}{end}")
        lines += [f"{'':<14}mended form: {false}" for false in item["false_in_mended"]]
        lines += [f"{'':<14}harm: {harm}" for harm in item["harmful"]]
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in figures(rows).items())])


def _mark(item: dict[str, Any], column: str, width: int, text: str | None = None) -> str:
    said = text or str(item[READ_FROM[column]])
    return f"{said if good(item, column) else said + ' !':<{width}}"
