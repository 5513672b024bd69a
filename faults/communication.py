"""The score of the diagnosis on faults of communication, without a GPU.

    python -m faults.communication [RECORDINGS]    # writes benchmarks/results/findings_communication.json

Simulated timelines of several GPUs are made on the spot (`faults/timelines`). RECORDINGS are those of
programs on CPU ranks (`faults/programs/ranks`), if there are any:

    python -m faults.record record OUT --group ranks --severity 1 2 3 --steps 160 --windows 8
    python -m faults.record finish OUT --into RECORDINGS
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faults.examined import recorded
from faults.labels import FORMS, HERE, Program, timelines
from faults.score import SMALL, Case, accuracy, case_of, false_findings, gains

RESULTS = HERE.parent / "benchmarks" / "results" / "findings_communication.json"
WITHIN = 0.10


def simulated(chosen: tuple[Program, ...] | None = None) -> Iterator[Case]:
    """Each simulated job at every severity, in both forms."""
    from fathom.diagnosis import examine

    for program in timelines() if chosen is None else chosen:
        build = importlib.import_module(program.module).build
        for severity in program.fault.severity:
            for form in FORMS:
                with tempfile.TemporaryDirectory() as scratch:
                    store = build(form, severity).write(Path(scratch) / f"{program.name}.fathom")
                    yield case_of(program, form, severity, examine(store))


def score(cases: list[Case]) -> dict[str, Any]:
    """How often the cause is first, what is false, and how far predicted gains are off."""
    actual = [gain for gain in gains(cases) if gain.usable]
    errors = [abs(gain.error) for gain in actual]
    kinds = {case.program.fault.kind for case in cases}
    return {
        "recordings": len(cases),
        "kinds": len(kinds),
        "accuracy": accuracy(cases),
        "false": false_findings(cases),
        "gains": len(errors),
        "median_error": round(statistics.median(errors), 3) if errors else None,
        "within": round(sum(error <= WITHIN for error in errors) / len(errors), 3) if errors else None,
        "errors": {gain.case: round(gain.error, 3) for gain in actual},
    }


def shown(name: str, result: dict[str, Any]) -> str:
    """Return one line of the table."""
    first, false = result["accuracy"]["first"], len(result["false"])
    cases = result["accuracy"]["cases"]
    return (
        f"{name}: {result['kinds']} kinds, {cases} faulty; cause first in {first:.0%}; {false} false"
        f" findings above {SMALL:.0%}; gains within {WITHIN:.0%} in {result['within'] or 0:.0%}"
    )


def main() -> None:
    parts = {"simulated timelines": list(simulated())}
    if len(sys.argv) > 1:
        parts["CPU ranks"] = recorded(Path(sys.argv[1]))
    result = {name: score(cases) for name, cases in parts.items()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for name, part in result.items():
        print(shown(name, part))
        for case, place in part["accuracy"]["not_first"].items():
            print(f"  not first: {case}, place {place}")
        for finding in part["false"]:
            print(f"  false: {finding}")


if __name__ == "__main__":
    main()
