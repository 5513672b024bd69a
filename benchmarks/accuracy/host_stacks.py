"""How right the host's side of the ledger is: delays of known time and place, recorded by `fathom run`.

    python -m benchmarks.accuracy.host_stacks [FOLDER]

For each delay: of the stacks sampled while it ran, the share that names a line of its function; and its
time in the ledger over its true time in the same windows. Writes `results/host_stacks.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

import fathom
from fathom.analysis.entries import Entry

PROGRAM = Path(__file__).parent.parent / "programs" / "host_delays.py"
RESULTS = Path(__file__).parent.parent / "results"
RECORDED = {"loading": Entry.INPUT, "saving": Entry.CHECKPOINT, "collecting": Entry.GC}  # by hooks
NAMED, LENGTH = 0.95, 0.05


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    by_name = {
        name: measured(folder / name, options) for name, options in (("torch", []), ("numpy", ["--numpy"]))
    }
    (RESULTS / "host_stacks.json").write_text(json.dumps(by_name, indent=1) + "\n")
    for name, rows in by_name.items():
        for row in rows["delays"]:
            print(name, row)
        print(name, rows["sampling"])


def measured(folder: Path, options: list[str]) -> dict[str, Any]:
    """Record the program, and compare."""
    folder.mkdir(parents=True, exist_ok=True)
    sounding, truth = folder / "run.fathom", folder / "truth.json"
    program = [sys.executable, str(PROGRAM), *options, "--truth", str(truth)]
    run = [sys.executable, "-m", "fathom", "run", "--no-measure", "--replace", "-o", str(sounding), "--"]
    subprocess.run([*run, *program], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return compared(sounding, json.loads(truth.read_text()))


def compared(path: Path, truth: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares and ratios by kind of delay."""
    sounding = fathom.open(path)
    examination = sounding.examine()
    device = examination.devices[0]
    windows = [(w.start_ns, w.end_ns) for w in device.windows if w.used and w.kind != "micro-step"]
    ledger = device.profiled_ledger or device.ledger
    stacks = sounding.table("stacks").filter(pl.col("phase") == "timeline").collect()
    kinds = list(dict.fromkeys(row["kind"] for row in truth))
    rows = [_delay(kind, [t for t in truth if t["kind"] == kind], stacks, windows, ledger) for kind in kinds]
    host = [row for row in rows if row["delay"] not in RECORDED]
    true_ms = sum(row["true_ms"] for row in host)
    ledger_ms = sum(e.ms for e in ledger if e.entry in (Entry.PYTHON, Entry.BLOCKED))
    total = {"delay": "all in Python or blocked", "true_ms": true_ms, "ledger_ms": ledger_ms}
    rows.append({**total, "off": ledger_ms / true_ms - 1})
    return {"delays": rows, "windows": len(windows), "sampling": _sampling(path)}


def _delay(
    kind: str,
    truth: list[dict[str, Any]],
    stacks: pl.DataFrame,
    windows: list[tuple[int, int]],
    ledger: list[Any],
) -> dict[str, Any]:
    true_ms = (
        sum(
            max(0, min(t["end_ns"], end) - max(t["start_ns"], start)) for t in truth for start, end in windows
        )
        / max(len(windows), 1)
        / 1e6
    )
    entry = RECORDED.get(kind)
    mine = [e.ms for e in ledger if (e.entry == entry if entry else f"{kind} (" in e.detail)]
    row = {"delay": kind, "true_ms": true_ms, "ledger_ms": sum(mine), "off": sum(mine) / true_ms - 1}
    return row if "file" not in truth[0] else {**row, **_named(truth, stacks)}


def _named(truth: list[dict[str, Any]], stacks: pl.DataFrame) -> dict[str, Any]:
    during = [stacks.filter(pl.col("time_ns").is_between(t["start_ns"], t["end_ns"])) for t in truth]
    samples = pl.concat(during)
    lines = [f"{truth[0]['file']}:{line}" for line in range(truth[0]["first"], truth[0]["last"] + 1)]
    named = any_frame(samples["stack"], lines)
    blocked = samples.filter(~pl.col("running"))["call"].value_counts(sort=True)
    return {"samples": samples.height, "named": named, "calls": dict(blocked.head(2).iter_rows())}


def any_frame(stacks: pl.Series, lines: list[str]) -> float | None:
    """The share of stacks with one of these lines in it."""
    return stacks.str.contains_any([f"({line})" for line in lines]).mean() if len(stacks) else None  # type: ignore[return-value]


def _sampling(path: Path) -> dict[str, Any]:
    return dict(fathom.open(path).store.manifest.ranks[0].facts.get("stacks", {}))


if __name__ == "__main__":
    main()
