"""A small sounding made by hand: two ranks, three steps each, numbers that a test can add up."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fathom.sounding import Manifest, Rank, Store, Writer, conform

MS = 1_000_000
START = 1_700_000_000_000_000_000


def make(folder: Path) -> Store:
    """Three steps of 10 ms on two ranks; each launches one kernel of 4 ms and one copy of 1 ms."""
    writer = Writer(folder)
    for rank in (0, 1):
        writer.write(rank, "steps", conform("steps", _steps()))
        writer.write(rank, "kernels", conform("kernels", _kernels()))
    manifest = Manifest(
        name=folder.stem,
        created_ns=START,
        command=["python", "train.py"],
        ranks=[Rank(rank=rank, world=2, devices={0: "a device"}) for rank in (0, 1)],
    )
    return writer.finish(manifest, {"host": {"hostname": "here"}})


def _steps() -> pl.DataFrame:
    opens = [START + k * 10 * MS for k in range(3)]
    return pl.DataFrame(
        {
            "step": [0, 1, 2],
            "kind": "train",
            "source": "mark",
            "thread": 1,
            "mark_ns": opens,
            "end_ns": [t + 10 * MS for t in opens],
            "phase": "timeline",
            "burst": 1,
        }
    )


def _kernels() -> pl.DataFrame:
    rows = []
    for k in range(3):
        begin = START + k * 10 * MS + 2 * MS
        rows.append({"name": "gemm", "kind": "compute", "start_ns": begin, "end_ns": begin + 4 * MS})
        rows.append(
            {"name": "Memcpy HtoD", "kind": "copy", "start_ns": begin + 4 * MS, "end_ns": begin + 5 * MS}
        )
    extra = {"device": 0, "stream": 7, "phase": "timeline", "burst": 1}
    return pl.DataFrame([{**row, **extra, "correlation": i} for i, row in enumerate(rows)])
