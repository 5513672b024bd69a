"""How often the diagnosis of the suite is right, and how far its predicted gains are from what came true.

    python -m faults.score [faults/recordings]    # writes benchmarks/results/findings.json

A `Case` is one examined recording: its labels, its findings and its clean step. Nothing here knows a rule.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fathom.analysis.results import LedgerRow
from faults.labels import HERE, Program
from faults.verdicts import by_bound, verdicts

ROOT = HERE.parent
RESULTS = ROOT / "benchmarks" / "results" / "findings.json"
SMALL = 0.03  # of the step: findings below that count neither as false nor as an answer
REALISED = 0.05  # of the step: a fault that cost less on this machine tests nothing
NOTHING = "(no finding)"
BARS = {
    "first": ("true cause first", 0.90),
    "third": ("true cause among the first three", 0.97),
    "false": ("findings above 3 % on mended and tuned forms", 0),
    "error": ("median absolute error of predicted gains", 0.15),
    "coverage": ("outcomes inside the stated interval", 0.80),
    "width": ("median width of intervals, of the gain", 0.40),
    "verdict": ("verdict names what bounds the step", 0.95),
}


@dataclass(frozen=True)
class Case:
    """One recording: `findings` as the examination orders them, `step_ms` the mean of its clean steps."""

    program: Program
    form: str
    severity: int
    findings: list[dict[str, Any]]
    step_ms: float | None
    bound: str | None = None  # of the verdict
    by_bound: dict[str, float] = field(default_factory=dict)  # ms of the ledger; {} without one

    @property
    def name(self) -> str:
        return f"{self.program.id} {self.severity}"

    @property
    def large(self) -> list[dict[str, Any]]:
        """Findings that promise at least 3 % of the step, or no gain at all because they cost no time."""
        least = SMALL * (self.step_ms or 0.0)
        return [
            finding
            for finding in self.findings
            if finding.get("gain_ms") is None or finding["gain_ms"] >= least
        ]

    @property
    def counted(self) -> bool:
        """Whether a rule is expected to see the fault."""
        return bool(self.program.fault.kind) and not self.program.fault.known_gap


def case_of(program: Program, form: str, severity: int, examination: Any) -> Case:
    """From an `Examination`, or its JSON."""
    plain = examination if isinstance(examination, dict) else None
    step = plain["step"] if plain else examination.step
    mean, median = (
        step.get(key) if plain else getattr(step, key, None) for key in ("clean_mean_ms", "clean_ms")
    )
    result = plain["findings"] if plain else msgspec.to_builtins(examination.findings)
    step_ms, total = median if mean is None else mean, plain or msgspec.to_builtins(examination)
    bound = (total.get("verdict") or {}).get("bound")
    return Case(program, form, severity, list(result), step_ms, bound, by_bound(_ledger(total)))


def _ledger(examination: dict[str, Any]) -> list[LedgerRow]:
    """Of the first device, which the findings are of."""
    devices = examination["devices"] or [{"ledger": []}]
    return msgspec.convert(devices[0]["ledger"], list[LedgerRow])


def place(case: Case, strictly: bool = False) -> int | None:
    """The place of the true cause among the findings, from 1; None if it is missing.

    What is allowed is as true as the cause, and does not push it back unless that is asked `strictly`.
    """
    passed = () if strictly else case.program.passed
    ids = [finding["id"] for finding in case.findings if finding["id"] not in passed]
    cause = case.program.fault.kind
    return ids.index(cause) + 1 if cause in ids else None


def share(hits: Iterable[bool]) -> float | None:
    """Of true ones; None of nothing."""
    known = list(hits)
    return sum(known) / len(known) if known else None


def accuracy(cases: list[Case]) -> dict[str, Any]:
    """How often the true cause comes first, and among the first three; what was missed."""
    faulty = [case for case in cases if case.form == "faulty" and case.counted]
    places = {case.name: place(case) for case in faulty}
    expected = [(case, kind) for case in faulty for kind in case.program.fault.expected]
    return {
        "cases": len(faulty),
        "first": share(at == 1 for at in places.values()),
        "third": share(at is not None and at <= 3 for at in places.values()),
        "first_strictly": share(place(case, strictly=True) == 1 for case in faulty),
        "not_first": {name: at for name, at in places.items() if at != 1},
        "missed": [f"{c.name}: {kind}" for c, kind in expected if kind not in {f["id"] for f in c.findings}],
        "gaps": {case.name: place(case) for case in cases if case.form == "faulty" and _gap(case)},
    }


def _gap(case: Case) -> bool:
    return bool(case.program.fault.known_gap)


def confusion(cases: list[Case]) -> dict[str, dict[str, int]]:
    """True cause to first finding, as counts; well-tuned and mended forms under "(nothing)"."""
    table: dict[str, Counter[str]] = {}
    for case in cases:
        allowed = case.program.passed
        answers = [item["id"] for item in case.large if item["id"] not in allowed]
        truth = case.program.fault.kind if case.form == "faulty" else None
        table.setdefault(truth or "(nothing)", Counter())[answers[0] if answers else NOTHING] += 1
    return {truth: dict(table[truth].most_common()) for truth in sorted(table)}


def false_findings(cases: list[Case]) -> list[dict[str, Any]]:
    """Findings above 3 % of the step on forms without a fault, and forbidden ones on faulty forms."""
    result = []
    for case in cases:
        fault = case.program.fault
        for item in case.large:
            wrong = (
                item["id"] in fault.forbidden
                if case.form == "faulty"
                else item["id"] not in case.program.passed
            )
            if wrong:
                gain = item.get("gain_ms")
                part = gain / case.step_ms if gain is not None and case.step_ms else None
                result.append({"case": case.name, "form": case.form, "finding": item["id"], "share": part})
    return result


@dataclass(frozen=True)
class Gain:
    """The predicted gain of a fault, and the gain of its mended twin, in milliseconds per step."""

    case: str
    kind: str
    faults: int  # planted in it; the promises of several are added
    step_ms: float
    realised_ms: float
    labelled: float | None  # share of the faulty step that the label expects
    predicted_ms: float | None
    low_ms: float | None
    high_ms: float | None

    @property
    def shows(self) -> bool:
        """Whether the fault cost enough on this machine to be of use."""
        return self.realised_ms >= REALISED * self.step_ms

    @property
    def usable(self) -> bool:
        return self.shows and self.predicted_ms is not None

    @property
    def error(self) -> float:
        """Of the gain that came true, signed."""
        assert self.predicted_ms is not None
        return self.predicted_ms / self.realised_ms - 1

    @property
    def inside(self) -> bool | None:
        """Whether the outcome lies in the interval; None without one."""
        if self.low_ms is None or self.high_ms is None:
            return None
        return self.low_ms <= self.realised_ms <= self.high_ms

    @property
    def width(self) -> float | None:
        if self.low_ms is None or self.high_ms is None:
            return None
        return (self.high_ms - self.low_ms) / self.realised_ms


def gains(cases: list[Case]) -> list[Gain]:
    """One for each faulty form whose mended twin was recorded too."""
    mended = {case.name: case.step_ms for case in cases if case.form == "mended"}
    return [
        _gain(case, case.step_ms, after)
        for case in cases
        if case.form == "faulty" and case.step_ms and (after := mended.get(case.name))
    ]


def _gain(case: Case, before: float, after: float) -> Gain:
    fault = case.program.fault
    known = [finding for finding in case.findings if finding["id"] in (*fault.expected, *fault.parts)]
    labelled = fault.share[fault.severity.index(case.severity)] if fault.share else None
    return Gain(
        case=case.name,
        kind=str(fault.kind),
        faults=len(fault.expected),
        step_ms=before,
        realised_ms=before - after,
        labelled=labelled,
        predicted_ms=_total(known, "gain_ms"),
        low_ms=_total(known, "low_ms"),
        high_ms=_total(known, "high_ms"),
    )


def _total(findings: list[dict[str, Any]], key: str) -> float | None:
    values = [finding.get(key) for finding in findings]
    return sum(values) if values and None not in values else None  # type: ignore[arg-type]


def prediction(all_gains: list[Gain]) -> dict[str, Any]:
    """Errors, coverage and width over faults that cost something here; those that did not are named."""
    used = [gain for gain in all_gains if gain.usable]
    intervals = [gain for gain in used if gain.inside is not None]
    return {
        "cases": len(used),
        "error": statistics.median(abs(gain.error) for gain in used) if used else None,
        "bias": statistics.median(gain.error for gain in used) if used else None,
        "coverage": share(bool(gain.inside) for gain in intervals),
        "width": statistics.median(gain.width or 0.0 for gain in intervals) if intervals else None,
        "intervals": len(intervals),
        "not_predicted": [gain.case for gain in all_gains if gain.shows and gain.predicted_ms is None],
        "cost_nothing_here": [gain.case for gain in all_gains if not gain.shows],
    }


def score(cases: list[Case]) -> dict[str, Any]:
    """Everything: real recordings, and synthetic ones apart."""
    real = [case for case in cases if not case.program.synthetic]
    synthetic = [case for case in cases if case.program.synthetic]
    actual, false = gains(real), false_findings(real)
    result = {
        "recordings": len(real),
        "accuracy": accuracy(real),
        "false": false,
        "prediction": prediction(actual),
        "confusion": confusion(real),
        "verdicts": verdicts(real),
        "gains": [asdict(gain) for gain in actual],
        "synthetic": {"accuracy": accuracy(synthetic), "false": false_findings(synthetic)},
    }
    return result | {"bars": bars(result)}


def bars(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each bar with its figure, None where nothing was measured, and whether it is met."""
    known = {**result["accuracy"], **result["prediction"], **result["verdicts"]}
    figures = {name: known.get(name) for name in BARS}
    unfaulted = [item for item in result["false"] if item["form"] == "mended"]
    figures["false"] = len(unfaulted) if result["recordings"] else None
    record = {}
    for name, (text, limit) in BARS.items():
        figure, at_least = figures[name], name in ("first", "third", "coverage", "verdict")
        met = None if figure is None else figure >= limit if at_least else figure <= limit
        record[name] = {"text": text, "bar": limit, "figure": figure, "met": met}
    return record


def main() -> None:
    from faults.examined import KEPT, examined
    from faults.tables import tables

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("soundings", nargs="?", type=Path, default=KEPT)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    options = parser.parse_args()
    result = score(examined(options.soundings))
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(tables(result))


if __name__ == "__main__":
    main()
