"""Build a job of many ranks from the ranks of a real one, with skewed clocks and one planted straggler.

Every rank is a copy of a recorded rank, whose step is repeated. Eight ranks share a host, whose clock is up
to SKEW_NS off. In each step the straggler waits `late_ns` longer for its input, so that the step's first
collective lasts that much longer on all other ranks, and all later work moves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from fathom.sounding import TABLES, Manifest, Phase, Rank, Store
from fathom.sounding.store import Writer

PER_HOST = 8
SKEW_NS = 3_000_000
JITTER_NS = 30_000  # of the start of a collective
SOON_NS = 100_000  # from the mark of a step to the planted wait
_TIMES = ("start_ns", "end_ns", "mark_ns", "device_ns", "device_end_ns", "time_ns")
Tables = dict[str, pl.DataFrame]


class Plan(msgspec.Struct, frozen=True):
    """The size of a job and its planted straggler."""

    ranks: int
    straggler: int
    late_ns: int = 12_000_000
    steps: int = 4
    seed: int = 1


def build(real: Store, plan: Plan, folder: Path) -> list[Path]:
    """Write one sounding per host to `folder`, and return their paths."""
    recorded = [_tables(real, rank) for rank in real.ranks]
    period = _period(recorded)
    first = [_collectives(tables).row(0, named=True) for tables in recorded]
    meets = max(row["start_ns"] for row in first), min(row["end_ns"] for row in first) - 1_000
    hosts = range(0, plan.ranks, PER_HOST)
    skews = random.Random(plan.seed)
    return [
        _host(real, recorded, plan, folder, range(first, min(first + PER_HOST, plan.ranks)), period, meets,
              skews.randint(-SKEW_NS, SKEW_NS))
        for first in hosts
    ]  # fmt: skip


def _tables(real: Store, rank: int) -> Tables:
    every = {name: real.table(name, rank).drop("rank").collect() for name in TABLES}
    return {name: rows for name, rows in every.items() if len(rows)}


def _collectives(tables: Tables) -> pl.DataFrame:
    return tables["kernels"].filter(kind="collective").sort("start_ns")


def _period(recorded: list[Tables]) -> int:
    """Return the length of a repeated step: that of all ranks' records together."""
    first = min(int(tables["steps"]["mark_ns"].min()) for tables in recorded)  # type: ignore[arg-type]
    last = max(int(tables[name]["end_ns"].max()) for tables in recorded for name in ("ops", "kernels"))  # type: ignore[arg-type]
    return last - first + SOON_NS


def _host(
    real: Store, recorded: list[Tables], plan: Plan, folder: Path, ranks: range, period: int,
    meets: tuple[int, int], skew: int,
) -> Path:  # fmt: skip
    path = folder / f"node-{ranks[0] // PER_HOST}.fathom"
    writer, about = Writer(path), []
    names = {rank.rank: rank for rank in real.manifest.ranks}
    phases = []
    for rank in ranks:
        source = rank % len(recorded)
        tables = _rank(recorded[source], plan, rank, period, meets, skew)
        for name, rows in tables.items():
            writer.write(rank, name, rows)
        copied = names[real.ranks[source]]
        about.append(
            Rank(rank, rank, f"node-{ranks[0] // PER_HOST}", plan.ranks, copied.devices, copied.step_on)
        )
        start, end = tables["steps"]["mark_ns"].min(), tables["steps"]["end_ns"].max()
        phases.append(Phase(rank, "timeline", 0, start, end, plan.steps))  # type: ignore[arg-type]
    manifest = Manifest(name=path.stem, made_by="import", ranks=about, phases=phases)
    writer.finish(manifest, real.machine)
    return path


def _rank(tables: Tables, plan: Plan, rank: int, period: int, meets: tuple[int, int], skew: int) -> Tables:
    """Return the tables of one rank: the steps repeated, with the planted wait and the clock's offset.

    `meets` are the last arrival at the first collective, and a time shortly before that collective ends.
    """
    mark = int(tables["steps"]["mark_ns"].min())  # type: ignore[arg-type]
    knots = [(meets[1] - mark - 1, 0), (meets[1] - mark, plan.late_ns)]
    if late := rank == plan.straggler:
        arrival = int(_collectives(tables)["start_ns"][0])
        wait = meets[0] - arrival + plan.late_ns
        knots = [(SOON_NS, 0), (SOON_NS + 1, wait), (arrival - mark, wait), (meets[1] - mark, plan.late_ns)]
    clock = Clock(mark, plan, period, skew, tuple(knots))
    result = {
        name: pl.concat(list(_repeated(rows, name, plan.steps, period))) for name, rows in tables.items()
    }
    result["kernels"] = _jittered(result["kernels"], random.Random(plan.seed * 1_000_003 + rank))
    if late:
        begins = mark + SOON_NS + period * np.arange(plan.steps)
        result["waits"] = _waits(begins, tables["steps"]["thread"][0])
    return {name: clock.moved(rows) for name, rows in result.items()}


class Clock(msgspec.Struct, frozen=True):
    """The new times of one rank: in each step `knots` map times since its mark to delays."""

    mark: int
    plan: Plan
    period: int
    skew: int
    knots: tuple[tuple[int, int], ...]

    def moved(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with new times."""
        steps = range(self.plan.steps)
        old = [k * self.period + at for k in steps for at, _ in self.knots]
        delays = [k * self.plan.late_ns + by for k in steps for _, by in self.knots]
        moved = {}
        for column in filter(rows.columns.__contains__, _TIMES):
            if rows[column].null_count() == 0:
                times = rows[column].to_numpy()
                later = np.interp(times - self.mark, old, delays).round().astype(np.int64)
                moved[column] = pl.Series(times + later + self.skew)
        return rows.with_columns(**moved)


def _repeated(rows: pl.DataFrame, name: str, steps: int, period: int) -> Iterator[pl.DataFrame]:
    numbers = {"correlation": 10_000_000, "id": 1_000_000, "op": 1_000_000}
    numbers |= {"parent": 1_000_000} if name == "ops" else {"step": 1} if name == "steps" else {}
    for k in range(steps):
        shifts = {column: k * by for column, by in numbers.items()} | dict.fromkeys(_TIMES, k * period)
        again = rows.with_columns(pl.col(c) + by for c, by in shifts.items() if c in rows.columns)
        if name == "steps":
            again = again.with_columns(end_ns=pl.col("mark_ns") + period)
        yield again


def _jittered(kernels: pl.DataFrame, draw: random.Random) -> pl.DataFrame:
    """Start each collective up to JITTER_NS later, so that copies of a rank differ."""
    later = pl.Series([draw.randint(0, JITTER_NS) for _ in range(len(kernels))], dtype=pl.Int64)
    most = (pl.col("end_ns") - pl.col("start_ns")) // 4
    start = pl.col("start_ns") + pl.min_horizontal(later, most)
    return kernels.with_columns(
        start_ns=pl.when(pl.col("kind") == "collective").then(start).otherwise("start_ns")
    )


def _waits(begins: np.ndarray, thread: int) -> pl.DataFrame:
    """Return a wait for input of 1 ns at each of `begins`, which the clock lengthens."""
    rows = {"start_ns": begins, "end_ns": begins + 1}
    return pl.DataFrame(rows).with_columns(
        thread=pl.lit(thread, pl.Int64),
        cause=pl.lit("input"),
        phase=pl.lit("timeline"),
        burst=pl.lit(0, pl.Int32),
    )
