"""How often the diagnosis is right about faults that it was not built on, and how far its gains are off.

The well-tuned form of each program is the outcome of all its faults. Programs whose recordings were read
while rules were changed (`seen` in labels.yaml) are separate from the others, which are still held out.
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
    by_case = {gain.case: gain for gain in gains([*faulty, *twins(cases)])}
    return {
        "recordings": len(cases),
        "accuracy": accuracy(faulty),
        "prediction": prediction(list(by_case.values())),
        "groups": groups(faulty, by_case),
        "false": false_findings(cases),
        "faults": [row(case, by_case.get(case.name)) for case in faulty],
    }


def groups(faulty: list[Case], result: dict[str, Gain]) -> list[dict[str, Any]]:
    """The figures of programs that are held out, and those of programs that were seen."""
    return [group(words, cases, result) for words, cases in separated(faulty) if cases]


def separated(cases: list[Case]) -> Iterator[tuple[str, list[Case]]]:
    for words, seen in (("held out", False), ("seen while rules were changed", True)):
        yield words, [case for case in cases if bool(case.program.seen) == seen]


def group(words: str, cases: list[Case], result: dict[str, Gain]) -> dict[str, Any]:
    """Of one group; what was seen of each of its programs where anything was."""
    return {
        "group": words,
        "programs": {case.program.group: case.program.seen for case in cases},
        "accuracy": accuracy(cases),
        "prediction": prediction([result[case.name] for case in cases if case.name in result]),
    }


def twins(cases: list[Case]) -> Iterator[Case]:
    """The well-tuned form of its program beside each fault."""
    tuned = {case.program.group: case for case in cases if case.form == "mended"}
    for case in cases:
        if case.form == "faulty" and case.program.group in tuned:
            yield replace(tuned[case.program.group], program=case.program)


def row(case: Case, gain: Gain | None) -> dict[str, Any]:
    """The planted fault, the first finding, the place of the planted one, and its gain."""
    fault = case.program.fault
    answers = [item["id"] for item in case.large if item["id"] not in fault.allowed]
    record = {"case": case.program.id, "planted": fault.kind, "first": answers[0] if answers else NOTHING}
    record |= {"rank": place(case), "rank_strictly": place(case, strictly=True), "step_ms": case.step_ms}
    if gain:
        record |= {key: asdict(gain)[key] for key in ("predicted_ms", "low_ms", "high_ms", "realised_ms")}
    return record | {"labelled_ms": fault.share[0] * case.step_ms if case.step_ms else None}


def table(result: dict[str, Any]) -> str:
    """The rows as text, and a line of figures."""
    head = f"{'':<20}{'planted':<32}{'first finding':<32}{'rank':>5}"
    figures = ("step_ms", "predicted_ms", "low_ms", "high_ms", "realised_ms", "labelled_ms")
    head += "".join(f"{name.removesuffix('_ms'):>10}" for name in figures)
    lines = [head + "   ms a step"]
    for fault in result["faults"]:
        line = f"{fault['case']:<20}{fault['planted']:<32}{fault['first']:<32}{fault['rank'] or '-':>5}"
        lines.append(line + "".join(f"{_number(fault.get(name)):>10}" for name in figures))
    lines += [
        f"false: {item['case']}: {item['finding']}, {_number(item['share'])}" for item in result["false"]
    ]
    lines += [
        f"{item['group']} ({', '.join(item['programs'])}): {_figures(item)}" for item in result["groups"]
    ]
    known = [row for item in result["groups"] for row in item["programs"].items()]
    lines += [f"{program}: seen {seen}" for program, seen in known if seen]
    return "\n".join([*lines, f"all: {_figures(result)}"])


def _figures(result: dict[str, Any]) -> str:
    record = {**result["accuracy"], **result["prediction"]}
    words = ("first", "third", "error", "coverage", "width")
    return ", ".join(f"{word} {_number(record[word])}" for word in words)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
