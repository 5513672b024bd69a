"""The figures of `score`, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def tables(result: dict[str, Any]) -> str:
    """Bars, confusion, false findings, and predicted against realised gains."""
    parts = [_bars(result["bars"], result["recordings"])]
    for title, text in (
        ("true cause and first finding", _confusion(result["confusion"])),
        ("true cause not first", _lines(f"{n}: {at or 'missing'}" for n, at in _not_first(result))),
        ("expected and missing", _lines(result["accuracy"]["missed"])),
        ("known gaps", _lines(f"{n}: {at or 'missing'}" for n, at in result["accuracy"]["gaps"].items())),
        ("false findings", _lines(map(_false, result["false"]))),
        ("wrong verdicts", _lines(map(_verdict, result["verdicts"]["wrong_verdicts"].items()))),
        ("predicted and realised gain, ms a step", _gains(result["gains"])),
        ("faults that cost under 5 % here", _lines(result["prediction"]["cost_nothing_here"])),
        ("synthetic telemetry", _synthetic(result["synthetic"])),
    ):
        if text:
            parts.append(f"{title}\n{text}")
    return "\n\n".join(parts)


def _bars(bars: dict[str, dict[str, Any]], recordings: int) -> str:
    lines = [f"{recordings} recordings"]
    for bar in bars.values():
        known = {True: "met", False: "NOT met", None: "not measured"}[bar["met"]]
        lines.append(f"  {bar['text']:<50} {_number(bar['figure']):>8}  bar {bar['bar']:<5} {known}")
    return "\n".join(lines)


def _not_first(result: dict[str, Any]) -> Iterable[tuple[str, int | None]]:
    return result["accuracy"]["not_first"].items()


def _confusion(table: dict[str, dict[str, int]]) -> str:
    return _lines(
        f"{truth:<32} " + ", ".join(f"{result} {count}" for result, count in row.items())
        for truth, row in table.items()
    )


def _false(item: dict[str, Any]) -> str:
    part = "" if item["share"] is None else f", {item['share']:.0%} of the step"
    return f"{item['case']} ({item['form']}): {item['finding']}{part}"


def _verdict(item: tuple[str, tuple[str | None, list[str]]]) -> str:
    case, (said, right) = item
    return f"{case}: {said}, not {' or '.join(right)}"


def _gains(rows: list[dict[str, Any]]) -> str:
    head = f"{'':<36}{'step':>9}{'predicted':>11}{'low':>9}{'high':>9}{'realised':>10}{'labelled':>10}"
    keys = ("step_ms", "predicted_ms", "low_ms", "high_ms", "realised_ms")
    widths = (9, 11, 9, 9, 10)
    lines = [
        f"{row['case']:<36}"
        + "".join(f"{_number(row[key]):>{width}}" for key, width in zip(keys, widths, strict=True))
        + f"{_number(None if row['labelled'] is None else row['labelled'] * row['step_ms']):>10}"
        for row in rows
    ]
    return _lines([head, *lines]) if lines else ""


def _synthetic(result: dict[str, Any]) -> str:
    said = result["accuracy"]
    if not said["cases"]:
        return ""
    line = f"{said['cases']} cases: first {_number(said['first'])}, among three {_number(said['third'])}"
    return _lines([line, *map(_false, result["false"])])


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
