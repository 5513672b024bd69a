"""The lab's results: what the referee said of each technique, where and when, kept in results/lab.json.

    fathom lab run --all                                 # on the target; proofs are kept in FATHOM_HOME
    python -m benchmarks.referee.lab gather HOME [HOME]  # here: those folders, brought home, into the results
    python -m benchmarks.referee.lab place MACHINE.json  # missing fractions, by that machine's ceilings
    python -m benchmarks.referee.lab missing             # names of those that were not judged as they are now
    python -m benchmarks lab                             # the table

Of each technique the newest result counts that was reached with its source as it is, else the newest. Where
the machine that judged it had no ceilings, those of another with the same GPU do (~ in the table).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from fathom.lab import Kept, techniques
from fathom.machine.limits import Limits, limits_of
from fathom.referee import Comparison
from fathom.referee.ceilings import CallWork, fraction

RESULT = Path(__file__).parents[1] / "results" / "lab.json"
Row = dict[str, Any]


def gathered(homes: Iterable[Path], before: Iterable[Row] = ()) -> list[Row]:
    """One row per technique: the contents of the homes, and `before`."""
    rows = [*before, *(row for home in homes for row in _rows(home))]
    rows.sort(key=lambda row: (row["source"] == _source(row["technique"]), row["taken_ns"]))
    best = {row["technique"]: row for row in rows}
    return [best[name] for name in sorted(best)]


def missing(rows: Iterable[Row]) -> list[str]:
    """Techniques that were not judged with their source as it is."""
    judged = {row["technique"] for row in rows if row["source"] == _source(row["technique"])}
    return [name for name in techniques() if name not in judged]


def place(rows: Iterable[Row], machine: dict[str, Any]) -> None:
    """Put fractions of the ceilings of `machine` into those rows of its GPU that have none."""
    gpu, host = limits_of(machine, 0), limits_of(machine, None)
    if gpu is None or host is None:
        raise SystemExit("That machine's ceilings were not all measured; give one where they were.")
    name = machine["gpus"][0].get("name")
    for row in rows:
        work = msgspec.convert(row["work"], CallWork)
        for timing in row["timings"]:
            if row["gpu"] == name and not timing["tuned"]["ceiling"]:
                row["ceilings_of"] = "another machine with this GPU"
                _place(timing, work, gpu if timing["cache"] else host)


def _place(timing: Row, work: CallWork, limits: Limits) -> None:
    for side in (timing["plain"], timing["tuned"]):
        side["ceiling"] = msgspec.to_builtins(fraction(side["ns"], work, limits, timing["cache"]))


def _source(name: str) -> str | None:
    known = techniques()
    return known[name].digest if name in known else None


def _rows(home: Path) -> Iterator[Row]:
    for file in sorted((home / "lab").glob("*/*.json")):
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
        yield _row(kept) | {"machine": file.parent.name, "gpu": _gpu(home, file.parent.name)}


def _gpu(home: Path, fingerprint: str) -> str | None:
    file = home / "machines" / f"{fingerprint}.json"
    gpus = json.loads(file.read_bytes()).get("gpus") if file.exists() else None
    return gpus[0].get("name") if gpus else None


def _row(kept: Kept) -> Row:
    verdict = kept.verdict
    record = {"technique": kept.technique, "source": kept.source, "taken_ns": kept.taken_ns}
    record |= {"versions": kept.versions, "verdict": verdict.verdict}
    record |= {"ratio": verdict.ratio, "interval": verdict.interval, "work": verdict.work}
    record |= {"reasons": [msgspec.to_builtins(reason) for reason in verdict.reasons], "notes": verdict.notes}
    return record | {"timings": [_timing(timing) for timing in verdict.timings]}


def _timing(comparison: Comparison) -> Row:
    sides = {"plain": comparison.baseline, "tuned": comparison.candidate}
    by_name = {
        name: {"ns": side.ns, "samples": side.samples, "ceiling": msgspec.to_builtins(side.ceiling)}
        for name, side in sides.items()
    }
    return {"cache": comparison.cache, "ratio": comparison.ratio, "interval": comparison.interval, **by_name}


def bench() -> str:
    """The table of what is kept."""
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    counts = Counter(row["verdict"] for row in rows)
    stale = sum(row["source"] != _source(row["technique"]) for row in rows)
    head = f"{len(rows)} of {len(techniques())} techniques: " + ", ".join(
        f"{count} {verdict}" for verdict, count in counts.most_common()
    )
    return "\n".join([f"{head}; {stale} with an earlier source (*)", *map(_line, rows)])


def _line(row: Row) -> str:
    mark = "" if row["source"] == _source(row["technique"]) else " *"
    name = f"{row['technique']}{mark}"
    if row["ratio"] is None or row["verdict"] == "refused":
        why = row["reasons"][0] if row["reasons"] else {"code": "", "detail": ""}
        return f"{name:<26}{row['verdict']:<10}{why['code']}: {why['detail'][:80]}"
    low, high = (1 / bound for bound in reversed(row["interval"] or [row["ratio"], row["ratio"]]))
    chosen = next((timing for timing in row["timings"] if timing["ratio"] == row["ratio"]), None)
    shares = [_share(chosen[side]["ceiling"]) for side in ("plain", "tuned")] if chosen else []
    bound = (chosen["tuned"]["ceiling"] or {}).get("bound", "") if chosen else ""
    gain = f"{1 / row['ratio']:.3g}×"
    start = f"{name:<26}{row['verdict']:<10}{gain:<9}{low:.3g} to {high:.3g}×".ljust(66)
    return start + " → ".join(shares) + f" {bound}" + (" ~" if row.get("ceilings_of") else "")


def _share(ceiling: Row | None) -> str:
    return f"{ceiling['fraction']:.0%}" if ceiling else "-"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="do", required=True)
    commands.add_parser("gather").add_argument("homes", nargs="+", type=Path, metavar="HOME")
    commands.add_parser("place").add_argument("machine", type=Path)
    commands.add_parser("missing")
    options = parser.parse_args()
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else []
    if options.do == "missing":
        print(*missing(kept))
        return
    if options.do == "place":
        place(kept, json.loads(options.machine.read_bytes()))
        _write(kept)
        return
    if empty := [str(home) for home in options.homes if not any((home / "lab").glob("*/*.json"))]:
        parser.error(f"no results of the lab in {', '.join(empty)}")
    _write(gathered(options.homes, kept))


def _write(rows: list[Row]) -> None:
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    print(bench())


if __name__ == "__main__":
    main()
