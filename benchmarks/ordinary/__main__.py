"""Record the programs, score what Fathom says of them, and keep the result: see the package's docstring."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.ordinary.labels import Label, labels
from benchmarks.ordinary.runs import ProgramError, outcome
from benchmarks.ordinary.score import figures, row, table

RESULTS = Path(__file__).parents[1] / "results" / "ordinary.json"


def main() -> None:
    options = _options()
    chosen = [labels()[name] for name in options.names or labels()]
    rows, missing = [], {}
    with tempfile.TemporaryDirectory() as folder:
        keep = options.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        for label in chosen:
            try:
                rows.append(measured(label, keep, options.pairs))
            except ProgramError as error:
                missing[label.name] = str(error)
            print(f"{label.name}: {missing.get(label.name, 'done')}", file=sys.stderr, flush=True)
    if not options.names:
        RESULTS.write_text(json.dumps(result(rows, missing), indent=1) + "\n")
    print(table(rows))


def measured(label: Label, keep: Path, pairs: int) -> dict[str, Any]:
    if find_spec(label.library) is None:
        raise ProgramError(f"{label.library} is not installed")
    return row(outcome(label, keep, pairs))


def result(rows: list[dict[str, Any]], missing: dict[str, str]) -> dict[str, Any]:
    return {
        "machine": platform.processor() or platform.machine(),
        "figures": figures(rows),
        "programs": rows,
        "not_run": missing,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ordinary", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(labels())}; all, and the result is kept"
    )
    parser.add_argument("--keep", type=Path, help="keep the soundings in this folder")
    parser.add_argument("--pairs", type=int, default=2, help="unrecorded runs of each form")
    options = parser.parse_args()
    if unknown := set(options.names) - set(labels()):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    main()
