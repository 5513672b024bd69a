"""Sampled stacks of the host's main thread, as an icicle of shares."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import polars as pl

from fathom.report.page.colours import SERIES
from fathom.report.page.figure import Figure, altair
from fathom.sounding import Store

DEPTH = 14
OWN = re.compile(r"\(\S*/fathom/(?:probe|recorder)/")  # frames of Fathom, not of the program
SHORT = re.compile(r"(.*)\((?:.*/)(?=[^/]*\)$)")  # the directories of a frame's file
LEAST = 0.004  # of the samples: narrower frames are left out


class Frame(TypedDict):
    """A frame with its depth and its extent as a share of the samples."""

    name: str
    short: str
    depth: int
    a: float
    b: float


def stacks(store: Store) -> Figure[Frame] | None:
    """Return where the host spends its time in clean steps; None without sampled stacks."""
    rank = next(iter(store.ranks), None)
    if rank is None or not store.has("stacks"):
        return None
    counts = (
        store.table("stacks", rank)
        .filter(phase="clean")
        .drop_nulls("stack")
        .group_by("stack")
        .len()
        .collect()
    )
    if counts.is_empty():
        return None
    rows = rows_of(counts)
    table = [["Depth", "Frame", "% of samples"]]
    table += [[str(r["depth"]), r["name"], f"{100 * (r['b'] - r['a']):.1f}"] for r in rows[:60]]
    title = f"Host stacks of clean steps, {counts['len'].sum():,} samples"
    about = f"Icicle of sampled stacks, callers above callees; {len(rows)} frames."
    return Figure("stacks", title, about, rows, _draw, table)


def rows_of(counts: pl.DataFrame) -> list[Frame]:
    """Return a row per frame with its depth and its extent as a share of the samples."""
    stacks, total = _trunkless(counts), int(counts["len"].sum())
    rows: list[Frame] = []

    def lay(members: list[tuple[list[str], int]], depth: int, start: int) -> None:
        by_frame: dict[str, list[tuple[list[str], int]]] = {}
        for frames, count in members:
            if len(frames) > depth:
                by_frame.setdefault(frames[depth], []).append((frames, count))
        sizes = {frame: sum(n for _, n in inside) for frame, inside in by_frame.items()}
        for frame, inside in sorted(by_frame.items(), key=lambda item: -sizes[item[0]]):
            count = sizes[frame]
            if count >= LEAST * total:
                short = SHORT.sub(r"\1(", frame)
                rows.append(
                    {
                        "name": frame,
                        "short": short,
                        "depth": depth,
                        "a": start / total,
                        "b": (start + count) / total,
                    }
                )
                if depth + 1 < DEPTH:
                    lay(inside, depth + 1, start)
            start += count

    lay(stacks, 0, 0)
    return rows


def _trunkless(counts: pl.DataFrame) -> list[tuple[list[str], int]]:
    """Return frames of each stack with its count, without the frames that all stacks begin with."""
    counts = counts.sort("len", "stack", descending=[True, False])
    split = [
        ([f for f in str(text).split(";") if not OWN.search(f)], int(n)) for text, n in counts.iter_rows()
    ]
    split = [(frames, n) for frames, n in split if frames]
    shared = 0
    while all(len(frames) > shared + 1 for frames, _ in split) and (
        len({frames[shared] for frames, _ in split}) == 1
    ):
        shared += 1
    return [(frames[shared:], n) for frames, n in split]


def _draw(rows: list[Frame]) -> Any:
    alt = altair()
    shown = [row | {"share": row["b"] - row["a"], "shade": row["depth"] % 2} for row in rows]
    base = alt.Chart(alt.Data(values=shown)).encode(
        x=alt.X(
            "a:Q",
            scale=alt.Scale(domain=[0, 1]),
            title="share of samples",
            axis=alt.Axis(format="%", tickCount=5),
        ),
        y=alt.Y("depth:O", axis=None),
    )
    colour = alt.Color("shade:O", scale=alt.Scale(range=[SERIES[0], "#5b8fd6"]), legend=None)
    boxes = base.mark_bar(stroke="white", strokeWidth=0.6).encode(
        x2="b:Q", color=colour, tooltip=["name:N", alt.Tooltip("share:Q", format=".1%")]
    )
    limit = {"expr": "max((datum.b - datum.a) * width - 8, 1)"}
    words = base.mark_text(align="left", dx=4, fontSize=10, color="white", limit=limit)
    words = words.transform_filter("datum.share > 0.08").encode(text="short:N")
    return (boxes + words).properties(height=18 * len({row["depth"] for row in rows}))
