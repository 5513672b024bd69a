"""Plant changes in a copy of a recording, and draw runs from one.

A slower kernel family is planted in the tables: time is stretched while a kernel of the family runs, so that
all later records move, and each clean step becomes longer by the same amount.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

import fathom
from benchmarks.comparison.between import kernels
from fathom.analysis import account_of, meetings
from fathom.analysis.clean import LONGER
from fathom.analysis.compare import Run, run_of
from fathom.analysis.compare.run import CLEAN, PROFILED, RunEntry
from fathom.analysis.entries import DEVICE_WORK, Entry
from fathom.sounding import open_store
from fathom.units import NS_PER_MS

HOST = 0.015  # relative standard deviation of host time between runs of one program on a quiet host
_TIMES = ("start_ns", "end_ns", "mark_ns", "device_ns", "device_end_ns", "time_ns")
Warp = Callable[[np.ndarray], np.ndarray]


def copied(source: Path, target: Path) -> Path:
    """Copy a sounding, packed or not, without checksums, so that its tables can be changed."""
    store = open_store(source)
    shutil.copytree(store.path, target)
    with_manifest(target, lambda manifest: manifest.update(checksums={}))
    return target


def with_manifest(folder: Path, change: Callable[[dict], None]) -> None:
    """Change the manifest of a copy."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))


def slower(folder: Path, factor: float, families: pl.Expr) -> None:
    """Make the kernels in `families` of the first rank take `factor` as long."""
    rank = folder / "rank-0"
    kernels = pl.read_parquet(rank / "kernels.parquet")
    chosen = kernels.filter(families).sort("start_ns")
    starts, ends = chosen["start_ns"].to_numpy(), chosen["end_ns"].to_numpy()
    longer = np.concatenate(([0], np.cumsum((ends - starts) * (factor - 1))))

    def warp(times: np.ndarray) -> np.ndarray:
        place = np.searchsorted(starts, times, "right")
        inside = np.where(place > 0, np.minimum(times, ends[place - 1]) - starts[place - 1], 0)
        before = longer[np.maximum(place - 1, 0)]
        return times + np.round(np.where(place > 0, before + inside * (factor - 1), 0)).astype(np.int64)

    recorded = pl.read_parquet(rank / "steps.parquet").filter(phase="timeline").height
    within = chosen.filter(phase="timeline")
    each = float((within["end_ns"] - within["start_ns"]).sum()) * (factor - 1) / max(recorded, 1)
    move(rank, warp)
    lengthen(rank, each)


def move(rank: Path, warp: Warp) -> None:
    """Apply a map of times to all tables of a rank."""
    for file in sorted(rank.glob("*.parquet")):
        warped(file, warp)


def warped(file: Path, warp: Warp) -> None:
    """Apply a map of times to every column of times of a table."""
    table = pl.read_parquet(file)
    names = [name for name in _TIMES if name in table.columns]
    columns = []
    for name in names:
        known = table[name].drop_nulls()
        new = pl.Series(name, warp(known.to_numpy()), pl.Int64)
        place = pl.Series(np.flatnonzero(table[name].is_not_null().to_numpy()))
        columns.append(table[name].scatter(place, new) if len(new) else table[name])
    table.with_columns(columns).write_parquet(file)


def lengthen(rank: Path, each_ns: float) -> None:
    """Make each clean step longer by `each_ns`, and move all that follows."""
    clean = pl.read_parquet(rank / "steps.parquet").filter(pl.col("parent").is_null(), phase="clean")
    marks = clean["mark_ns"].sort().to_numpy()

    def warp(times: np.ndarray) -> np.ndarray:
        return times + np.round(np.searchsorted(marks, times, "left") * each_ns).astype(np.int64)

    move(rank, warp)


def run(path: Path) -> Run:
    """Return a recording as a comparison reads it."""
    sounding = fathom.open(path)
    store = sounding.store.cached()
    rank = store.ranks[0]
    account = account_of(store, rank, store.machine, meetings(store).of.get(rank))
    return run_of(store, sounding.examine(), account)


def planted(original: Run, path: Path) -> Run:
    """Return a changed copy of a recording as a run, with the figures of the original."""
    store = open_store(path).cached()
    rank = store.ranks[0]
    return run_of(store, original.examination, account_of(store, rank, store.machine))


def drawn(source: Run, random: np.random.Generator, between: bool = True, windows: int = 0) -> Run:
    """Return a run drawn from a recording: blocks of its steps, with replacement.

    `between` also scatters each entry as runs of one program do. The clean step moves with its entries.
    `windows` is the number of recorded steps to draw, by default as many as the recording has.
    """
    copy: Run = msgspec.json.decode(msgspec.json.encode(source), type=Run)
    place = _blocks(len(copy.windows_ms), random, windows)
    copy.windows_ms = [copy.windows_ms[i] for i in place]
    copy.clean_ms = [copy.clean_ms[i] for i in _blocks(len(copy.clean_ms), random)]
    host = random.normal(1.0, HOST) if between else 1.0
    scale: dict[tuple[str, str], float] = {}
    for basis, rows in copy.entries.items():
        before = sum(row.ns for row in rows)
        for row in rows:
            key = row.entry, row.detail
            if key not in scale:
                own = _kernel(row, random) if between and row.entry in DEVICE_WORK else host
                scale[key] = own
        after = sum(row.ns * scale[row.entry, row.detail] for row in rows)
        for row in rows:
            usual = sum(row.each) * len(place) / max(len(row.each), 1)
            row.each = [round(row.each[i] * scale[row.entry, row.detail]) for i in place if row.each]
            row.ns = round(row.ns * (sum(row.each) / usual if usual else scale[row.entry, row.detail]))
        _close(copy, basis, after / before)
    return copy


def _kernel(row: RunEntry, random: np.random.Generator) -> float:
    """Return a factor as between runs of a kernel that was measured, averaged over launches of a step.

    A kernel varies with the place of its data in memory, which each launch of a step has anew.
    """
    return float(random.normal(1.0, random.choice(_scatter()) / max(row.count or 1.0, 1.0) ** 0.5))


@cache
def _scatter() -> list[float]:
    return list(kernels().values())


def _close(run: Run, basis: str, factor: float) -> None:
    """Lengthen the drawn steps as their entries, and let the entries sum to the drawn step."""
    if basis == PROFILED:
        run.windows_ms = [
            sum(row.each[i] for row in run.entries[basis] if row.each) / NS_PER_MS
            for i in range(len(run.windows_ms))
        ]
        return
    if basis == CLEAN:
        run.clean_ms = [ms * factor for ms in run.clean_ms]
    middle = np.median(run.clean_ms) if basis == CLEAN else np.mean(run.clean_ms)
    rest = round(float(middle) * NS_PER_MS) - run.step_ns(basis)
    row = next((row for row in run.entries[basis] if row.entry == Entry.UNATTRIBUTED), None)
    if row is None:
        row = RunEntry(str(Entry.UNATTRIBUTED), LONGER, 0, [])
        run.entries[basis].append(row)
    row.ns += rest


def _blocks(count: int, random: np.random.Generator, drawn: int = 0) -> list[int]:
    """Return positions of consecutive steps in blocks, `drawn` or `count` in all."""
    length, drawn = max(1, round(count ** (1 / 3))), drawn or count
    starts = random.integers(0, max(count, 1), -(-drawn // length) if count else 0)
    return [int(start + offset) % count for start in starts for offset in range(length)][:drawn]
