"""How often the diagnosis is right about faults that it was not built on, and how far its gains are off.

The well-tuned form of each program is the outcome of all its faults. Programs whose recordings were looked at
while rules were changed (`seen` in labels.yaml) are told apart from the others, which are still held out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.unrelated.planted import KEPT, planted
from faults.examined import recorded
from faults.kept import archives
from faults.score import NOTHING, Case, Gain, accuracy, false_findings, gains, place, prediction

RESULTS = Path(__file__).parents[1] / "results" / "unrelated.json"


def bench() -> str:
    """Examine every recording, write the figures, return them as a table."""
    if not archives(KEPT):
        return f"No recordings in {KEPT}: see benchmarks/unrelated/record.py."
    result = score(recorded(KEPT, planted))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return table(result)


def score(cases: list[Case]) -> dict[str, Any]:
    """A row a fault, and what they come to together."""
    faulty = [case for case in cases if case.form == "faulty"]
    found = {gain.case: gain for gain in gains([*faulty, *twins(cases)])}
    return {
        "recordings": len(cases),
        "accuracy": accuracy(faulty),
        "prediction": prediction(list(found.values())),
        "groups": groups(faulty, found),
        "false": false_findings(cases),
        "faults": [row(case, found.get(case.name)) for case in faulty],
    }


def groups(faulty: list[Case], found: dict[str, Gain]) -> list[dict[str, Any]]:
    """The figures of programs that were never looked at, and those of programs that were."""
    return [group(words, cases, found) for words, cases in apart(faulty) if cases]


def apart(cases: list[Case]) -> Iterator[tuple[str, list[Case]]]:
    for words, seen in (("never looked at", False), ("looked at while rules were changed", True)):
        yield words, [case for case in cases if bool(case.program.seen) == seen]


def group(words: str, cases: list[Case], found: dict[str, Gain]) -> dict[str, Any]:
    """Of one group; what was seen of each of its programs where anything was."""
    return {
        "group": words,
        "programs": {case.program.group: case.program.seen for case in cases},
        "accuracy": accuracy(cases),
        "prediction": prediction([found[case.name] for case in cases if case.name in found]),
    }


def twins(cases: list[Case]) -> Iterator[Case]:
    """The well-tuned form of its program beside each fault."""
    tuned = {case.program.group: case for case in cases if case.form == "mended"}
    for case in cases:
        if case.form == "faulty" and case.program.group in tuned:
            yield replace(tuned[case.program.group], program=case.program)


def row(case: Case, gain: Gain | None) -> dict[str, Any]:
    """What was planted, what was found first and where the planted one stands, and its gain."""
    fault = case.program.fault
    answers = [one["id"] for one in case.large if one["id"] not in fault.allowed]
    told = {"case": case.program.id, "planted": fault.kind, "first": answers[0] if answers else NOTHING}
    told |= {"rank": place(case), "rank_strictly": place(case, strictly=True), "step_ms": case.step_ms}
    if gain:
        told |= {key: asdict(gain)[key] for key in ("predicted_ms", "low_ms", "high_ms", "realised_ms")}
    return told | {"labelled_ms": fault.share[0] * case.step_ms if case.step_ms else None}


def table(result: dict[str, Any]) -> str:
    """The rows as text, and a line of figures."""
    head = f"{'':<20}{'planted':<32}{'first finding':<32}{'rank':>5}"
    figures = ("step_ms", "predicted_ms", "low_ms", "high_ms", "realised_ms", "labelled_ms")
    head += "".join(f"{name.removesuffix('_ms'):>10}" for name in figures)
    lines = [head + "   ms a step"]
    for one in result["faults"]:
        line = f"{one['case']:<20}{one['planted']:<32}{one['first']:<32}{one['rank'] or '-':>5}"
        lines.append(line + "".join(f"{_number(one.get(name)):>10}" for name in figures))
    lines += [f"false: {one['case']}: {one['finding']}, {_number(one['share'])}" for one in result["false"]]
    lines += [f"{one['group']} ({', '.join(one['programs'])}): {_figures(one)}" for one in result["groups"]]
    known = [row for one in result["groups"] for row in one["programs"].items()]
    lines += [f"{program}: seen {seen}" for program, seen in known if seen]
    return "\n".join([*lines, f"all: {_figures(result)}"])


def _figures(result: dict[str, Any]) -> str:
    told = {**result["accuracy"], **result["prediction"]}
    words = ("first", "third", "error", "coverage", "width")
    return ", ".join(f"{word} {_number(told[word])}" for word in words)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
